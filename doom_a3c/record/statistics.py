"""Means of scores, their confidence intervals, and comparisons.

All intervals are Student's t, of the games that one network has played: they say nothing of how another training with the
same settings would end. In ten games the interval holds the true mean in 95 of 100 cases for scores spread like a bell,
in 90 where most are low and a few very high; a difference game by game is told where there is none in 5 of 100. (The
percentile bootstrap, which was used before, told one in 9 to 11.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from doom_a3c.settings.formatting import format_score

LEVEL = 0.95
EQUAL = 1e-9  # of the largest: a smaller spread is rounding
RULE_OF_THREE = 3  # what has happened in none of n games may still, at that level, happen in 3 of n
ONE_NETWORK = "intervals cover chance in the games, not in training: another seed may train to another score"


class Interval(NamedTuple):
    """The 95 per cent confidence interval of a mean."""

    low: float
    high: float


class Difference(NamedTuple):
    """By how much one agent's scores exceed another's, both having played the same seeds."""

    mean: float
    interval: Interval | None  # None as of `mean_interval`
    games: int

    @property
    def real(self) -> bool:
        """Whether its sign is significant at the 95 per cent level."""
        if self.interval is not None:
            return self.interval.low > 0 or self.interval.high < 0
        # The same in every game: the sign test asks how often a fair coin would fall on one side alone.
        return self.mean != 0 and 2 * 0.5**self.games <= 1 - LEVEL


def mean_interval(scores: Sequence[float]) -> Interval | None:
    """Returns the 95 per cent interval of the mean; None for a single score, and for equal ones: they show no spread."""
    values = np.asarray(scores, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # a game may pay what is not finite
        if np.ptp(values) <= EQUAL * np.abs(values).max():
            return None
        return interval_of(float(values.mean()), float(values.std()), len(values))


def interval_of(mean: float, std: float, games: int) -> Interval | None:
    """Returns that interval from a mean, its standard deviation (divided by the number of games), and that number."""
    if games < 2 or std == 0:
        return None
    from scipy import stats  # late: it takes a second, which programs that only train do not need

    half = float(stats.t.ppf((1 + LEVEL) / 2, games - 1)) * std / (games - 1) ** 0.5
    return Interval(mean - half, mean + half)


def difference(scores: Sequence[float], others: Sequence[float]) -> Difference:
    """Returns the mean difference of `scores` and `others`, paired by seed: a lucky seed helps both."""
    with np.errstate(over="ignore", invalid="ignore"):
        differences = np.asarray(scores, np.float64) - np.asarray(others, np.float64)
        return Difference(float(differences.mean()), mean_interval(differences.tolist()), len(differences))


def certainty(interval: Interval | None, games: int) -> str:
    """Returns the uncertainty of a mean in words: its interval, or the bound that equal scores still allow."""
    if interval is not None:
        return f"95% interval {format_score(interval.low)} to {format_score(interval.high)}"
    if games == 1:
        return "one game, no interval"
    return f"the same in all {games} games: at 95%, up to {min(games, RULE_OF_THREE)} in {games} may still differ"
