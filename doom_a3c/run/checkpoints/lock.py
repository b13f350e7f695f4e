"""A lock that keeps the folder of a run to one session at a time; the system releases it when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import stat
from pathlib import Path

from doom_a3c.record.files import output_folder
from doom_a3c.settings.errors import UserError

_FILE = ".lock"
_MAX_NOTE = 500  # bytes
FLAG = "--models-dir"


class FolderLock:
    """A lock on a folder, released at the end of its context or its process. Owns an open file.

    `killed_at` is the frame that a killed session had reached in the folder; None after a session that ended by itself.
    """

    def __init__(self, folder: Path) -> None:
        """Locks a folder; raises UserError if it cannot be written to, or, naming the holder, if it is locked."""
        self.folder = output_folder(str(folder), FLAG)
        self._file = _open_locked(folder / _FILE)
        self.killed_at = None if self._file is None else _read_frame(self._file)

    def note(self, run: str, frames: int) -> None:
        """Writes the run's name and progress to the lock file, for other sessions."""
        if self._file is not None:
            text = f"{run} (process {os.getpid()} on {socket.gethostname()}), at frame {frames:,}"
            with contextlib.suppress(OSError):  # a courtesy: the disk may be full
                os.pwrite(self._file, text.encode(), 0)
                os.truncate(self._file, len(text.encode()))

    def is_held(self) -> bool:
        """Returns whether the locked folder still exists; it may have been removed or replaced."""
        try:
            return self._file is None or os.stat(self.folder / _FILE).st_ino == os.fstat(self._file).st_ino
        except OSError:
            return False

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            if self.is_held():
                with contextlib.suppress(OSError):
                    (self.folder / _FILE).unlink()
            os.close(self._file)
            self._file = None


def find_progress(folder: Path) -> int | None:
    """Returns the frame that the session in a folder had reached about a second ago; None if there is no session."""
    try:
        descriptor = os.open(folder / _FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_frame(descriptor)
    except OSError:  # a file system without locks
        pass
    finally:
        os.close(descriptor)
    return None


def _read_frame(descriptor: int) -> int | None:
    """Returns the frame in the note of a lock file, None if it has none."""
    try:
        note = os.pread(descriptor, _MAX_NOTE, 0).decode(errors="replace")
    except OSError:  # such as a pipe of that name
        return None
    frame = re.search(r", at frame ([\d,]{1,20})$", note)
    return int(frame[1].replace(",", "")) if frame else None


def _open_locked(path: Path) -> int | None:
    """Opens and locks a file; returns its descriptor, None if the file system has no locks."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise UserError(f"{FLAG} {path.parent}: {path.name} in it cannot be opened: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UserError(f"{FLAG} {path.parent}: {path.name} in it is not a regular file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, _MAX_NOTE).decode(errors="replace")
            os.close(descriptor)
            name = holder if holder and holder.isprintable() else "another run"
            raise UserError(f"{path.parent} is in use by {name}: wait until it ends, or start a new run") from None
        except OSError:
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:  # else its holder just removed it
                return descriptor
        os.close(descriptor)
