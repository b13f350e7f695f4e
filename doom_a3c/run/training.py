"""The main loop of a session: checks the engine, saves, reports, and decides when to stop.

It runs on the main thread and reads the shared counters several times a second, so that no duty depends on a particular
worker, and an error in a worker ends the run within moments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from doom_a3c.engines.engine import Engine
from doom_a3c.engines.state import State
from doom_a3c.engines.updates import NON_FINITE, DivergedError, find_divergence_hint
from doom_a3c.record.metrics.counters import EvaluationPoint
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.evaluations import Evaluations
from doom_a3c.run.guard import CollapseGuard
from doom_a3c.run.learning_watch import LearningWatch
from doom_a3c.run.reporter import Reporter
from doom_a3c.run.saver import Saver
from doom_a3c.settings.config import Config

TICK_SECONDS = 0.1
PATIENCE_SECONDS, HURRY_SECONDS = 30.0, 5.0  # for an evaluation to end, at the end of a run and after Ctrl-C


class Result(NamedTuple):
    """How a session ended."""

    stopped_by: str  # 'frames', 'episodes', 'minutes', 'target_score', 'until_learned', 'callback' or a signal's name
    seconds: float  # of training, without the final evaluation
    frames_per_second: float  # mean over that time
    best_evaluation: float | None
    confirmed: bool  # measured in games that selected neither weights nor policy; otherwise biased upwards
    evaluations: Sequence[EvaluationPoint]


class StoppingRule:
    """Decides when a session ends. Owns the state of an interrupt."""

    SAVING = "saving; Ctrl-C again ends at once"  # the answer to an interrupt

    def __init__(self, config: Config, progress: Progress) -> None:
        self.config, self._progress = config, progress
        self.interrupted_by: str | None = None
        self.interrupted = threading.Event()
        self._ended_by: str | None = None

    def interrupt(self, name: str) -> None:
        """Asks the session to save and end; safe in a signal handler."""
        self.interrupted_by = name
        self.interrupted.set()

    def end(self, name: str) -> None:
        """Ends the session like a limit named `name`."""
        self._ended_by = name

    def reason(self, seconds: float) -> str | None:
        """Returns the reason to end a session after `seconds`, None to continue."""
        config, mean = self.config, self._progress.mean_score
        if ended_by := self.interrupted_by or self._ended_by:
            return ended_by
        if config.target_score is not None and mean is not None and mean >= config.target_score:
            return "target_score"
        if budget := config.exhausted_budget(self._progress):
            return budget
        return "minutes" if config.minutes is not None and seconds >= 60 * config.minutes else None


class Training:
    """One session of a run, from its start or from a resumed checkpoint to its end. Owns its clock."""

    def __init__(
        self,
        engine: Engine,
        *,
        progress: Progress,
        evaluations: Evaluations,
        saver: Saver,
        reporter: Reporter,
        stopping: StoppingRule,
        guard: CollapseGuard | None = None,
        watch: LearningWatch | None = None,
        on_save: Callable[[State], None] = lambda state: None,
    ) -> None:
        """`on_save` receives the state of each checkpoint saved during training."""
        self._engine, self._progress, self._evaluations = engine, progress, evaluations
        self._saver, self._reporter, self.stopping = saver, reporter, stopping
        self._guard, self._watch, self._on_save = guard, watch, on_save

    def run(self) -> Result:
        """Trains until a limit is reached; saves at the start, at intervals, at the end, and after an error.

        Raises:
            DivergedError: if the network has diverged, or no update was finite.
            SaveError: if the first checkpoint or the last one could not be written.
        """
        start, frames = time.monotonic(), self._progress.frames
        before = self._progress.counters(curve=False)
        try:
            self._reporter.set_phase(
                lambda: "" if self._progress.updates > before.updates else "preparing the first update"
            )
            self._engine.start()
            self._saver.begin(self._engine.capture(), self._evaluations.best)
            self._evaluations.start()
            stopped_by = self._loop(start)
        finally:
            try:
                self._reporter.set_phase(lambda: self.stopping.SAVING if self.stopping.interrupted_by else "saving")
                self._stop()
            finally:
                seconds = time.monotonic() - start
                self._save()
                self._reporter.log_end(seconds)
        self._engine.check()
        if self._progress.updates == before.updates and self._progress.faults[NON_FINITE] > before.faults.get(
            NON_FINITE, 0
        ):
            raise DivergedError(
                f"no update of this session was finite{find_divergence_hint(self._progress, self.stopping.config)}"
            )
        if not self.stopping.interrupted_by:
            self._reporter.set_phase(lambda: "evaluating for the last time")
            self._evaluations.evaluate(self.stopping.interrupted)
            self._save()  # with the final evaluation, which may be the best
            self._confirm_best()
            self._reporter.report(seconds, self._evaluations.best)
        self._saver.check()
        rate = (self._progress.frames - frames) / max(seconds, 1e-9)
        best = self._evaluations.best
        return Result(stopped_by, seconds, rate, best.score, best.confirmed, best.evaluations)

    def _confirm_best(self) -> None:
        """Re-evaluates the best weights and confirms their score in new games, unless interrupted."""
        for phase, settle in (
            ("re-evaluating the best weights", self._evaluations.reevaluate_best),
            ("confirming the best score in new games", self._evaluations.confirm),
        ):
            if not self.stopping.interrupted_by:
                self._reporter.set_phase(partial(str, phase))
                if settle(self.stopping.interrupted):
                    self._save()

    def _stop(self) -> None:
        try:
            self._engine.stop()
        finally:
            self._evaluations.stop(HURRY_SECONDS if self.stopping.interrupted_by else PATIENCE_SECONDS)

    def _loop(self, start: float) -> str:
        while (stopped_by := self.stopping.reason(time.monotonic() - start)) is None:
            time.sleep(TICK_SECONDS)
            self._engine.check()
            self._evaluations.check()
            if self._guard is not None:
                self._guard.check()
            if self._watch is not None:
                self._watch.check(self._evaluations.best.evaluations)
            if self._saver.is_due():
                self._on_save(self._save())
            self._saver.note_progress(self._progress.frames)
            self._reporter.report(time.monotonic() - start, self._evaluations.best)
        return stopped_by

    def _save(self) -> State:
        """Saves the newest weights and counters; returns them."""
        state = self._engine.capture()
        self._saver.save(state, self._evaluations.best)
        return state
