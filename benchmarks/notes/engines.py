"""A scenario's engine without an agent, for the scripts that compute ceilings."""

from __future__ import annotations

import vizdoom

from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.setup import configure
from doom_a3c.settings import catalog
from doom_a3c.settings.games import DoomSpec


def start_engine(name: str, objects: bool = False) -> DoomProcess:
    """Starts a shipped Doom scenario's engine; with `objects` its states include object positions."""
    scenario = catalog.find(name)
    spec = scenario.game
    assert isinstance(spec, DoomSpec)

    def set_up(game: vizdoom.DoomGame) -> None:
        configure(game, spec, scenario.observation)
        game.set_objects_info_enabled(objects)

    return DoomProcess(set_up)
