"""Files that are whole or not there."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, whole or not at all: an old one stays until the new one is complete."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)
