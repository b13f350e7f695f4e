"""Reports once that a run has reached its scenario's expected score, or that its score has stopped rising."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from doom_a3c.record.metrics.counters import WINDOW, EvaluationPoint, Point
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.settings.config import Config

HELD = 3  # consecutive evaluations, or means of 100 episodes that do not overlap, at the expected score
PATIENCE = 0.25  # share of the budget without a higher mean
CURE = "Ctrl-C saves and ends"


class LearningWatch:
    """Watches the evaluations and the mean score of a session. Remembers which reports it has made.

    It decides by evaluations and counts of episodes and frames, never by the clock.
    """

    def __init__(
        self,
        config: Config,
        expected: float | None,
        progress: Progress,
        earlier: Sequence[EvaluationPoint],
        log: Callable[[str], None],
        end: Callable[[str], None],
    ) -> None:
        """`expected` is the scenario's score to expect, None if unknown; `earlier` evaluations do not count."""
        self._config, self._expected, self._progress, self._log, self._end = config, expected, progress, log, end
        self._begun = earlier[-1].frames if earlier else -1
        self._start = progress.frames, progress.counted
        self._seen: object = None
        self._said_learned = self._said_still = False

    def check(self, evaluations: Sequence[EvaluationPoint]) -> None:
        """Makes due reports, and ends a session with `until_learned` that has learned."""
        seen = self._progress.episodes * 4 // WINDOW, len(evaluations), evaluations[-1:]
        if seen == self._seen:  # the curve is long, and this is called often
            return
        self._seen, curve = seen, list(self._progress.curve)
        held = [one.score for one in evaluations[-HELD:] if one.frames > self._begun]
        if self._expected is not None and len(held) == HELD and min(held) >= self._expected:
            ends = self._config.until_learned
            cure = "the run ends here, and with --no-until-learned after its whole budget" if ends else CURE
            self._say_learned(sum(held) / HELD, f"in {HELD} evaluations; {cure}")
            if ends:
                self._end("until_learned")
        elif self._expected is not None and has_stood(curve, self._expected, self._start[1]):
            ends = self._config.until_learned and self._config.evaluate_every > 0
            then = f"it ends after {HELD} evaluations in a row at that score" if ends else CURE
            self._say_learned(curve[-1].mean, f"over {HELD * WINDOW} training episodes; {then}")
        elif not (self._said_still or self._said_learned):
            self._check_still(curve)

    def _say_learned(self, score: float | None, where: str) -> None:
        if not self._said_learned:
            self._said_learned = True
            self._log(f"learned: {format_score(score)} of {format_score(self._expected)} expected, {where}")

    def _check_still(self, curve: Sequence[Point]) -> None:
        """Reports a mean that a quarter of the budget and 100 new episodes have not raised.

        Frames are counted up to the newest episode of the mean: long episodes may leave it unchanged for most of a session.
        """
        means = [(point.mean, point) for point in curve if point.mean is not None]
        if not means:
            return
        (mean, highest), (_, newest) = max(means, key=itemgetter(0)), means[-1]
        first_frame, first_episode = self._start
        frames = newest.frames - max(highest.frames, first_frame)
        episodes = newest.episode - max(highest.episode, first_episode)
        if frames >= PATIENCE * self._config.frames and episodes >= WINDOW:
            self._said_still = True
            expected = "" if self._expected is None else f" ({format_score(self._expected)} expected)"
            self._log(
                f"no longer rising: the mean of 100 episodes was highest at {highest.frames:,} frames, {format_score(mean)}"
                f"{expected}, a quarter of the budget ago; {CURE}"
            )


def has_stood(curve: Sequence[Point], expected: float, start: int = 0) -> bool:
    """Returns whether all means of the last 300 episodes, all after episode `start`, reached the `expected` score."""
    below = next((point.episode for point in reversed(curve) if point.mean is None or point.mean < expected), 0)
    return bool(curve) and curve[-1].episode - max(below, start) >= HELD * WINDOW
