"""Names of runs: title, seed and start time, such as 'basic-seed7-20261122-155611'."""

from __future__ import annotations

import re
import time

_NAME = re.compile(r"(.+?)-seed\d+-\d{8}-\d{6}")


def make_run_name(title: str, seed: int) -> str:
    """Returns the name of a run that starts now."""
    return f"{title}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"


def is_run_name(name: str) -> bool:
    """Returns whether a name has the form of a run's name."""
    return _NAME.fullmatch(name) is not None


def find_scenario_name(name: str) -> str:
    """Returns the name of a run without seed and time: its scenario, or the --name of the run."""
    parts = _NAME.fullmatch(name)
    return parts[1] if parts else name
