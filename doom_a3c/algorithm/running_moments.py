"""Mean and spread of numbers that come in parts, of several threads, processes or sessions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-8  # of the mean: equal numbers seem to differ by less


class RunningMoments(NamedTuple):
    """How many numbers there were, their mean, and the sum of their squared distances from it."""

    size: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def merged(self, other: RunningMoments) -> RunningMoments:
        """Returns those of the numbers of both (Chan, Golub & LeVeque 1979, equations 2.1)."""
        size = self.size + other.size
        if not size:
            return self
        apart, share = other.mean - self.mean, other.size / size
        return RunningMoments(size, self.mean + apart * share, self.m2 + other.m2 + apart * apart * self.size * share)

    @property
    def spread(self) -> float:
        """What the numbers may be divided by: their standard deviation, 1 where they are all equal or there are none."""
        deviation = math.sqrt(self.m2 / self.size) if self.size else 0.0
        return deviation if deviation > _ROUNDING * abs(self.mean) else 1.0


NO_MOMENTS = RunningMoments()  # of nothing


def moments_of(numbers: NDArray[Any]) -> RunningMoments:
    """Returns the moments of finite numbers, of any shape."""
    if not numbers.size:
        return NO_MOMENTS
    return RunningMoments(numbers.size, float(numbers.mean()), float(np.square(numbers - numbers.mean()).sum()))
