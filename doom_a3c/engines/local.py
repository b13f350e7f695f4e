"""An engine whose threads and weights are this process's own, and the state of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from doom_a3c.agent.model import GlobalModel, Snapshot
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.updates import SharedStepSize

if TYPE_CHECKING:
    from doom_a3c.record.metrics.loggers import Metrics
    from doom_a3c.record.metrics.progress import Counters, Progress


class State(NamedTuple):
    """Weights and optimizer slots with the counters of the same moment."""

    variables: Snapshot
    counters: Counters

    def has_weights_of(self, other: State) -> bool:
        """Tells whether two states of one run have the same weights: every update and every roll-back changes them."""
        mine, its = self.counters, other.counters
        return (mine.updates, mine.halvings) == (its.updates, its.halvings)


def capture_state(model: GlobalModel, progress: Progress) -> State:
    """Returns the state of a run. Rollouts are counted once played: the newest may not have been learned from."""

    def counters() -> Counters:
        sums = model.reward_stats.now  # before the steps, which are as many at least
        return progress.counters()._replace(updates=model.updates, halvings=model.halvings, reward_sums=sums)

    return State(*model.snapshot_with(counters))


class LocalEngine:
    """An engine of threads that share a model in this process. Owns the threads."""

    def __init__(
        self,
        threads: ThreadGroup,
        model: GlobalModel,
        progress: Progress,
        step_size: SharedStepSize,
        metrics: Callable[[], Metrics] = lambda: {},
    ) -> None:
        self.threads, self.metrics = threads, metrics
        self._model, self._progress, self._step_size = model, progress, step_size

    @property
    def reward_sums(self) -> RunningMoments:
        """The statistics that rewards are normalized by."""
        return self._model.reward_stats.now

    def start(self) -> None:
        """Starts all threads."""
        self.threads.start()

    def check(self) -> None:
        """Raises the first error that a thread ended with."""
        self.threads.check()

    def stop(self) -> None:
        """Ends all threads; may be called twice."""
        self.threads.stop()

    def add_fault(self, kind: str) -> None:
        """Counts a fault that games of others have met."""
        self._progress.add_fault(kind)

    def capture(self) -> State:
        """Returns the weights, optimizer slots and counters of this moment."""
        return capture_state(self._model, self._progress)

    def roll_back(self, state: State) -> None:
        """Takes over the weights and optimizer slots of an earlier moment, with half the step size; what is counted stays.

        Gradients that are being computed meanwhile are not applied to them.
        """
        self._step_size.restart()
        self._model.roll_back(state.variables)

    def describe(self) -> str:
        """Returns '': frames per second are the run's."""
        return ""
