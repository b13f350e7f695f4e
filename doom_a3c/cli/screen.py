"""A panel on a terminal, of any width."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from doom_a3c.cli.status import rows, sparkline, time_left
from doom_a3c.cli.wrapping import WHOLE_WORDS

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, and a panel is there before


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Never hides it: a run that is killed could not show it again."""
        return False


class Screen:
    """Draws a panel below all messages, in place of the one before. Owns what is drawn there."""

    seconds = 0.5

    def __init__(self) -> None:
        self._console = _Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        # What others print to stderr is theirs: it may go to a file.
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def show(self, status: Status | None, phase: str) -> None:
        """Draws the panel."""
        self._live.update(panel(status, phase, self._console.width), refresh=True)

    def log(self, message: str) -> None:
        """Prints a message above the panel; lines break between words, but for commands, which people copy."""
        for line in message.splitlines():
            broken = [line] if line.startswith(" ") else textwrap.wrap(line, self._console.width, **WHOLE_WORDS) or [""]
            self._console.print("\n".join(broken), soft_wrap=True)

    def close(self) -> None:
        """Leaves the panel standing."""
        self._live.stop()


_NAMES = 14  # columns that the names of the rows take


def panel(status: Status | None, phase: str, width: int) -> RenderableType:
    """Returns what is drawn: each row takes one line, however narrow that is."""
    lines: list[RenderableType] = []
    if status is not None:
        words = _line(f"{status.share:6.1%}  {time_left(status)}", "bold")
        bar = Table.grid(padding=(0, 1, 0, 0))
        bar.add_row(ProgressBar(1.0, status.share, width=max(1, min(width - 21, 60))), words)
        facts = Table.grid(padding=(0, 2, 0, 0))
        for name, value in rows(status):
            text = _line(value, "yellow" if name == "faults" else "")
            if name == "mean of 100":
                room = width - _NAMES - len(value) - 2
                text.append(f"  {sparkline(status.means[-room:])}" if room > 1 else "", "green")
            facts.add_row(_line(name, "dim"), text)
        lines += [bar, facts]
    return Group(*lines, *([_line(phase, "cyan")] if phase else ()))


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
