"""Means of scores, their confidence intervals, comparisons, and all of these in words.

All intervals are Student's t over the games of one network and do not cover the variance between training runs. With ten
games they contain the true mean in 95% of cases for normal scores and in 90% for heavily skewed ones; paired comparisons
report a difference between equal agents in 5% of cases (the percentile bootstrap in 9 to 11%).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
EQUAL = 1e-9  # relative to the largest score: a smaller spread is rounding
RULE_OF_THREE = 3  # an outcome absent from n games has, at 95%, a probability of at most about 3/n
CAVEAT = "confidence intervals cover chance in the games, not in training: another seed may reach another score"


class Interval(NamedTuple):
    """The 95 per cent confidence interval of a mean."""

    low: float
    high: float


class Difference(NamedTuple):
    """The mean difference between two agents' scores on the same seeds."""

    mean: float
    interval: Interval | None  # None as for `mean_interval`
    games: int

    @property
    def real(self) -> bool:
        """Whether its sign is significant at the 95 per cent level."""
        if self.interval is not None:
            return self.interval.low > 0 or self.interval.high < 0
        # The same in every game: the sign test.
        return self.mean != 0 and 2 * 0.5**self.games <= 1 - LEVEL


def mean_interval(scores: Sequence[float]) -> Interval | None:
    """Returns the 95% interval of the mean, or None for a single score and for equal scores, which show no spread."""
    values = np.asarray(scores, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # rewards need not be finite
        if np.ptp(values) <= EQUAL * np.abs(values).max():
            return None
        return read_interval(float(values.mean()), float(values.std()), len(values))


def share_interval(share: float, matches: int) -> Interval:
    """Returns the 95% interval of a share of won matches, by Wilson's score; draws, half a win each, make it too wide."""
    from scipy import stats  # late, as below

    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    centre, scale = share + z * z / (2 * matches), 1 + z * z / matches
    half = z * (share * (1 - share) / matches + z * z / (4 * matches * matches)) ** 0.5
    return Interval((centre - half) / scale, (centre + half) / scale)


def read_interval(mean: float, std: float, games: int) -> Interval | None:
    """Returns the 95% interval from a mean, a population standard deviation, and the number of games."""
    if games < 2 or std == 0:
        return None
    from scipy import stats  # late: it takes a second, and training does without

    half = float(stats.t.ppf((1 + LEVEL) / 2, games - 1)) * std / (games - 1) ** 0.5
    return Interval(mean - half, mean + half)


def compare_means(scores: Sequence[float], others: Sequence[float]) -> Difference:
    """Returns the mean difference of `scores` and `others`, paired by seed, as a lucky seed helps both."""
    with np.errstate(over="ignore", invalid="ignore"):
        differences = np.asarray(scores, np.float64) - np.asarray(others, np.float64)
        return Difference(float(differences.mean()), mean_interval(differences.tolist()), len(differences))


def sample_evenly(values: Sequence[float], count: int) -> Sequence[float]:
    """Returns up to `count` of the values, evenly spaced up to the last."""
    step = -(-len(values) // count) or 1
    return values[::-step][::-1]


def format_score(score: float | None) -> str:
    """Returns a score as text: one decimal from 10 on, two below, an exponent from 1e15 on, a dash for None."""
    if score is None:
        return "-"
    return f"{score:.3g}" if abs(score) >= 1e15 else f"{score:.{1 if abs(score) >= 10 else 2}f}"


def describe_certainty(interval: Interval | None, games: int) -> str:
    """Returns the interval of a mean in words, or the bound that holds for equal scores."""
    if interval is not None:
        return f"95% interval {format_score(interval.low)} to {format_score(interval.high)}"
    if games == 1:
        return "one game, no interval"
    return f"the same in all {games} games: at 95%, up to {min(games, RULE_OF_THREE)} in {games} may still differ"
