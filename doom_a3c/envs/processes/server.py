"""The games of one part of a vector, as they are stepped in a game server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.shared import SharedArrays, write_nested
from doom_a3c.settings.tree import map_nested

SIGN_SECONDS = 1.0  # a call that lasts longer shows signs of life


class GameServer:
    """Some of a vector's games, stepped one after the other. Owns the games; the arrays are everybody's.

    Several servers work at the same time, and while one waits for its engine another runs: threads would add nothing.
    """

    def __init__(self, make_envs: Sequence[Callable[[], gymnasium.Env[Any, Any]]], first: int, wire: Wire) -> None:
        """`first` is the place of the first of these games in the vector."""
        self._wire, self._first = wire, first
        self._last_sign = time.monotonic()
        self._arrays: SharedArrays
        self._envs: list[gymnasium.Env[Any, Any]] = []
        for make in make_envs:
            self._envs.append(make())
            self._show_life()

    def describe(self) -> tuple[Any, Any, dict[str, Any], str | None]:
        """Returns the spaces of observations and actions of one game, the metadata and the mode of pictures."""
        env = self._envs[0]
        return env.observation_space, env.action_space, env.metadata, env.render_mode

    def attach(self, observation_space: Any, action_space: Any, games: int, rows: int) -> None:
        """Takes over the arrays of a vector of those spaces, whose descriptor comes next."""
        descriptor = self._wire.receive_descriptor()
        for env in self._envs:
            if (env.observation_space, env.action_space) != (observation_space, action_space):
                raise ValueError("the games of a vector need equal spaces")
        self._arrays = SharedArrays(observation_space, action_space, games, rows, descriptor)

    def prepare(self, games: int) -> None:
        """Starts what takes long for the first so many games, where they can start it ahead of their first episode."""
        for place, env in enumerate(self._envs[:games], self._first):
            prepare = getattr(env.unwrapped, "prepare", None)
            if prepare is not None:
                prepare()
                self._show_life()
            self._arrays.prepared[place] = True

    def reset(self, seeds: Sequence[int | None], options: Any, chosen: Sequence[bool], row: int) -> dict[int, Any]:
        """Resets the chosen games; returns their infos by place in the vector."""
        self._last_sign = time.monotonic()
        infos = {}
        for place, env in enumerate(self._envs):
            if chosen[place]:
                observation, info = env.reset(seed=seeds[place], options=options)
                write_nested(self._arrays.observations, (row, self._first + place), observation)
                infos[self._first + place] = info
                self._show_life()
        return infos

    def step(self, row: int) -> dict[int, Any]:
        """Steps all games by the actions in the arrays; returns infos by place in the vector, where there are any."""
        arrays, infos = self._arrays, {}
        self._last_sign = time.monotonic()
        for index, env in enumerate(self._envs, self._first):
            action = map_nested(lambda array: array[index], arrays.actions)  # noqa: B023  # called at once
            observation, reward, terminated, truncated, info = env.step(action)
            arrays.rewards[index], arrays.terminated[index], arrays.truncated[index] = reward, terminated, truncated
            if terminated or truncated:
                write_nested(arrays.finals, index, observation)
                final_info = info
                observation, info = env.reset()
                info = {**info, "final_info": final_info}
            self._show_life()
            write_nested(arrays.observations, (row, index), observation)
            if info:
                infos[index] = info
        return infos

    def _show_life(self) -> None:
        if time.monotonic() - self._last_sign > SIGN_SECONDS:
            self._wire.send(("alive", None))
            self._last_sign = time.monotonic()

    def picture(self, final: bool) -> Any:
        """Returns the newest picture of the first game, or of the end of its last episode, as `picture` there does."""
        return self._envs[0].get_wrapper_attr("picture")(final)

    def close(self) -> None:
        """Closes all games."""
        for env in self._envs:
            env.close()
