"""Action spaces: the one that mixes choices and numbers, the choices in each, and how messages name them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray


class MixedBox(Box):
    """K choices, each a whole number from 0 to below its size, then D numbers in [-1, 1], as one float32 vector."""

    def __init__(self, sizes: tuple[int, ...], numbers: int) -> None:
        self.sizes = sizes
        low = np.concatenate([np.zeros(len(sizes)), -np.ones(numbers)])
        high = np.concatenate([np.array(sizes) - 1, np.ones(numbers)])
        super().__init__(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.float32]:
        """Draws an action uniformly."""
        action = super().sample().astype(np.float32)
        count = len(self.sizes)
        action[:count] = np.minimum(np.floor(self.np_random.random(count) * self.sizes), self.high[:count])
        return action


def read_choice(choice: Any, count: int) -> int:
    """Returns one of `count` choices as a whole number from 0; raises ValueError for others, such as -1, 0.5 and NaN."""
    try:
        index = int(choice)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if not 0 <= index < count or index != choice:
        raise ValueError(f"{choice} is none of 0 to {count - 1}")
    return index


def list_choice_sizes(space: Space[Any]) -> list[int]:
    """Returns the number of values of each choice in an action; numbers of a Box are not choices."""
    match space:
        case Discrete():
            return [int(space.n)]
        case MultiDiscrete():
            return [int(size) for size in space.nvec.ravel()]
        case MultiBinary():
            return [2] * math.prod(space.shape)
        case MixedBox():
            return list(space.sizes)
    return []


def shorten(space: object) -> str:
    """Returns a space, an action or words on one line of at most 200 characters, for a message."""
    return " ".join(str(space).split())[:200]
