"""A person's place in a match, and the server of one player whose game differs from the others'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from doom_a3c.envs.doom.seat_env import SeatEnv
from doom_a3c.envs.pixels import Pixels
from doom_a3c.envs.processes.connection import Wire
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.interface import PORT

# What a person can do; an action has a number for each: 1 if it is pressed, or the degrees to turn by.
CONTROLS = (
    *("MOVE_FORWARD", "MOVE_BACKWARD", "MOVE_LEFT", "MOVE_RIGHT", "TURN_LEFT_RIGHT_DELTA"),
    *("ATTACK", "USE", "SPEED", "SELECT_NEXT_WEAPON"),
)
RESOLUTION = "640x480"


class HumanSeat(SeatEnv):
    """A person's player: steps are frames, and actions the states of `CONTROLS`. Its screen is large and in colour."""

    def __init__(self, game: DoomSpec, observation: Observation, number: int) -> None:
        own = replace(game, available_buttons=CONTROLS, buttons="single", frame_skip=1, shaping={})
        super().__init__(own, replace(observation, resolution=RESOLUTION, color=True, crop=(0, 0, 0, 0)), number)

    def _press(self, action: Any) -> Sequence[float]:
        return [float(state) for state in action]


class SeatServer:
    """A player of a match, in its own process. Owns its environment."""

    def __init__(self, env: SeatEnv, wire: Wire) -> None:
        self._env, self._wire = env, wire

    def meet(self, others: int) -> None:
        """Connects the player with the `others`; receives a descriptor for each."""
        self._env.meet(self._wire.receive_sockets(others))

    def begin(self, seed: int, port: int) -> tuple[Any, Pixels]:
        """Begins a match; returns the observation and the screen."""
        observation, _ = self._env.reset(seed=seed, options={PORT: port})
        return observation, self._env.render()

    def step(self, action: Any) -> tuple[Any, float, bool, Pixels]:
        """Plays a step; returns the observation, the reward, whether the match has ended, and the screen."""
        observation, reward, _, ended, _ = self._env.step(action)
        return observation, reward, ended, self._env.render()

    def close(self) -> None:
        self._env.close()
