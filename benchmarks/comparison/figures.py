"""Turns a run's report into its figures, by the same rule for every system.

A run is at the target when the mean score of its last 100 training episodes is; this is checked after each finished
episode, at the time when the game reported it.
"""

from __future__ import annotations

import json
import statistics
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

EPISODES = 100  # in the running mean
WARM_UP = 5.0  # seconds after the first report
WINDOW = 5.0  # seconds over which a rate is measured


class Point(NamedTuple):
    """Frames played up to a time."""

    seconds: float  # since the run's process began
    frames: int


class Mean(NamedTuple):
    """The mean score of the last 100 episodes when an episode ends."""

    seconds: float
    score: float


class Run:
    """The report of a run, which may still be going. Owns the frames, and the mean after each episode."""

    def __init__(self, path: Path, start: float) -> None:
        """`start` is when the run's process began, in seconds since the epoch."""
        self._path, self._start, self._offset = path, start, 0
        self._scores: deque[float] = deque(maxlen=EPISODES)
        self.points: list[Point] = []
        self.means: list[Mean] = []
        self.episodes = 0

    def read(self) -> None:
        """Reads the file's new lines: whole lines only."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines, end, _ = file.read().rpartition(b"\n")
        self._offset += len(lines) + len(end)
        for line in lines.splitlines():
            self._add(json.loads(line))

    def _add(self, line: Mapping[str, Any]) -> None:
        seconds = line["time"] - self._start
        if "frames" in line:
            self.points.append(Point(seconds, line["frames"]))
            return
        self.episodes += 1
        self._scores.append(line["score"])
        if len(self._scores) == EPISODES:
            self.means.append(Mean(seconds, statistics.fmean(self._scores)))

    def reached(self, target: float, limit: float) -> Mean | None:
        """Returns the first mean at the target within `limit` seconds."""
        return next((mean for mean in self.means if mean.score >= target and mean.seconds <= limit), None)

    def frames_at(self, seconds: float) -> int:
        """Returns frames reported up to a time."""
        return next((point.frames for point in reversed(self.points) if point.seconds <= seconds), 0)


def compute_rate(points: list[Point]) -> float | None:
    """Returns the median frames/s over windows between points, after the warm-up; None if no window is complete."""
    warm = [point for point in points if point.seconds >= points[0].seconds + WARM_UP]
    rates, first = [], 0
    for index, point in enumerate(warm):
        if point.seconds - warm[first].seconds >= WINDOW:
            rates.append((point.frames - warm[first].frames) / (point.seconds - warm[first].seconds))
            first = index
    return statistics.median(rates) if rates else None


def summarize_learning(run: Run, target: float, limit: float, reason: str) -> dict[str, Any]:
    """Returns the figures of a run that learns: 'reached', 'missed' (within its limit), or 'failed' for a `reason`."""
    reached = run.reached(target, limit)
    figures: dict[str, Any] = {
        "frames_per_second": compute_rate(run.points),
        "seconds": reached.seconds if reached else None,
        "frames": run.frames_at(reached.seconds if reached else limit),
        "episodes": run.episodes,
        "best_mean": max((mean.score for mean in run.means if mean.seconds <= limit), default=None),
    }
    if reached:
        return {"outcome": "reached", **figures}
    return {"outcome": "failed", "reason": reason, **figures} if reason else {"outcome": "missed", **figures}


def summarize_raw(run: Run, reason: str) -> dict[str, Any]:
    """Returns the figures of a run without learning: 'measured', or 'failed' for a `reason`."""
    measured = compute_rate(run.points)
    if reason or measured is None:
        return {"outcome": "failed", "reason": reason or "too few reports", "frames_per_second": measured}
    return {"outcome": "measured", "frames_per_second": measured}
