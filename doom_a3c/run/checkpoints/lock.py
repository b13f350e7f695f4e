"""A lock that keeps a folder to one run at a time; the system releases it when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path

from doom_a3c.record.files import output_folder
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.inputs import exists

_FILE = ".lock"


class FolderLock:
    """A lock on a folder, released at the end of its context or its process. Owns an open file."""

    def __init__(self, folder: Path, flag: str) -> None:
        """Locks a folder, and makes it if necessary; such a folder is removed at the end if it is still empty.

        Raises:
            UserError: naming the `flag` if the folder cannot be written to, or the run if another one holds the lock.
        """
        self.folder, self._made = folder, not exists(folder)
        output_folder(str(folder), flag)
        self._file = _open_locked(folder / _FILE, flag)

    def note(self, run: str) -> None:
        """Writes the name of the run to the lock file, for the messages of other runs."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a courtesy: the disk may be full
                os.truncate(self._file, 0)
                os.pwrite(self._file, f"{run} (process {os.getpid()} on {socket.gethostname()})".encode(), 0)

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
        if self._made:
            with contextlib.suppress(OSError):  # not empty: a run has begun
                self.folder.rmdir()


def _open_locked(path: Path, flag: str) -> int | None:
    """Opens and locks a file; returns its descriptor, None if the file system has no locks."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise UserError(f"{flag} {path.parent}: {path.name} in it cannot be opened: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UserError(f"{flag} {path.parent}: {path.name} in it is not a regular file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 500).decode(errors="replace")
            os.close(descriptor)
            name = holder if holder and holder.isprintable() else "another run"
            raise UserError(f"{path.parent} is in use by {name}: wait until it ends, or name another {flag}") from None
        except OSError:
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:  # else its holder just removed it
                return descriptor
        os.close(descriptor)
