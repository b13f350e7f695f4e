"""The results of matches: an agent's frags beside those of its rivals in the same matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from doom_a3c.record.metrics.statistics import format_score


class Standing(NamedTuple):
    """Means over matches."""

    frags: float  # of the agent
    rivals_mean: float  # frags of the average rival
    best_rival: float  # frags of each match's best rival
    rank: float  # 1 for the most frags; equal frags share the better rank
    players: int  # including the agent
    wins: float  # share of the matches in which no rival has as many frags

    def describe(self) -> str:
        """Returns the standing in a line."""
        rivals, best = format_score(self.rivals_mean), format_score(self.best_rival)
        share = f" ({self.frags / self.best_rival:.2f} of it)" if self.best_rival > 0 else ""
        return (
            f"frags {format_score(self.frags)}, the average rival {rivals}, the best rival {best}{share}; "
            f"rank {self.rank:.1f} of {self.players}, {100 * self.wins:.0f}% of the matches won"
        )


def find_standing(scores: Sequence[float], rivals: Sequence[Sequence[float]]) -> Standing | None:
    """Returns the standing of an agent with these scores against the `rivals` of each match; None without any."""
    matches = [(score, np.asarray(frags)) for score, frags in zip(scores, rivals, strict=True) if len(frags)]
    if not matches:
        return None
    means = np.mean(
        [(own, frags.mean(), frags.max(), 1 + (frags > own).sum(), own > frags.max()) for own, frags in matches], axis=0
    )
    frags, rivals_mean, best, rank, wins = map(float, means)
    return Standing(frags, rivals_mean, best, rank, 1 + max(len(frags) for _, frags in matches), wins)
