"""Holding on to what has been learned: where the score collapses, the run goes back to its best weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from doom_a3c.agent.model import State
from doom_a3c.engines.engine import LocalEngine
from doom_a3c.engines.updates import COLLAPSED
from doom_a3c.record.progress import WINDOW, Progress, shown

SECONDS = 2.0  # between two looks at the score
NOISE = 0.5  # standard deviations of single scores that a mean of 100 of them may lie below another by chance


class Guard:
    """Watches the mean score of training. Owns the weights that it was highest with.

    A collapse is counted as a fault, and each one counted halves the step size from then on, in a resumed run too.
    """

    def __init__(
        self, engine: LocalEngine, progress: Progress, share: float, games: int, log: Callable[[str], None]
    ) -> None:
        """A collapse loses that `share` of what the mean had gained over the first one; 0 is never. The run has `games`."""
        self._engine, self._progress, self._share, self._log = engine, progress, share, log
        self._pause = WINDOW + games  # episodes until all in the window were begun with the weights of a roll-back
        self._next, self._from = 0.0, 0
        self._first: float | None = None
        self._best: tuple[float, float, State] | None = None  # mean and standard deviation of the scores, and the state

    def look(self) -> None:
        """Goes back to the best weights if the score has collapsed; may be called at any time."""
        if not self._share or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SECONDS
        scores = self._progress.newest_scores()
        if len(scores) < WINDOW or self._progress.episodes < self._from:
            return
        mean, spread = statistics.fmean(scores), statistics.pstdev(scores)
        if self._first is None:
            self._first = next((point.mean for point in self._progress.curve if point.episode >= WINDOW), mean)
        if self._best is None or mean >= self._best[0]:
            self._best = mean, spread, self._engine.capture()
            return
        best, its_spread, state = self._best
        if best - mean > max(self._share * (best - self._first), NOISE * max(spread, its_spread)):
            self._engine.roll_back(state)
            self._progress.add_fault(COLLAPSED)
            self._from = self._progress.episodes + self._pause
            factor = 2 ** self._progress.faults[COLLAPSED]
            self._log(
                f"the mean score fell from {shown(best)} to {shown(mean)}: back to the weights of "
                f"{state.counters.frames:,} frames, with 1/{factor} of the step size"
            )
