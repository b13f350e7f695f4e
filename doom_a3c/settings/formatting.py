"""Numbers as text, the same in every output."""

from __future__ import annotations


def format_score(score: float | None) -> str:
    """Returns a score as text: one decimal from 10 on, two below, a dash for None."""
    return "-" if score is None else f"{score:.{1 if abs(score) >= 10 else 2}f}"
