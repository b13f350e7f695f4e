"""Vectors of games in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from doom_a3c.envs.processes.seeds import list_seeds
from doom_a3c.envs.processes.supervisor import MakeEnv
from doom_a3c.envs.processes.vectors import Picture


class LocalVectorEnv(SyncVectorEnv):
    """Games in this process, stepped one after the other in the calling thread."""

    def __init__(self, make_envs: Sequence[MakeEnv]) -> None:
        super().__init__(list(make_envs), autoreset_mode=AutoresetMode.SAME_STEP)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games; `seed` has one per game, or is an int: game i then gets `seed + i`."""
        seeds: Any = list_seeds(seed, self.num_envs)
        return super().reset(seed=seeds, options=options)

    def picture(self, final: bool = False) -> Picture | None:
        """Returns the first game's newest picture, [height, width, 3], or its last episode's final one; None if none."""
        picture: Picture | None = self.envs[0].get_wrapper_attr("picture")(final)
        return picture

    def release(self) -> None:
        """Does nothing: these games run in their caller's thread."""
