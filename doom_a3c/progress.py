"""What a run has done so far: exact counters that all workers add to, and the scores of the newest episodes."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

WINDOW = 100  # episodes in the running mean
MAX_POINTS = 4000  # of the score curve


class Point(NamedTuple):
    """One episode on the score curve."""

    episode: int
    frames: int
    score: float
    mean: float  # of the last 100 episodes, or of all where there are fewer


def shown(score: float | None) -> str:
    """Returns a score as people read it: two decimals where it is small, a dash where there is none."""
    return "-" if score is None else f"{score:.{1 if abs(score) >= 10 else 2}f}"


class Progress:
    """Counters of the whole run, over all workers and restarts. Owns a lock; every method may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.frames = 0  # game tics, skipped ones included: decisions * frame_skip
        self.steps = 0  # decisions
        self.updates = 0  # applied gradients
        self.episodes = 0  # finished
        self.entropy = float("nan")  # of the newest update, nats
        self.lag = 0  # updates since the oldest weights that the newest update was played or computed with
        self.faults: Counter[str] = Counter()
        self.scores: deque[float] = deque(maxlen=WINDOW)
        self.curve: list[Point] = []  # every n-th episode; n doubles whenever there are too many points
        self._stride = 1

    def add_steps(self, steps: int, frames: int, scores: Iterable[float], faults: Iterable[str]) -> None:
        """Counts a rollout's decisions, tics, finished episodes and faults."""
        with self._lock:
            self.steps += steps
            self.frames += frames
            for score in scores:
                self.episodes += 1
                self.scores.append(score)
                if self.episodes % self._stride == 0:
                    mean = sum(self.scores) / len(self.scores)
                    self.curve.append(Point(self.episodes, self.frames, score, mean))
            while len(self.curve) > MAX_POINTS:
                self._stride *= 2
                self.curve = [point for point in self.curve if point.episode % self._stride == 0]
            self.faults.update(faults)

    def add_update(self, entropy: float, lag: int) -> None:
        """Counts an applied update."""
        with self._lock:
            self.updates += 1
            self.entropy, self.lag = entropy, lag

    def newest_scores(self) -> list[float]:
        """Returns the scores of the last 100 episodes, or of all where there are fewer."""
        with self._lock:
            return list(self.scores)

    @property
    def mean_score(self) -> float | None:
        """Mean score of the last 100 episodes, None before there are as many."""
        scores = self.newest_scores()
        return sum(scores) / WINDOW if len(scores) == WINDOW else None

    def record(self) -> dict[str, Any]:
        """Returns everything that a resumed run goes on from, as plain data."""
        with self._lock:
            return {**self._counters(), "curve": [list(point) for point in self.curve], "stride": self._stride}

    def _counters(self) -> dict[str, Any]:
        return {
            "frames": self.frames,
            "steps": self.steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "faults": dict(self.faults),
            "scores": list(self.scores),
        }

    def status(self) -> dict[str, Any]:
        """Returns what `follow` takes: the record without the curve, and what is known of the newest update."""
        with self._lock:
            return {**self._counters(), "entropy": self.entropy, "lag": self.lag}

    def follow(self, status: Mapping[str, Any]) -> None:
        """Shows another progress's status; the curve stays."""
        with self._lock:
            self._count(status)
            self.entropy, self.lag = status["entropy"], status["lag"]

    def _count(self, record: Mapping[str, Any]) -> None:
        self.frames, self.steps = int(record["frames"]), int(record["steps"])
        self.updates, self.episodes = int(record["updates"]), int(record["episodes"])
        self.faults = Counter(record["faults"])
        self.scores = deque(record["scores"], maxlen=WINDOW)

    def restore(self, record: Mapping[str, Any]) -> None:
        """Goes on from a record."""
        with self._lock:
            self._count(record)
            self.curve, self._stride = [Point(*point) for point in record["curve"]], int(record["stride"])
