"""The live panel on a terminal of any size."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, ConsoleRenderable, Group, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from doom_a3c.cli.layout import fit
from doom_a3c.cli.status import draw_sparkline, format_rows, format_time_left
from doom_a3c.cli.streams import ERASE_BELOW

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, which the panel must not wait for


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Never hides the cursor: a killed run could not show it again."""
        return False


class _Live(Live):
    """Keeps the cursor at the start of the panel, and erases from there: a new width may change how many rows it takes.

    Many terminals wrap lines that have become too long for them, and the cursor moves along with its line. A panel that was
    drawn for the old width is too wide, so it is written without wrapping.
    """

    parked = True  # else the cursor stays below the panel

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Returns the texts of an update for rich: the messages, then the panel."""
        _, *messages, panel = super().process_renderables(renderables)
        park: list[ConsoleRenderable] = [_Park(self._live_render)] if self.parked else []
        return [_make_code(ERASE_BELOW), *messages, _make_code("\x1b[?7l"), panel, _make_code("\x1b[?7h"), *park]


class _Park:
    """Moves the cursor to the start of a panel that has just been drawn."""

    def __init__(self, panel: LiveRender) -> None:
        self._panel = panel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._panel.last_render_height
        yield _make_code(f"\r\x1b[{rows - 1}A" if rows > 1 else "\r")


def _make_code(sequence: str) -> Control:
    """Returns a control sequence that rich has no name for."""
    control = Control()
    control.segment = Segment(sequence, None, [(ControlType.BELL,)])  # the kind matters only on old Windows
    return control


class LivePanel:
    """Redraws a panel below all messages. Owns that part of the terminal."""

    seconds = 0.5

    def __init__(self, redirect: bool = False) -> None:
        """With `redirect`, texts that others print appear above the panel."""
        # COLUMNS and LINES, which some environments export, do not follow the terminal.
        environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = _Console(file=sys.stdout, highlight=False, markup=False, emoji=False, _environ=environ)
        # Not stderr, which may go to a file.
        self._live = _Live(console=self._console, auto_refresh=False, redirect_stdout=redirect, redirect_stderr=redirect)
        self._live.start()
        self._status: Status | None = None

    def show(self, status: Status | None, phase: str) -> None:
        """Draws the panel."""
        self._status = status
        note = phase or ("Ctrl-C saves and ends" if status else "")
        width, height = self._console.size
        self._live.update(draw_panel(status, note, width, max(1, height - 1)), refresh=True)  # below the newest message

    def log(self, message: str) -> None:
        """Prints a message above the panel; indented lines, which are commands to copy, do not wrap."""
        self._console.print(fit(message, self._console.width), soft_wrap=True)

    def close(self) -> None:
        """Leaves the whole panel on the screen, without a time left."""
        status = self._status and self._status._replace(seconds_left=None)
        self._live.update(draw_panel(status, "", self._console.width))
        self._live.parked = False
        self._live.stop()


_NAME_WIDTH = 14  # columns
_BAR_WIDTH = 40  # columns: a terminal that becomes narrower than a line may wrap it


def draw_panel(status: Status | None, note: str, width: int, height: int | None = None) -> RenderableType:
    """Lays out the panel, one line per row however narrow the terminal is, in at most `height` lines."""
    lines: list[RenderableType] = []
    if status is not None:
        note = "" if height == 1 else note
        bar = Table.grid(padding=(0, 1, 0, 0))
        progress = _make_line(f"{status.share:6.1%}  {format_time_left(status)}", "bold")
        bar.add_row(ProgressBar(1.0, status.share, width=max(1, min(width - 21, _BAR_WIDTH))), progress)
        facts = Table.grid(padding=(0, 2, 0, 0))
        for name, value in format_rows(status):
            text = _make_line(value, "yellow" if name == "faults" else "")
            if name == "newest gif":
                text = _make_path(status.gif, width - _NAME_WIDTH)
            if name == "mean of 100":
                room = width - _NAME_WIDTH - len(value) - 2
                text.append(f"  {draw_sparkline(status.means[-room:])}" if room > 1 else "", "green")
            facts.add_row(_make_line(name, "dim"), text)
        top = Group(bar, facts)
        lines.append(top if height is None else _FirstLines(top, height - (1 if note else 0)))
    return Group(*lines, *([_make_line(note, "cyan")] if note else ()))


class _FirstLines:
    """As many lines of a part of the panel as there is room for."""

    def __init__(self, part: RenderableType, count: int) -> None:
        self._part, self._count = part, count

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._part, options, pad=False)[: self._count]:
            yield from line
            yield Segment.line()


def _make_path(path: Path | None, room: int) -> Text:
    """Returns a path that fits, or its last part, over several lines if the terminal is narrower than that."""
    text = str(path or "")
    return Text(text if len(text) <= room else Path(text).name, overflow="fold")


def _make_line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
