"""Standard streams that never raise: losing a line must not end a run."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

# From the start of the line on. tmux keeps a copy of a screen that is erased from its first corner, hence the step aside.
ERASE_BELOW = "\r\x1b[K\x1b[C\x1b[J\r"


def harden_streams() -> None:
    """Makes prints survive a full disk, a closed pipe, a vanished terminal and a descriptor that was never open.

    A closed descriptor is opened on /dev/null: otherwise the next file to be opened, such as a checkpoint, would become
    standard output.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is sys.__stdout__:  # otherwise it was redirected
        sys.stdout = _harden(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _harden(sys.stderr, 2)


class OutputLostError(Exception):
    """The output for which a command was called could not be written."""


def print_result(text: str) -> None:
    """Prints the output for which a command was called.

    Raises:
        OutputLostError: if it is lost; a closed pipe does not count, since its reader has gone.
    """
    print(text, flush=True)
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _LossyDescriptor) and raw.error is not None and raw.error.errno != errno.EPIPE:
        raise OutputLostError(f"standard output could not be written: {raw.error.strerror}")


def can_redraw() -> bool:
    """Returns whether standard output is a terminal whose last line can be overwritten."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def _harden(stream: io.TextIOWrapper | Any | None, descriptor: int) -> io.TextIOWrapper:
    with contextlib.suppress(OSError, AttributeError):
        stream.flush()  # type: ignore[union-attr]  # None has no flush, either
    encoding = getattr(stream, "encoding", None) or "utf-8"
    raw = io.BufferedWriter(_LossyDescriptor(descriptor))
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=os.isatty(descriptor) or descriptor == 2)


class _LossyDescriptor(io.RawIOBase):
    """Writes to a descriptor; drops output that cannot be written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.error: OSError | None = None  # of the latest failed write

    def writable(self) -> bool:
        """Returns True."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Returns whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """Writes as much as it can and reports all of it as written."""
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.error = error
        return size
