"""Starts the engine of a Doom game."""

from __future__ import annotations

import vizdoom

from doom_a3c.envs.doom.engine_process import NO_FILES, DoomProcess
from doom_a3c.envs.doom.match import SKILLED_BOTS, format_bots
from doom_a3c.envs.doom.setup import configure
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.match import parse_match


def start_engine(spec: DoomSpec, observation: Observation, seed: int | None = None) -> DoomProcess:
    """Starts an engine, which is then in its first episode; `seed` determines that episode.

    Raises:
        EngineError: if the engine dies or hangs while starting.
        UserError: for a mistake in the scenario, a missing file or a full disk.
    """
    match = parse_match(spec.match)

    def set_up(game: vizdoom.DoomGame) -> None:
        configure(game, spec, observation)
        if seed is not None:
            game.set_seed(seed)
        if files:
            game.add_game_args(f"+viz_bots_path {SKILLED_BOTS}")

    files = {SKILLED_BOTS: format_bots(match.bot_skill, match.bots)} if match and match.bot_skill is not None else NO_FILES
    return DoomProcess(set_up, files)
