"""Atomic writes, and checks of output folders and files."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import itertools
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.inputs import check_file, expand

MAX_NAME = 60  # characters of a name that are kept in another one: file systems allow 255 bytes


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file atomically: an old one stays until the new one is complete. A device is written to directly."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    part = path.with_name(f".{path.name[:MAX_NAME]}.part")  # a user's own file may have any name that is not hidden
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:  # on a full disk the error lacks the path
        with contextlib.suppress(OSError):
            part.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


class Attempts:
    """Writes outputs one by one: on a full disk, the small ones may still fit. Owns the first error."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    @contextlib.contextmanager
    def make(self) -> Iterator[None]:
        """Keeps an OSError of the block for `check`."""
        try:
            yield
        except OSError as error:
            self.keep(error)

    def keep(self, error: OSError) -> None:
        """Keeps an error for `check`, unless there is one already."""
        self.error = self.error or error

    def check(self) -> None:
        """Raises the first error, if there is one."""
        if self.error is not None:
            raise self.error


def write_json(path: Path, data: object) -> None:
    """Writes data as JSON atomically; numbers that are not finite become null."""
    write_whole(path, f"{json.dumps(_replace_non_finite(data), indent=1, allow_nan=False)}\n".encode())


def _replace_non_finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a table as CSV atomically and creates its folder if necessary."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.getvalue().encode())


def format_size(size: float) -> str:
    """Returns a number of bytes in words, such as '12 MB', or '230 kB' below one megabyte."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def output_folder(path: str, flag: str) -> Path:
    """Returns a writable folder, created if necessary.

    Raises:
        UserError: naming the flag, if there cannot be one.
    """
    require(bool(path.strip()), f"{flag}: it is empty; name a folder")
    folder = expand(path)
    if why := _make_writable(folder):
        raise UserError(f"{flag} {folder}: {why}; name a folder that can be written to")
    return folder


def _make_writable(folder: Path) -> str:
    """Creates a folder if necessary; returns why nothing can be written to it, '' if something can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
    return ""


@contextlib.contextmanager
def claim_empty_folder(path: str, flag: str) -> Iterator[Path]:
    """Yields the named folder if it is empty, or else the first of its subfolders 2, 3, ... that is.

    No earlier output is touched, and no other call gets the same folder while the block runs.

    Raises:
        UserError: naming the flag, if there can be no such folder.
    """
    root = output_folder(path, flag)
    for folder in itertools.chain([root], (root / str(number) for number in itertools.count(2))):
        with contextlib.suppress(FileExistsError):  # a file
            folder.mkdir(exist_ok=True)
        with _claim(folder) as is_free:
            if is_free:
                yield folder
                return


def explain_folder(path: str, folder: Path) -> str:
    """Returns why output goes to the claimed `folder` and not to the named one, '' if it goes there."""
    return "" if folder == expand(path) else f"{path} is not empty: writing to {folder}"


@contextlib.contextmanager
def _claim(folder: Path) -> Iterator[bool]:
    """Yields whether a folder is empty and no other call has claimed it, and claims it inside the block."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # it is a file, or unreadable
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        claimed = True
    except BlockingIOError:
        claimed = False
    except OSError:  # a file system without locks
        claimed = True
    try:
        yield claimed and not os.listdir(descriptor)
    finally:
        os.close(descriptor)


def output_file(path: str, flag: str) -> Path:
    """Returns the path of a writable file, in a folder created if necessary.

    Raises:
        UserError: naming the flag, if it cannot be written.
    """
    file = expand(path)
    try:
        kind = file.stat().st_mode
    except FileNotFoundError:
        if why := _make_writable(file.parent):
            raise UserError(f"{flag} {file}: {file.parent}: {why}; name a file that can be written") from None
        return file
    except (OSError, ValueError) as error:
        raise UserError(f"{flag} {file}: {getattr(error, 'strerror', error)}; name a file that can be written") from None
    if stat.S_ISDIR(kind) or not os.access(file, os.W_OK):
        raise UserError(f"{flag} {file} is a folder or a file without write permission: name another file")
    return file


def check_exists(checkpoint: Path) -> None:
    """Raises UserError if the file does not exist or cannot be read."""
    try:
        checkpoint.stat()
    except FileNotFoundError:
        early = "; its run saves it with its first evaluation" if checkpoint.name == "best.ckpt" else ""
        raise UserError(f"there is no checkpoint {checkpoint}{early}; play.py --list-models lists shipped ones") from None
    except (OSError, ValueError):
        pass  # check_file has the message
    check_file(checkpoint)
