"""Starts the engine of a Doom game."""

from __future__ import annotations

from collections.abc import Callable

import vizdoom

from doom_a3c.envs.doom.engine_process import NO_FILES, DoomProcess
from doom_a3c.envs.doom.match import SKILLED_BOTS, Seat, format_bots
from doom_a3c.envs.doom.setup import configure
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.match import parse_match


def start_engine(
    spec: DoomSpec,
    observation: Observation,
    seed: int | None = None,
    seat: Seat | None = None,
    is_abandoned: Callable[[], bool] | None = None,
) -> DoomProcess:
    """Starts an engine, which is then in its first episode; `seed` determines that episode.

    With a `seat`, the engine waits in every frame for those of the other agents in the match; a waiting engine is killed
    once `is_abandoned` returns True.

    Raises:
        EngineError: if the engine dies or hangs while starting.
        UserError: for a mistake in the scenario, a missing file or a full disk.
    """
    match = parse_match(spec.match)

    def set_up(game: vizdoom.DoomGame) -> None:
        configure(game, spec, observation, seat)
        if seed is not None:
            game.set_seed(seed)
        if files:
            game.add_game_args(f"+viz_bots_path {SKILLED_BOTS}")

    files = {SKILLED_BOTS: format_bots(match.bot_skill, match.bots)} if match and match.bot_skill is not None else NO_FILES
    return DoomProcess(set_up, files, is_abandoned)
