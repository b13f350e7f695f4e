"""Mean and standard deviation of numbers that arrive in parts, from several threads, processes or sessions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-8  # relative to the mean: a smaller deviation is rounding error


class RunningMoments(NamedTuple):
    """Count, mean and summed squared deviations of some numbers."""

    size: int = 0
    mean: float = 0.0
    m2: float = 0.0  # sum of squared deviations from the mean

    def merge(self, other: RunningMoments) -> RunningMoments:
        """Returns the moments of both sets of numbers together (Chan, Golub & LeVeque 1979, equations 2.1)."""
        size = self.size + other.size
        if not size:
            return self
        apart, share = other.mean - self.mean, other.size / size
        return RunningMoments(size, self.mean + apart * share, self.m2 + other.m2 + apart * apart * self.size * share)

    @property
    def spread(self) -> float:
        """The standard deviation, or 1 if all numbers are equal or there are none: safe to divide by."""
        deviation = math.sqrt(self.m2 / self.size) if self.size else 0.0
        return deviation if deviation > _ROUNDING * abs(self.mean) else 1.0


NO_MOMENTS = RunningMoments()  # of no numbers


def compute_moments(numbers: NDArray[Any]) -> RunningMoments:
    """Returns the moments of an array of finite numbers, of any shape."""
    if not numbers.size:
        return NO_MOMENTS
    return RunningMoments(numbers.size, float(numbers.mean()), float(np.square(numbers - numbers.mean()).sum()))
