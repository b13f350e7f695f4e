"""Catches what C++ libraries print on stderr, below Python's own stream."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

_saved: list[int] = []  # where stderr goes outside of the blocks that catch it, the outermost's first


class Caught:
    """What was printed; complete once the block of `caught_stderr` ends."""

    text = ""


def print_at_once(line: str) -> None:
    """Prints a line on stderr, also from inside the block of `caught_stderr`; a signal handler may call it."""
    with contextlib.suppress(OSError):
        os.write(_saved[0] if _saved else 2, f"{line}\n".encode())


@contextlib.contextmanager
def caught_stderr(active: bool = True) -> Iterator[Caught]:
    """Keeps everything written to file descriptor 2 inside the block away from the user.

    The descriptor is the process's: use it while no other thread may print. An exception shows what was caught.
    """
    caught = Caught()
    if not active:
        yield caught
        return
    sys.stderr.flush()
    saved = os.dup(2)
    _saved.append(saved)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield caught
        except BaseException:
            file.seek(0)
            os.write(saved, file.read())
            raise
        finally:
            os.dup2(saved, 2)
            _saved.remove(saved)
            os.close(saved)
            file.seek(0)
            caught.text = file.read().decode(errors="replace")
