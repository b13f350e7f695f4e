"""The progress of a run: exact counters shared by all workers, and the scores of the newest episodes."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from doom_a3c.record.metrics.counters import MAX_KINDS, MAX_POINTS, MAX_SCORE, WINDOW, Counters, Point, compute_mean
from doom_a3c.record.metrics.statistics import sample_evenly

NO_SCORE = "score_not_finite"  # the fault of such a score
COLLAPSED = "score_collapsed"  # the fault of a roll-back


class Progress:
    """Counters of the whole run, over all workers and restarts. Owns a lock; every method may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.frames = 0  # of the games, skipped ones included
        self.steps = 0
        self.updates = 0  # applied gradients
        self.episodes = 0  # finished
        self.entropy = float("nan")  # of the newest update, nats
        self.lag = 0  # of the newest update: updates since the oldest weights that its rollouts were played with
        self.faults: Counter[str] = Counter()
        self.scores: deque[float] = deque(maxlen=WINDOW)  # of the newest episodes in the order of their starts
        self.lengths: deque[int] = deque(maxlen=WINDOW)  # of these, in steps
        self.curve: list[Point] = []  # every n-th episode; n doubles whenever there are too many points
        self.counted = 0  # episodes that have entered means, in the order of their starts
        self.scored = 0  # of these, those of this session with a finite score
        self._waiting: Counter[float] = Counter()  # scores of finished episodes that have not
        self._stride = 1

    def add_steps(
        self,
        steps: int,
        frames: int,
        scores: Iterable[float],
        faults: Iterable[str],
        counted: Iterable[float] | None = None,
        lengths: Iterable[int] = (),
    ) -> None:
        """Counts steps with their frames, the scores of finished episodes, and faults by kind.

        `counted` scores enter means and curve, in the order of their starts (see `StartOrder`), with their `lengths`; None
        means all `scores`.
        """
        scores = list(scores)
        with self._lock:
            self.lengths.extend(lengths)
            self.steps += steps
            self.frames += frames
            for score in scores:
                self.episodes += 1
                if not abs(score) <= MAX_SCORE:  # it would spoil every later mean
                    self.faults[NO_SCORE] += 1
                    continue
                self._waiting[score] += 1
            self._add_to_curve(scores if counted is None else counted)
            if len(self.curve) > MAX_POINTS:
                self.curve, self._stride = _thin(self.curve, self._stride)
            for kind in faults:
                self._add_fault(kind)

    def _add_to_curve(self, scores: Iterable[float]) -> None:
        for score in scores:
            self.counted += 1
            if not abs(score) <= MAX_SCORE:
                continue
            if self._waiting[score] > 1:
                self._waiting[score] -= 1
            else:
                self._waiting.pop(score, None)
            self.scores.append(score)
            self.scored += 1
            if self.counted % self._stride == 0:
                self.curve.append(Point(self.counted, self.frames, score, compute_mean(self.scores)))

    def add_fault(self, kind: str) -> None:
        with self._lock:
            self._add_fault(kind)

    def _add_fault(self, kind: str) -> None:
        self.faults[kind if kind in self.faults or len(self.faults) < MAX_KINDS else "other"] += 1

    def add_update(self, entropy: float, lag: int) -> None:
        with self._lock:
            self.updates += 1
            self.entropy, self.lag = entropy, lag

    @property
    def uncounted(self) -> int:
        """Number of finished episodes that are in no mean yet: episodes that began before them are still running."""
        with self._lock:
            return self.episodes - self.counted

    def newest_scores(self) -> list[float]:
        """Returns the scores of the last 100 episodes, or of all if there are fewer."""
        with self._lock:
            return list(self.scores)

    def count_new_scores(self, counted: int) -> int:
        """Returns how many of the last 100 episodes entered the mean after `counted` ones had."""
        with self._lock:
            return min(self.counted - counted, len(self.scores))

    def count_finished(self) -> int:
        """Returns what `scored` will be once all finished episodes have entered means."""
        with self._lock:
            return self.scored + self.episodes - self.counted

    def means(self, count: int) -> Sequence[float]:
        """Returns the mean of 100 episodes at up to `count` points of the curve, evenly spaced up to the newest."""
        return sample_evenly(list(self.full_means()), count)

    def full_means(self) -> Iterator[float]:
        """Yields the means of 100 episodes along the curve."""
        with self._lock:
            curve = list(self.curve)
        return (point.mean for point in curve if point.mean is not None)

    @property
    def mean_score(self) -> float | None:
        """Mean score of the last 100 episodes, None before there are 100."""
        return compute_mean(self.newest_scores())

    @property
    def mean_length(self) -> float | None:
        """Mean steps of the last 100 episodes, None before there are 100."""
        with self._lock:
            return sum(self.lengths) / WINDOW if len(self.lengths) == WINDOW else None

    def counters(self, *, curve: bool = True) -> Counters:
        """Returns everything that a resumed run continues from; with `curve` False the curve is empty.

        The curve ends with the finished episodes that are in no mean yet. Ending and resuming a session stops the games
        that they wait for, so they never enter one: means of those that ended first would favour short episodes.
        """
        with self._lock:
            points, stride = self._list_points() if curve else ([], self._stride)
            return Counters(
                self.frames,
                self.steps,
                self.updates,
                self.episodes,
                dict(self.faults),
                list(self.scores),
                points,
                stride,
                lengths=list(self.lengths),
                counted=self.counted,
            )

    def _list_points(self) -> tuple[list[Point], int]:
        """Returns the curve with the waiting episodes at its end, and its stride."""
        waiting = enumerate(self._waiting.elements(), self.counted + 1)
        return _thin([*self.curve, *(Point(at, self.frames, score, None) for at, score in waiting)], self._stride)

    def restore(self, counters: Counters) -> None:
        """Replaces the counters and the curve with those at the start of a session."""
        with self._lock:
            self._replace_counters(counters)
            self._replace_curve(counters)
            self.counted = counters.episodes  # no running game is left for an episode to wait for

    def follow(self, counters: Counters, entropy: float, lag: int) -> None:
        """Copies another progress's counters and the facts of its newest update; keeps this curve if they have none."""
        with self._lock:
            self._replace_counters(counters)
            if counters.curve:
                self._replace_curve(counters)
            self.entropy, self.lag = entropy, lag

    def _replace_counters(self, counters: Counters) -> None:
        self.frames, self.steps = counters.frames, counters.steps
        self.updates, self.episodes = counters.updates, counters.episodes
        self.faults, self.scores = Counter(counters.faults), deque(counters.scores, maxlen=WINDOW)
        self.lengths, self.counted = deque(counters.lengths, maxlen=WINDOW), counters.counted
        self._waiting.clear()

    def _replace_curve(self, counters: Counters) -> None:
        self.curve, self._stride = list(counters.curve), counters.stride


def _thin(points: Sequence[Point], stride: int) -> tuple[list[Point], int]:
    """Returns the points of every `stride`-th episode, doubling the stride while there are too many, and the stride."""
    while len(kept := [point for point in points if point.episode % stride == 0]) > MAX_POINTS:
        stride *= 2
    return kept, stride
