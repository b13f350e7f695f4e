"""Reports a run to benchmarks.peers: lines of JSON in a file, each with the time it was written.

Every process of a run appends to the same file: the program that learns tells how many frames have been played, the games
tell the score of each episode when it ends. What follows from the scores is computed by benchmarks.comparison.figures,
for all systems alike. Standard library only: runners import it in the peers' environment as in this program's.
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
    """Appends to the file that a run reports to. A line is one write, so any number of processes may append."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def frames(self, frames: int) -> None:
        """Reports the frames played so far.

        A program that plays and learns in turn reports at one place of its cycle, so that the time between two reports
        holds whole cycles.
        """
        self._write("frames", frames)

    def episode(self, score: float) -> None:
        """Reports the score of a training episode that has just ended, in the game's own units."""
        self._write("score", score)

    def _write(self, key: str, value: float) -> None:
        os.write(self._file, f"{json.dumps({'time': time.time(), key: value})}\n".encode())


class FrameCounter:
    """Counts the frames of games that several threads may step, and reports them once a second."""

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
    """Returns a parser of the flags that every runner takes."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--report", type=Path, required=True, help="the file to report to")
    parser.add_argument("--games", type=int, required=True, help="games played at once")
    parser.add_argument("--frame-skip", type=int, required=True, help="frames that a step lasts")
    parser.add_argument("--seed", type=int, required=True)
    return parser


def play(step: Callable[[], int], options: argparse.Namespace) -> None:
    """Steps games until this process is ended; `step` returns how many games took one."""
    counter = FrameCounter(Report(options.report))
    while True:
        counter.add(step() * options.frame_skip)
