"""The live line of a training run."""

from __future__ import annotations

import sys
import time

from doom_a3c.record.progress import shown
from doom_a3c.run.reporter import Status

SECONDS_BETWEEN_LINES = 10.0  # where stdout is no terminal


class Panel:
    """Shows a status as one live line on a terminal, as a line every ten seconds elsewhere. Owns what is on the line."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._live = quiet, sys.stdout is not None and sys.stdout.isatty()
        self._next, self._width = 0.0, 0

    def show(self, status: Status) -> None:
        """Shows the newest status, if it is time."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (0.5 if self._live else SECONDS_BETWEEN_LINES)
        line = describe(status)
        if self._live:
            print("\r" + line.ljust(self._width), end="", flush=True)
            self._width = len(line)
        else:
            print(line, flush=True)

    def log(self, message: str) -> None:
        """Prints a message on a line of its own."""
        if self._quiet:
            return
        print(("\r" + message.ljust(self._width)) if self._live and self._width else message, flush=True)
        self._width = 0

    def end(self) -> None:
        """Leaves the live line standing."""
        if self._width:
            print(flush=True)
            self._width = 0


def describe(status: Status) -> str:
    """Returns a status as one line."""
    seconds = status.seconds_left
    left = "-" if seconds == float("inf") else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    return (
        f"frames {status.frames:,}/{status.frame_budget:,} | {status.frames_per_second:,.0f} frames/s | "
        f"episodes {status.episodes:,} | mean of 100 {shown(status.mean_score)} | "
        f"best evaluation {shown(status.best_evaluation)} | entropy {status.entropy:.3f} | left {left}"
        + (f" | {status.engine}" if status.engine else "")
        + "".join(f" | {kind} {count}" for kind, count in status.faults.items())
    )
