"""Standard streams that never fail: output is not worth a run."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any


def make_patient() -> None:
    """Lets what is printed be lost where the disk is full, the pipe closed, the terminal gone or the stream never open.

    A closed descriptor is opened on nothing: the next file that is opened, a checkpoint say, would else be standard output.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    if sys.stdout is sys.__stdout__:  # else somebody else looks after it
        sys.stdout = _patient(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _patient(sys.stderr, 2)


class LostError(Exception):
    """What a command was called for could not be written."""


def answer(text: str) -> None:
    """Prints what a command was called for and nothing else.

    Raises:
        LostError: where that is lost; it is no loss where nobody reads on.
    """
    print(text, flush=True)
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Patient) and raw.lost is not None and raw.lost.errno != errno.EPIPE:
        raise LostError(f"standard output could not be written: {raw.lost.strerror}")


def draws() -> bool:
    """Tells whether standard output is a terminal on which a line can be drawn over."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _patient(stream: io.TextIOWrapper | Any | None, descriptor: int) -> io.TextIOWrapper:
    with contextlib.suppress(OSError, AttributeError):
        stream.flush()  # type: ignore[union-attr]  # None has no flush, either
    encoding = getattr(stream, "encoding", None) or "utf-8"
    raw = io.BufferedWriter(_Patient(descriptor))
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=os.isatty(descriptor) or descriptor == 2)


class _Patient(io.RawIOBase):
    """Writes to a descriptor what can be written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.lost: OSError | None = None  # why something could not be written

    def writable(self) -> bool:
        """Tells that it can be written to."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Tells whether it is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """Writes, or does not; all counts as written."""
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.lost = error
        return size
