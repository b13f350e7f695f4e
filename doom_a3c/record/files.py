"""Files that are whole or not there, and folders that can be written to."""

from __future__ import annotations

import os
from pathlib import Path

from doom_a3c.settings.fields import UserError
from doom_a3c.settings.inputs import expanded


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, whole or not at all: an old one stays until the new one is complete."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


def output_folder(path: str, flag: str) -> Path:
    """Returns a folder that exists and can be written to, making it if need be.

    Raises:
        UserError: naming the flag, if it cannot be.
    """
    folder = expanded(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{flag} {folder}: {error.strerror}; name a folder that can be written to") from None
    return folder


def check_exists(checkpoint: Path) -> None:
    """Raises UserError where there is no such file."""
    if not checkpoint.is_file():
        raise UserError(f"there is no checkpoint {checkpoint}; train.py writes models/last.ckpt and models/best.ckpt")
