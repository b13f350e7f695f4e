"""Files of results: a line of JSON for each finished run, so that a campaign does none of them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class DamagedError(ValueError):
    """A file of results has something else in it."""


def read_results(path: Path) -> list[dict[str, Any]]:
    """Returns what has been finished, the oldest first; nothing where there is no such file.

    Raises:
        DamagedError: at a line that is none, which a kill may have left half written.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
        try:
            found += [json.loads(line)] if line else []
        except ValueError as error:
            raise DamagedError(f"{path}, line {number}, is no result ({error}): mend it, or take it out") from None
    return found


def append_result(path: Path, result: Mapping[str, Any]) -> None:
    """Adds what has just been finished."""
    with path.open("ab") as file:
        file.write(f"{json.dumps(result)}\n".encode())  # at once, or with an error
