"""Checkpoint records as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from doom_a3c.run.checkpoints.checkpoint import is_whole


def read_plain_record(checkpoint: Path) -> dict[str, Any]:
    """Returns the record in a checkpoint; raises FileNotFoundError, or ValueError if it cannot be read."""
    try:
        with safe_open(checkpoint, "numpy") as file:
            record: dict[str, Any] = json.loads(file.metadata()["record"])
            return record
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{checkpoint.name}: {error}") from None


def check_whole(checkpoint: Path) -> None:
    """Raises ValueError if a checkpoint exists but is not whole."""
    if checkpoint.exists() and not is_whole(checkpoint):
        raise ValueError(f"{checkpoint.name} is damaged")
