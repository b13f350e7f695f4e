"""The contract between a run and its engine."""

from __future__ import annotations

from typing import Protocol

from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.engines.local import State
from doom_a3c.record.metrics.loggers import Metrics


class Engine(Protocol):
    """Plays and learns, adding to a run's progress, until it is stopped."""

    @property
    def reward_sums(self) -> RunningMoments:
        """The statistics that rewards are normalized by."""

    def start(self) -> None:
        """Starts to play."""

    def check(self) -> None:
        """Raises the error that has ended it, if one has."""

    def capture(self) -> State:
        """Returns the weights, optimizer slots and counters of this moment."""

    def stop(self) -> None:
        """Ends all threads and processes; may be called twice."""

    def metrics(self) -> Metrics:
        """Returns what there is to log of the engine itself."""

    def describe(self) -> str:
        """Returns what there is to say of the engine itself, '' where there is nothing."""

    def add_fault(self, kind: str) -> None:
        """Counts a fault that games of others have met, where the run's counters are."""
