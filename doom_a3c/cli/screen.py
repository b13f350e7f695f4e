"""The live panel on a terminal of any width."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from doom_a3c.cli.layout import wrap
from doom_a3c.cli.status import draw_sparkline, format_rows, format_time_left

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, which the panel must not wait for


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Never hides the cursor: a killed run could not show it again."""
        return False


class LivePanel:
    """Redraws a panel below all messages. Owns that part of the terminal."""

    seconds = 0.5

    def __init__(self, redirect: bool = False) -> None:
        """With `redirect`, texts that others print appear above the panel."""
        self._console = _Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        # Not stderr, which may go to a file.
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=redirect, redirect_stderr=redirect)
        self._live.start()

    def show(self, status: Status | None, phase: str) -> None:
        """Draws the panel."""
        self._live.update(draw_panel(status, phase, self._console.width), refresh=True)

    def log(self, message: str) -> None:
        """Prints a message above the panel; indented lines, which are commands to copy, do not wrap."""
        for line in message.splitlines():
            wrapped = line if line.startswith(" ") else wrap(line, self._console.width)
            self._console.print(wrapped, soft_wrap=True)

    def close(self) -> None:
        """Leaves the panel on the screen."""
        self._live.stop()


_NAME_WIDTH = 14  # columns


def draw_panel(status: Status | None, phase: str, width: int) -> RenderableType:
    """Lays out the panel, one line per row however narrow the terminal is."""
    lines: list[RenderableType] = []
    if status is not None:
        bar = Table.grid(padding=(0, 1, 0, 0))
        progress = _make_line(f"{status.share:6.1%}  {format_time_left(status)}", "bold")
        bar.add_row(ProgressBar(1.0, status.share, width=max(1, min(width - 21, 60))), progress)
        facts = Table.grid(padding=(0, 2, 0, 0))
        for name, value in format_rows(status):
            text = _make_line(value, "yellow" if name == "faults" else "")
            if name == "mean of 100":
                room = width - _NAME_WIDTH - len(value) - 2
                text.append(f"  {draw_sparkline(status.means[-room:])}" if room > 1 else "", "green")
            facts.add_row(_make_line(name, "dim"), text)
        lines += [bar, facts]
    return Group(*lines, *([_make_line(phase, "cyan")] if phase else ()))


def _make_line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
