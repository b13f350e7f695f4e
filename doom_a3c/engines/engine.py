"""The contract between a run and its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from doom_a3c.algorithm.running_moments import RunningMoments
    from doom_a3c.engines.state import State
    from doom_a3c.record.metrics.loggers import Metrics


class Engine(Protocol):
    """Plays and learns until it is stopped, and counts in the run's progress."""

    @property
    def reward_sums(self) -> RunningMoments:
        """The moments that normalize the rewards."""

    def start(self) -> None:
        """Starts playing and learning."""

    def check(self) -> None:
        """Raises the error that ended the engine, if any."""

    def capture(self) -> State:
        """Returns the current weights, optimizer slots and counters."""

    def stop(self) -> None:
        """Ends all threads and processes; may be called twice."""

    def metrics(self) -> Metrics:
        """Returns the engine's own metrics."""

    def describe(self) -> str:
        """Returns the engine's own status for the terminal, '' if it has none."""

    def add_fault(self, kind: str) -> None:
        """Counts a fault outside the engine, such as in an evaluation game, with the run's counters."""
