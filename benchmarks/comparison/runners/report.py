"""Reports a run to benchmarks.peers: timestamped lines of JSON in a file.

Every process of a run appends to the same file: the learner reports the frames played so far, the games the score of each
episode when it ends. benchmarks.comparison.figures computes the rest from the scores, for all systems alike. Standard
library only: runners import it in the peers' environment and in this program's.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path


class Report:
    """The file that a run reports to. A line is one write, so any number of processes may append."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def frames(self, frames: int) -> None:
        """Reports the frames played so far.

        A program that plays and learns in turn reports at one point of its cycle, so that reports are whole cycles apart.
        """
        self._write("frames", frames)

    def episode(self, score: float) -> None:
        """Reports the score of a training episode that has just ended, in the game's own units."""
        self._write("score", score)

    def _write(self, key: str, value: float) -> None:
        os.write(self._file, f"{json.dumps({'time': time.time(), key: value})}\n".encode())


class FrameCounter:
    """A count of frames that several threads may add to, reported once a second."""

    def __init__(self, report: Report) -> None:
        self._report, self._lock = report, threading.Lock()
        self._frames, self._due = 0, 0.0

    def add(self, frames: int) -> None:
        """Adds the frames of a step."""
        with self._lock:
            self._frames += frames
            if (now := time.monotonic()) >= self._due:
                self._report.frames(self._frames)
                self._due = now + 1.0


def make_runner_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser of the flags shared by all runners."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--report", type=Path, required=True, help="file to report to")
    parser.add_argument("--games", type=int, required=True, help="games played at once")
    parser.add_argument("--frame-skip", type=int, required=True, help="frames per step")
    parser.add_argument("--seed", type=int, required=True, help="random seed")
    return parser


def play(step: Callable[[], int], options: argparse.Namespace) -> None:
    """Steps games until killed; `step` returns the number of games that took one."""
    counter = FrameCounter(Report(options.report))
    while True:
        counter.add(step() * options.frame_skip)
