"""Steps the games of one part of a vector, in a game server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.shared import SharedArrays, write_nested
from doom_a3c.settings.interface import map_nested

Description = tuple[Space[Any], Space[Any], dict[str, Any], str | None]  # see `GameServer.describe`
Infos = dict[int, dict[str, Any]]  # by index in the vector
SIGN_SECONDS = 1.0  # a longer call sends signs of life


class GameServer:
    """Some of a vector's games, stepped one after the other. Owns the games; the arrays are shared."""

    def __init__(
        self, make_envs: Sequence[Callable[[], gymnasium.Env[Any, Any]]], first: int, wire: Wire, restarts: bool = True
    ) -> None:
        """`first` is the index of the first of these games in the vector.

        With `restarts`, a step that ends an episode also resets the game; players of a match are reset together instead.
        """
        # One thread suffices: while one server waits for its engine, another runs. Stepping a server's games from several
        # threads made no difference (4 workers x 1 server x 8 games 33,200 frames/s, 2 x 4 x 16 32,500).
        self._wire, self._first, self._restarts = wire, first, restarts
        self._last_sign = time.monotonic()
        self._arrays: SharedArrays
        self._envs: list[gymnasium.Env[Any, Any]] = []
        for make in make_envs:
            self._envs.append(make())
            self._send_sign_of_life()

    def describe(self) -> Description:
        """Returns the observation space and action space of one game, its metadata and its render mode."""
        env = self._envs[0]
        return env.observation_space, env.action_space, env.metadata, env.render_mode

    def attach(self, observation_space: Space[Any], action_space: Space[Any], games: int, rows: int) -> None:
        """Maps the shared arrays of the vector; receives their descriptor. Raises ValueError if a game has other spaces."""
        descriptor = self._wire.receive_descriptor()
        for env in self._envs:
            if (env.observation_space, env.action_space) != (observation_space, action_space):
                raise ValueError("the games of a vector need equal spaces")
        self._arrays = SharedArrays(observation_space, action_space, games, rows, descriptor)

    def meet(self, others: int) -> None:
        """Connects the first game with the `others` of its match; receives a descriptor for each."""
        self._envs[0].get_wrapper_attr("meet")(self._wire.receive_sockets(others))

    def prepare(self, games: int) -> None:
        """Starts the engines of the first `games` games before their first episode, if they have engines."""
        for place, env in enumerate(self._envs[:games], self._first):
            prepare = getattr(env.unwrapped, "prepare", None)
            if prepare is not None:
                prepare()
                self._send_sign_of_life()
            self._arrays.prepared[place] = True

    def reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None, chosen: Sequence[bool], row: int) -> Infos:
        """Resets the chosen games; returns their infos by index in the vector."""
        self._last_sign = time.monotonic()
        infos = {}
        for place, env in enumerate(self._envs):
            if chosen[place]:
                observation, info = env.reset(seed=seeds[place], options=options)
                write_nested(self._arrays.observations, (row, self._first + place), observation)
                infos[self._first + place] = info
                self._send_sign_of_life()
        return infos

    def step(self, row: int) -> Infos:
        """Steps all games with the actions in the arrays; returns the infos that are not empty, by index in the vector."""
        arrays, infos = self._arrays, {}
        self._last_sign = time.monotonic()
        for index, env in enumerate(self._envs, self._first):
            action = map_nested(lambda array: array[index], arrays.actions)  # noqa: B023  # called at once
            observation, reward, terminated, truncated, info = env.step(action)
            arrays.rewards[index], arrays.terminated[index], arrays.truncated[index] = reward, terminated, truncated
            if terminated or truncated:
                write_nested(arrays.finals, index, observation)
                info = {"final_info": info}
                if self._restarts:
                    observation, fresh = env.reset()
                    info |= fresh
            self._send_sign_of_life()
            write_nested(arrays.observations, (row, index), observation)
            if info:
                infos[index] = info
        return infos

    def _send_sign_of_life(self) -> None:
        if time.monotonic() - self._last_sign > SIGN_SECONDS:
            self._wire.send(("alive", None))
            self._last_sign = time.monotonic()

    def picture(self, final: bool) -> NDArray[np.uint8] | None:
        """Returns the newest picture of the first game, or the final one of its last episode; None if there is none."""
        picture: NDArray[np.uint8] | None = self._envs[0].get_wrapper_attr("picture")(final)
        return picture

    def close(self) -> None:
        for env in self._envs:
            env.close()
