"""Games that need memory: importing this module registers them with Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.spaces import Box
from numpy.typing import NDArray

POSITIONS = [0, 1]  # cosine and sine of the angle; the third number is the velocity


def hide_velocity(**settings: Any) -> gymnasium.Env[Any, Any]:
    """Returns Pendulum-v1 without the pendulum's velocity, as rl-zoo3's PendulumNoVel-v1."""
    env = PendulumEnv(**settings)

    def keep(observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return observation[POSITIONS]

    return gymnasium.wrappers.TransformObservation(env, keep, Box(-1, 1, (len(POSITIONS),), np.float32))


gymnasium.register("PendulumNoVel-v1", hide_velocity, max_episode_steps=200)
