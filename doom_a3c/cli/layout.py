"""Text and tables laid out for the terminal."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

_MAX_WIDTH = 100  # columns: longer lines are hard to read
_UNLIMITED = 10_000  # columns of a table, which never wraps: other programs read it


def wrap(text: str, width: int | None = None, *, first: str = "", indent: str = "") -> str:
    """Wraps text between words, by default to the terminal's width; `first` starts the first line, `indent` all others.

    Long words stay whole, because people copy commands and paths. rich would break or crop them.
    """
    return textwrap.fill(
        text,
        width or min(_MAX_WIDTH, shutil.get_terminal_size().columns),
        initial_indent=first or indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def fit(text: str, width: int) -> str:
    """Wraps the lines of a text that are too wide, except indented ones: commands to copy, and rows of tables."""
    return "\n".join(line if len(line) <= width or line[0] == " " else wrap(line, width) for line in text.split("\n"))


def measure_width(stream: TextIO) -> int:
    """Returns the width of a terminal; COLUMNS in the environment does not follow its changes."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:  # not a terminal
        return 80


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """Aligns rows below a header; `align` has an 'l' for each column on the left and an 'r' for each on the right."""
    from rich.console import Console  # late: errors are wrapped without it
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name, side in zip(header, align, strict=True):
        table.add_column(name, justify="right" if side == "r" else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(width=_UNLIMITED, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
