"""Games that need memory: importing this module registers them with Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

POSITIONS = [0, 1]  # cosine and sine of the angle; the third number is the velocity


def hide_velocity(**settings: Any) -> gymnasium.Env[Any, Any]:
    """Returns Pendulum-v1 without the velocity, like rl-zoo3's PendulumNoVel-v1."""
    env = PendulumEnv(**settings)

    def keep(observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return observation[POSITIONS]

    return gymnasium.wrappers.TransformObservation(env, keep, Box(-1, 1, (len(POSITIONS),), np.float32))


def remember_object(**settings: Any) -> gymnasium.Env[Any, Any]:
    """Returns a MiniGrid T-maze: the object beside the start says where to turn at the end of the hallway.

    It is MiniGrid-MemoryS11-v0 with the agent at the start of the hallway, the two objects at its end in fixed places, a
    view of 3 x 3 one-hot cells, and three actions: two turns and a step. MiniGrid's own swaps the two at random: matching
    them against memory is learned far more slowly than remembering.
    """
    from minigrid.core.world_object import Ball, Key  # late: a package that other games do not need
    from minigrid.envs.memory import MemoryEnv
    from minigrid.wrappers import ImgObsWrapper, OneHotPartialObsWrapper

    class TMaze(MemoryEnv):
        def _gen_grid(self, width: int, height: int) -> None:
            super()._gen_grid(width, height)  # type: ignore[no-untyped-call]
            end, middle = width - 2, height // 2
            self.agent_pos = np.array((1, middle))
            self.grid.set(end, middle - 2, Key("green"))
            self.grid.set(end, middle + 2, Ball("green"))  # type: ignore[no-untyped-call]
            side = -1 if isinstance(self.grid.get(1, middle - 1), Key) else 1
            self.success_pos, self.failure_pos = (end, middle + side), (end, middle - side)

    env = TMaze(size=11, agent_view_size=3, **settings)
    moves = Discrete(3)  # left, right, forward: the other four do nothing here
    walker = gymnasium.wrappers.TransformAction(env, lambda action: action, moves)
    cells = OneHotPartialObsWrapper(walker)  # type: ignore[no-untyped-call]  # codes such as 5 for a key have no order
    return ImgObsWrapper(cells)  # type: ignore[no-untyped-call]


gymnasium.register("PendulumNoVel-v1", hide_velocity, max_episode_steps=200)
gymnasium.register("TMaze-v0", remember_object)
