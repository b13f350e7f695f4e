"""Turns a vector with one game into a `gymnasium.Env`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from doom_a3c.settings.interface import map_nested


class SingleEnv(gymnasium.Env[Any, Any]):
    """The only game of a vector with same-step autoreset. Owns the vector."""

    def __init__(self, vector: VectorEnv[Any, Any, Any], render_mode: str | None = "rgb_array") -> None:
        self._vector, self.render_mode = vector, render_mode
        self.metadata = {**vector.metadata, "render_modes": ["rgb_array"]}
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        observations, _ = self._vector.reset(seed=None if seed is None else np.array([seed]), options=options)  # type: ignore[arg-type]  # the package's vectors take arrays
        return map_nested(lambda array: array[0], observations), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays a step; raises ValueError for an invalid action."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is no action of {self.action_space}")
        observations, rewards, terminated, truncated, infos = self._vector.step(np.array([action]))
        over = bool(terminated[0] or truncated[0])
        newest = infos["final_obs"] if over else observations
        return map_nested(lambda array: array[0], newest), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Any:
        return self._vector.picture()  # type: ignore[attr-defined]  # a method of this package's vectors

    def close(self) -> None:
        self._vector.close()
