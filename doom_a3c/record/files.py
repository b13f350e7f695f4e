"""Files that are whole or not there, and folders that can be written to."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from doom_a3c.settings.fields import UserError
from doom_a3c.settings.inputs import check_file, expanded


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, whole or not at all: an old one stays until the new one is complete; a device has no old one."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    part = path.with_suffix(".part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:  # of a full disk it has no name
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def not_ours(path: Path) -> UserError:
    """Returns the error of whoever would overwrite what others have made."""
    return UserError(f"{path} is not of this program, and would be overwritten: name another folder")


def write_json(path: Path, data: Any) -> None:
    """Writes data as JSON, whole or not at all; a number that is not finite, for which JSON has no word, is null there."""
    write_whole(path, f"{json.dumps(_in_words_of_json(data), indent=1, allow_nan=False)}\n".encode())


def _in_words_of_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_words_of_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_words_of_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table as CSV, whole or not at all, in a folder that is made if need be."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.getvalue().encode())


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
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise UserError(f"{flag} {folder}: {why}; name a folder that can be written to") from None
    return folder


def output_file(path: str, flag: str) -> Path:
    """Returns the path of a file that can be written, in a folder that is made if need be.

    Raises:
        UserError: naming the flag, if it cannot be.
    """
    file = expanded(path)
    try:
        kind = file.stat().st_mode
    except FileNotFoundError:
        return output_folder(str(file.parent), flag) / file.name
    except (OSError, ValueError) as error:
        raise UserError(f"{flag} {file}: {getattr(error, 'strerror', error)}; name a file that can be written") from None
    if stat.S_ISDIR(kind) or not os.access(file, os.W_OK):
        raise UserError(f"{flag} {file} is a folder, or may not be written: name another file")
    return file


def check_exists(checkpoint: Path) -> None:
    """Raises UserError where there is no such file, or none that can be read."""
    try:
        checkpoint.stat()
    except FileNotFoundError:
        raise UserError(
            f"there is no checkpoint {checkpoint}; train.py writes models/last.ckpt and models/best.ckpt"
        ) from None
    except (OSError, ValueError):
        pass  # which is told by:
    check_file(checkpoint)
