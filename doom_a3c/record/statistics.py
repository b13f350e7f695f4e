"""What scores say, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000
LEVEL = 0.95


class Difference(NamedTuple):
    """By how much one agent's scores exceed another's, both having played the same seeds."""

    mean: float
    low: float  # bounds of the 95 per cent interval of that mean
    high: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves no doubt of its sign."""
        return self.low > 0 or self.high < 0


def mean_interval(scores: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 per cent bootstrap interval of the mean; that of a single score is the score."""
    low, high = np.percentile(_resampled_means(np.asarray(scores, np.float64)), (50 * (1 - LEVEL), 50 * (1 + LEVEL)))
    return float(low), float(high)


def difference(scores: Sequence[float], others: Sequence[float]) -> Difference:
    """Returns by how much `scores` exceed `others`, pair by pair: chance that a seed brings meets both."""
    differences = np.asarray(scores, np.float64) - np.asarray(others, np.float64)
    return Difference(float(differences.mean()), *mean_interval(differences.tolist()))


def _resampled_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the means of samples that are drawn from values with replacement, always the same ones."""
    random, count = np.random.default_rng(0), len(values)
    at_once = max(1, 100_000 // count)  # samples; all of them would take much memory where the values are many
    sizes = [min(at_once, RESAMPLES - first) for first in range(0, RESAMPLES, at_once)]
    return np.concatenate([values[random.integers(count, size=(size, count))].mean(axis=1) for size in sizes])
