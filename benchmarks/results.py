"""Files of results: a line of JSON for each finished run, so that a campaign does none of them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def finished(path: Path) -> list[dict[str, Any]]:
    """Returns what has been finished, the oldest first; nothing where there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def add(path: Path, result: Mapping[str, Any]) -> None:
    """Adds what has just been finished."""
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")
