"""One run at a time in a folder: a lock that ends with its process, however that ends."""

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
    """The right to write to a folder; the system frees it when the process dies. Owns an open file. A context."""

    def __init__(self, folder: Path, flag: str) -> None:
        """Makes the folder if need be; one that is empty at the end is removed again.

        Raises:
            UserError: naming the flag if the folder cannot be written to, or the run that holds the lock.
        """
        self.folder, self._made = folder, not exists(folder)
        output_folder(str(folder), flag)
        self._file = _locked_file(folder / _FILE, flag)

    def note(self, run: str) -> None:
        """Says which run holds the lock, to whoever is refused."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a courtesy: the disk may be full
                os.truncate(self._file, 0)
                os.pwrite(self._file, f"{run} (process {os.getpid()} on {socket.gethostname()})".encode(), 0)

    def held(self) -> bool:
        """Tells whether the folder is still the one that was locked: it may have been removed, and made again."""
        try:
            return self._file is None or os.stat(self.folder / _FILE).st_ino == os.fstat(self._file).st_ino
        except OSError:
            return False

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            if self.held():
                with contextlib.suppress(OSError):
                    (self.folder / _FILE).unlink()
            os.close(self._file)
            self._file = None
        if self._made:
            with contextlib.suppress(OSError):  # not empty: a run has begun
                self.folder.rmdir()


def _locked_file(path: Path, flag: str) -> int | None:
    """Returns a descriptor of a file that holds its lock, None where the file system has no locks."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise UserError(f"{flag} {path.parent}: {path.name} in it cannot be opened: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UserError(f"{flag} {path.parent}: {path.name} in it is no file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 500).decode(errors="replace")
            os.close(descriptor)
            name = holder if holder and holder.isprintable() else "another run"
            raise UserError(f"{path.parent} is in use by {name}: wait for its end, or name another {flag}") from None
        except OSError:
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:  # else its holder has just removed it
                return descriptor
        os.close(descriptor)
