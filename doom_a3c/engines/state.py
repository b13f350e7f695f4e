"""The state of a run, as it is saved and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from doom_a3c.agent.model import Snapshot
    from doom_a3c.record.metrics.counters import Counters


class State(NamedTuple):
    """Weights, optimizer slots and counters at the same moment."""

    variables: Snapshot
    counters: Counters

    def has_weights_of(self, other: State) -> bool:
        """Returns whether two states of a run have the same weights: same counts of updates and roll-backs."""
        mine, its = self.counters, other.counters
        return (mine.updates, mine.halvings) == (its.updates, its.halvings)
