"""Lines on standard output, the last of which may say how far something is."""

from __future__ import annotations

import os
import sys
import time

from doom_a3c.cli.streams import draws

_SECONDS = 0.2  # between two drawings


class Lines:
    """Prints lines. On a terminal one more may say what is under way, until something else takes its place."""

    def __init__(self, quiet: bool) -> None:
        """When `quiet` it prints nothing."""
        self._quiet, self._draws = quiet, not quiet and draws()
        self._drawn: float | None = None  # when, if something is

    def __call__(self, line: str) -> None:
        """Prints a line."""
        self.clear()
        if not self._quiet:
            print(line, flush=True)

    def under_way(self, line: str) -> None:
        """Draws a line, unless one has been drawn just now; what others print goes over it."""
        now = time.monotonic()
        if self._draws and (self._drawn is None or now > self._drawn + _SECONDS):
            print(f"\x1b[K{line[: _columns() - 1]}\r", end="", flush=True)  # a full line would make a second one
            self._drawn = now

    def clear(self) -> None:
        """Takes away what is drawn."""
        if self._drawn is not None:
            print("\x1b[K", end="", flush=True)
            self._drawn = None


def _columns() -> int:
    """Returns the width of the terminal, whatever the environment says, which knows no change of it."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:  # it has none
        return 80
