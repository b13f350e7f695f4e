"""Arrays in shared memory: actions, observations, rewards and ends of a vector of games."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Space, Tuple

from doom_a3c.settings.interface import map_nested

_ALIGNMENT = 64  # bytes: a cache line; TensorFlow uses arrays with this alignment without a copy


class SharedArrays:
    """The arrays of B games in anonymous shared memory, which lasts until the last process that maps it ends."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        games: int,
        rows: int,
        descriptor: int | None = None,
    ) -> None:
        """`descriptor` belongs to another process's arrays with the same spaces, games and rows; None makes new ones.

        Raises:
            ValueError: if values of a space have no fixed size.
        """
        self.plan = observation_space, action_space, games, rows  # arguments for the other processes
        self.descriptor = os.memfd_create("doom_a3c-games") if descriptor is None else descriptor
        size = 0

        def reserve(shape: tuple[int, ...], dtype: Any) -> Any:
            nonlocal size
            start, count = size, int(np.prod(shape))
            size += -(-count * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
            return lambda memory: np.frombuffer(memory, dtype, count, start).reshape(shape)

        plan = {
            "observations": _map_space(observation_space, lambda s: reserve((rows, games, *s.shape), s.dtype)),
            "finals": _map_space(observation_space, lambda s: reserve((games, *s.shape), s.dtype)),
            "actions": _map_space(action_space, lambda s: reserve((games, *s.shape), s.dtype)),
            "rewards": reserve((games,), np.float64),
            "terminated": reserve((games,), np.bool_),
            "truncated": reserve((games,), np.bool_),
            "prepared": reserve((games,), np.bool_),
        }
        os.ftruncate(self.descriptor, size)  # changes nothing if the arrays are another process's
        memory = mmap.mmap(self.descriptor, size)
        arrays = {name: map_nested(lambda view: view(memory), planned) for name, planned in plan.items()}
        self.observations = arrays["observations"]  # [rows, B, ...]
        self.finals = arrays["finals"]  # [B, ...], the last observation of an episode that ended in this step
        self.actions = arrays["actions"]  # [B, ...]
        self.rewards, self.terminated, self.truncated = arrays["rewards"], arrays["terminated"], arrays["truncated"]
        self.prepared = arrays["prepared"]  # [B], whether each game has started its engine

    def close(self) -> None:
        """Closes the descriptor; the arrays remain valid while referenced. May be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _map_space(space: Space[Any], call: Callable[[Any], Any]) -> Any:
    if isinstance(space, Dict):
        return {key: _map_space(part, call) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_map_space(part, call) for part in space.spaces)
    if space.shape is None or space.dtype is None or np.dtype(space.dtype).hasobject:
        raise ValueError(f"values of {space} have no fixed size, so processes cannot share them")
    return call(space)


def write_nested(arrays: Any, index: Any, values: Any) -> None:
    """Writes nested values at `index` of nested arrays; raises ValueError if a value has another shape."""
    if isinstance(arrays, dict):
        for key, array in arrays.items():
            write_nested(array, index, values[key])
    elif isinstance(arrays, tuple):
        for array, value in zip(arrays, values, strict=True):
            write_nested(array, index, value)
    else:
        place = arrays[index]
        if np.shape(values) != np.shape(place):
            raise ValueError(f"a value of shape {np.shape(values)} in a space of shape {np.shape(place)}")
        arrays[index] = values
