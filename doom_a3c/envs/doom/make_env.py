"""Makes ViZDoom environments; unlike `env`, this module can be imported without loading ViZDoom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from doom_a3c.envs.processes.connection import Wire
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.scenarios import MAX_EPISODE_STEPS

if TYPE_CHECKING:
    from doom_a3c.envs.doom.human_seat import SeatServer


def make_doom(
    game: DoomSpec, observation: Observation, limited: bool, render_mode: str | None = "rgb_array"
) -> gymnasium.Env[Any, Any]:
    """Returns one game of Doom; `limited` ends an episode after `MAX_EPISODE_STEPS` steps, but leaves matches their length.

    Raises:
        UserError: for a mistake in the scenario or its files.
    """
    from doom_a3c.envs.doom.env import DoomEnv  # loads ViZDoom, which only game servers need

    env = DoomEnv(game, observation, render_mode)
    return TimeLimit(env, MAX_EPISODE_STEPS) if limited and not game.match else env


def make_seat(game: DoomSpec, observation: Observation, number: int) -> gymnasium.Env[Any, Any]:
    """Returns one player of a match of several agents; raises as `make_doom` does."""
    from doom_a3c.envs.doom.seat_env import SeatEnv

    return SeatEnv(game, observation, number)


def make_seat_server(
    game: DoomSpec, observation: Observation, number: int, wire: Wire, *, person: bool = False
) -> SeatServer:
    """Returns the server of one player, an agent or a person, of a match; raises as `make_doom` does."""
    from doom_a3c.envs.doom.human_seat import HumanSeat, SeatServer
    from doom_a3c.envs.doom.seat_env import SeatEnv

    kind = HumanSeat if person else SeatEnv
    return SeatServer(kind(game, observation, number), wire)
