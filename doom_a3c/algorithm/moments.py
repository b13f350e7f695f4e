"""Mean and spread of numbers that come in parts, of several threads, processes or sessions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Moments(NamedTuple):
    """How many numbers there were, their mean, and the sum of their squared distances from it."""

    size: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def merged(self, other: Moments) -> Moments:
        """Returns those of the numbers of both (Chan, Golub & LeVeque 1979, equations 2.1)."""
        size = self.size + other.size
        if not size:
            return self
        apart, share = other.mean - self.mean, other.size / size
        return Moments(size, self.mean + apart * share, self.squares + other.squares + apart * apart * self.size * share)

    @property
    def spread(self) -> float:
        """The standard deviation, 1 where that is 0 or there are no numbers: what numbers may be divided by."""
        return (math.sqrt(self.squares / self.size) if self.size else 0.0) or 1.0


def moments_of(numbers: NDArray[Any]) -> Moments:
    """Returns the moments of finite numbers, of any shape."""
    if not numbers.size:
        return Moments()
    return Moments(numbers.size, float(numbers.mean()), float(np.square(numbers - numbers.mean()).sum()))
