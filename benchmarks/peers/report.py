"""What a run tells benchmarks/peers.py: lines of JSON in a file, each with the time it was written.

Standard library only: runners import it in the peers' environment as in this program's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path


class Report:
    """Owns the file that a run reports to."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def point(self, frames: int, mean: float | None = None, at: float | None = None) -> None:
        """Writes the frames played so far and the mean score of the last 100 episodes, None before there are so many.

        `at` is in seconds since the epoch, by default now. A run that plays and learns in turn writes at one place of
        its cycle, so that the time between two points holds whole cycles.
        """
        self._file.write(json.dumps({"time": at or time.time(), "frames": frames, "mean": mean}) + "\n")
        self._file.flush()


def runner_flags(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser of the flags that every runner takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--points", type=Path, required=True, help="the file to report to")
    parser.add_argument("--games", type=int, required=True, help="games played at once")
    parser.add_argument("--frame-skip", type=int, required=True, help="frames that a step lasts")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="a run ends itself after these at the latest")
    parser.add_argument("--target-score", type=float, required=True, help="a run may end itself at this mean")
    return parser


def play(step: Callable[[], int], options: argparse.Namespace) -> None:
    """Steps games until the time is up, and reports once a second; `step` returns how many games took one."""
    report, steps = Report(options.points), 0
    end = time.monotonic() + 60 * options.minutes
    due = 0.0
    while (now := time.monotonic()) < end:
        if now >= due:
            report.point(steps * options.frame_skip)
            due = now + 1.0
        steps += step()
