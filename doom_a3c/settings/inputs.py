"""Files named by users: checks and reading."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from doom_a3c.settings.errors import UserError

MAX_TEXT_BYTES = 256 * 1024  # a hundred times the longest scenario file
_MARKS = {
    codecs.BOM_UTF8: "begins with a byte order mark",
    codecs.BOM_UTF16_LE: "is UTF-16",
    codecs.BOM_UTF16_BE: "is UTF-16",
}


def list_data_folders(checkout: str, installed: str) -> tuple[Path, Path]:
    """Returns the places of the project's own files: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    return package.parent / checkout, package / installed


def expand(path: str) -> Path:
    """Returns the path with ~ expanded; raises UserError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"{path}: {str(error).rstrip('.')}") from None


def exists(path: Path) -> bool:
    """Returns whether anything has that name, even a folder or a dangling link; False for a name that is too long."""
    return os.path.lexists(path)


def find_beside(path: Path, name: str) -> Path | None:
    """Returns the path of a file beside another one, or beside the target of that one if it is a link; None without one."""
    return next(filter(exists, (path.parent / name, path.resolve().parent / name)), None)


def check_file(path: Path) -> None:
    """Raises UserError, with the reason, unless the path is a readable file."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        link = f" is a link to {os.readlink(path)}, which" if path.is_symlink() else ""
        raise UserError(f"{path}{link} does not exist") from None
    except OSError as error:  # a circle of links, a name too long, a folder without permission
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # a null character
        raise UserError(f"{str(path)!r} is not a file name: {error}") from None
    if stat.S_ISDIR(kind):
        raise UserError(f"{path} is a folder, and not a file")
    if not stat.S_ISREG(kind):  # reading from a pipe or a device may block, or never end
        raise UserError(f"{path} is a pipe or a device, and not a file")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read: its permissions do not allow it")


def read_text(path: Path) -> bytes:
    """Returns the bytes of a text file in an encoding that extends ASCII.

    Raises:
        UserError: if it cannot be read, is larger than 256 KiB, has a byte order mark, or is not text.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    for mark, problem in _MARKS.items():
        if data.startswith(mark):
            raise UserError(f"{path} {problem}: save it as UTF-8 without a byte order mark")
    if b"\0" in data:
        raise UserError(f"{path} is not a text file")
    if len(data) > MAX_TEXT_BYTES:
        raise UserError(f"{path} is larger than {MAX_TEXT_BYTES // 1024} KiB, too large for a file of settings")
    return data
