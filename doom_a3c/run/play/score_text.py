"""Confidence intervals of scores in words, for the terminal and the page."""

from __future__ import annotations

from doom_a3c.record.metrics.statistics import Interval
from doom_a3c.settings.formatting import format_score

RULE_OF_THREE = 3  # an outcome absent from n games has, at 95%, a probability of at most about 3/n
CAVEAT = "confidence intervals cover chance in the games, not in training: another seed may reach another score"


def describe_certainty(interval: Interval | None, games: int) -> str:
    """Returns the interval of a mean in words, or the bound that holds for equal scores."""
    if interval is not None:
        return f"95% interval {format_score(interval.low)} to {format_score(interval.high)}"
    if games == 1:
        return "one game, no interval"
    return f"the same in all {games} games: at 95%, up to {min(games, RULE_OF_THREE)} in {games} may still differ"
