"""What text in lines of a terminal's width has in common."""

from __future__ import annotations

import shutil
from typing import Any

_WIDEST = 100  # columns: longer lines are hard to read
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # of textwrap's: people copy commands


def text_width() -> int:
    """Returns the columns that text may take: those of the terminal, or fewer where it is wide."""
    return min(_WIDEST, shutil.get_terminal_size().columns)
