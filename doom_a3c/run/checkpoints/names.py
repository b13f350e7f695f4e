"""Names of runs: what a run is called, its seed, and the time of its start, as in 'basic-seed7-20261122-155611'."""

from __future__ import annotations

import re
import time

_NAME = re.compile(r"(.+?)-seed\d+-\d{8}-\d{6}")


def make_run_name(called: str, seed: int) -> str:
    """Returns the name of a run that begins now."""
    return f"{called}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"


def is_run_name(name: str) -> bool:
    """Tells whether a run may have been named so by this program."""
    return _NAME.fullmatch(name) is not None


def scenario_in(name: str) -> str:
    """Returns what runs of one kind have in common in their names, whatever their seed and time."""
    parts = _NAME.fullmatch(name)
    return parts[1] if parts else name
