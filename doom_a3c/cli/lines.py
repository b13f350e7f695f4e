"""Lines on standard output, with an optional last line that shows progress and is overwritten.

rich's Live could draw it, but leaves the cursor behind the text, where any other output sticks to it.
"""

from __future__ import annotations

import sys
import time

from doom_a3c.cli.layout import fit, measure_width
from doom_a3c.cli.streams import can_redraw

_SECONDS = 0.2  # between two updates of the progress line


class Lines:
    """Prints lines. On a terminal a progress line may follow until other output takes its place."""

    def __init__(self, quiet: bool) -> None:
        """When `quiet` it prints nothing."""
        self._quiet, self._redraws = quiet, not quiet and can_redraw()
        self._drawn: float | None = None  # time of the progress line on the screen

    def __call__(self, line: str) -> None:
        """Prints a line."""
        self.clear()
        if not self._quiet:
            print(fit(line, measure_width(sys.stdout)) if self._redraws else line, flush=True)

    def show_progress(self, line: str) -> None:
        """Updates the progress line, unless it has just been updated; other output overwrites it."""
        now = time.monotonic()
        if self._redraws and (self._drawn is None or now > self._drawn + _SECONDS):
            print(f"\x1b[K{line[: measure_width(sys.stdout) - 1]}\r", end="", flush=True)  # a full line would wrap
            self._drawn = now

    def clear(self) -> None:
        """Erases the progress line."""
        if self._drawn is not None:
            print("\x1b[K", end="", flush=True)
            self._drawn = None
