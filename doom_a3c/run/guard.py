"""Rolls a run back to its best weights if its score collapses."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from doom_a3c.agent.model import MAX_HALVINGS
from doom_a3c.engines.local import LocalEngine
from doom_a3c.engines.state import State
from doom_a3c.record.metrics.counters import WINDOW
from doom_a3c.record.metrics.progress import COLLAPSED, Progress
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.settings.config import Config

SECONDS = 2.0  # shortest time between two marks
NOISE = 0.4  # standard deviations by which a mean of 100 scores may fall by chance: four standard errors
PAIRS = 2  # consecutive worse pairs of windows that count as a collapse while the run's gain is within the noise


class _Mark(NamedTuple):
    """A state, and the counts at which all of the newest scores are from episodes that began after it."""

    state: State
    steps: int
    scores: int

    def is_passed_by(self, progress: Progress) -> bool:
        return progress.steps >= self.steps and progress.scored >= self.scores


class _Window(NamedTuple):
    """The mean score of 100 episodes, and the standard deviation of their scores."""

    mean: float
    spread: float


class _Best(NamedTuple):
    """Weights, and the lower of the mean scores before and after them, which excludes luck and later improvement."""

    window: _Window
    state: State


class CollapseGuard:
    """Watches the mean score of training. Owns the weights of the highest mean.

    Scores are compared in windows of 100 episodes, in the order of their starts: games that begin together end their short
    episodes first, and their long ones in waves. All episodes of a window, but for some in rollouts under way, began after
    the end of the window before. The weights between two windows are rated by the worse window, those at the session's
    start by the first one. A collapse takes two worse windows, and one more if the run has gained nothing yet: many agents
    score below random play before they improve. Each collapse is counted as a fault and halves the learning rate from then
    on, even in a resumed run. The best weights are the best of this session.
    """

    def __init__(
        self,
        engine: LocalEngine,
        progress: Progress,
        config: Config,
        log: Callable[[str], None],
        save: Callable[[], None],
    ) -> None:
        """`save` writes a checkpoint of the current state."""
        self._engine, self._progress, self._config, self._log, self._save = engine, progress, config, log, save
        self._next = 0.0
        self._first = math.nan  # the mean of the run's first 100 episodes
        self._mark: _Mark | None = None  # the end of the last window
        self._before: _Window | None = None
        self._best: _Best | None = None
        self._worse_pairs = 0  # consecutive

    def check(self) -> None:
        """Rolls back to the best weights if the score has collapsed; may be called at any time."""
        if not self._config.rollback_drop:
            return
        if self._mark is None:
            self._mark = self._mark_now(0, 0)
        if time.monotonic() < self._next or not self._mark.is_passed_by(self._progress):
            return
        self._next = time.monotonic() + SECONDS
        scores = self._progress.newest_scores()
        window = _Window(statistics.fmean(scores), statistics.pstdev(scores))
        if self._best is None:
            self._best = _Best(window, self._mark.state)
            self._first = next(self._progress.full_means(), window.mean)
        judged = self._judge(self._best, self._before, window, self._mark.state) if self._before else window
        self._before, self._mark = judged, self._mark_now(self._config.steps_in_flight, self._config.env_count)

    def _mark_now(self, steps: int, episodes: int) -> _Mark:
        """Marks the current state; scores count after `steps` more steps and `episodes` more than the finished episodes."""
        state = self._engine.capture()
        return _Mark(state, state.counters.steps + steps, self._progress.count_finished() + episodes + WINDOW)

    def _judge(self, best: _Best, before: _Window, after: _Window, between: State) -> _Window | None:
        """Judges two windows and the state between; returns the window to compare with next, None after a collapse."""
        worse, better = sorted((before, after))
        if worse.mean >= best.window.mean:
            self._best = _Best(worse, between)
            return after
        lost, gain = best.window.mean - better.mean, best.window.mean - self._first
        noise = NOISE * max(best.window.spread, better.spread)
        fallen = lost > noise and lost >= self._config.rollback_drop * gain
        self._worse_pairs = self._worse_pairs + 1 if fallen else 0
        if self._worse_pairs < (1 if gain > noise else PAIRS):
            return after
        self._worse_pairs = 0
        if between.counters.halvings < MAX_HALVINGS:
            self._engine.roll_back(best.state)
            self._progress.add_fault(COLLAPSED)
            self._save()  # before the message: a run killed after it resumes from here
            fall = f"from {format_score(best.window.mean)} to {format_score(better.mean)}"
            self._log(
                f"the mean score fell {fall}: rolled back to the weights of {best.state.counters.frames:,} frames, "
                "with half the learning rate"
            )
        return None
