"""Captures stderr output of C++ libraries, which bypasses Python's own stream."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

_saved: list[int] = []  # descriptors of the real stderr, one per nested block, the outermost first


class Captured:
    """The captured output, complete after the block of `capture_stderr`."""

    text = ""


def print_at_once(line: str) -> None:
    """Prints a line on the real stderr, even inside `capture_stderr`. Safe in a signal handler."""
    with contextlib.suppress(OSError):
        os.write(_saved[0] if _saved else 2, f"{line}\n".encode())


@contextlib.contextmanager
def capture_stderr(active: bool = True) -> Iterator[Captured]:
    """Captures everything written to file descriptor 2 inside the block; an exception releases it.

    The descriptor belongs to the whole process: no other thread may print meanwhile.
    """
    captured = Captured()
    if not active:
        yield captured
        return
    sys.stderr.flush()
    saved = os.dup(2)
    _saved.append(saved)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield captured
        except BaseException:
            file.seek(0)
            os.write(saved, file.read())
            raise
        finally:
            os.dup2(saved, 2)
            _saved.remove(saved)
            os.close(saved)
            file.seek(0)
            captured.text = file.read().decode(errors="replace")
