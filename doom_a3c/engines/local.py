"""An engine with its threads and weights in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from doom_a3c.agent.model import GlobalModel
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.engines.state import State
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.updates import SharedStepSize

if TYPE_CHECKING:
    from doom_a3c.record.metrics.counters import Counters
    from doom_a3c.record.metrics.loggers import Metrics
    from doom_a3c.record.metrics.progress import Progress


def capture_state(model: GlobalModel, progress: Progress) -> State:
    """Returns the state of a run. Rollouts count when played: updates from the newest may still be missing."""

    def read_counters() -> Counters:
        sums = model.reward_stats.now  # read before the counters, so that it never covers more steps than they count
        return progress.counters()._replace(updates=model.updates, halvings=model.halvings, reward_sums=sums)

    return State(*model.snapshot_with(read_counters))


class LocalEngine:
    """An `Engine` of threads that share a model in this process. Owns the threads."""

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
        return self._model.reward_stats.now

    def start(self) -> None:
        self.threads.start()

    def check(self) -> None:
        self.threads.check()

    def stop(self) -> None:
        self.threads.stop()

    def add_fault(self, kind: str) -> None:
        self._progress.add_fault(kind)

    def capture(self) -> State:
        return capture_state(self._model, self._progress)

    def roll_back(self, state: State) -> None:
        """Restores the weights and optimizer slots of an earlier state, but not its counters; halves the learning rate.

        Gradients computed before the roll-back but not yet applied are discarded.
        """
        self._step_size.restart()
        self._model.roll_back(state.variables)

    def describe(self) -> str:
        """Returns '': the run reports the frames per second."""
        return ""
