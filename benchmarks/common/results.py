"""Results files: one JSON line per finished run, so that a campaign repeats none of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class DamagedError(ValueError):
    """A results file has an invalid line."""


def read_results(path: Path) -> list[dict[str, Any]]:
    """Returns the results, oldest first; none if there is no such file.

    Raises:
        DamagedError: at an invalid line, which a kill may have left half written.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
        try:
            found += [json.loads(line)] if line else []
        except ValueError as error:
            raise DamagedError(f"{path}, line {number}, is no result ({error}): fix or delete it") from None
    return found


def append_result(path: Path, result: Mapping[str, Any]) -> None:
    """Appends a result."""
    with path.open("ab") as file:
        file.write(f"{json.dumps(result)}\n".encode())  # one write: whole, or an error
