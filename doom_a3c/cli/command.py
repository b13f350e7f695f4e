"""Shared parts of the commands: one-line errors, immediate exit, age of the process."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from doom_a3c.cli.layout import measure_width, wrap
from doom_a3c.cli.streams import ERASE_BELOW, OutputLostError, can_redraw, harden_streams
from doom_a3c.quiet import print_at_once
from doom_a3c.run.imports import describe_missing
from doom_a3c.settings.errors import UserError

_NO_ROOM = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.EPIPE,
)  # errors of a disk
# From a folder that was removed or locked after the start, or that has another folder in the place of a file.
_IN_THE_WAY = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM)

ECHO_SECONDS = 1.0  # within which a second SIGTERM or SIGHUP counts as an echo of the first


def run(program: str, command: Callable[[list[str] | None], int], arguments: list[str] | None) -> int:
    """Runs a command; a UserError becomes one line on stderr and exit status 2.

    Until the command installs its own handlers, signals end it at once: an exception during imports could surface as any
    error, and there is nothing to save yet. Its games end with it.
    """
    harden_streams()
    try:
        with end_by_signals(program):
            _check_folder()
            return command(arguments)
    except UserError as error:
        if "--verbose" in (sys.argv if arguments is None else arguments) and _is_foreign(error):
            traceback.print_exception(error)
        line = " ".join(str(error).split())
        print_error(f"{program}: {''.join(each if each.isprintable() else '?' for each in line)}")
        return 2
    except ModuleNotFoundError as error:
        return report_missing_package(program, error)
    except OutputLostError as error:
        print_error(f"{program}: {error}")
        return 1
    except OSError as error:
        if error.errno not in _NO_ROOM + _IN_THE_WAY or (error.errno in _IN_THE_WAY and error.filename is None):
            raise
        if "--verbose" in (sys.argv if arguments is None else arguments):
            traceback.print_exception(error)
        print_error(f"{program}: {error.filename or 'a file'} could not be written: {error.strerror}")
        return 1 if error.errno in _NO_ROOM else 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130


def print_error(line: str) -> None:
    """Prints a line on stderr, wrapped between words if that is a terminal."""
    if sys.stderr.isatty():
        line = wrap(line, measure_width(sys.stderr))
    print(line, file=sys.stderr)


def _is_foreign(error: BaseException) -> bool:
    """Returns whether an error came from foreign code, such as a game."""
    while isinstance(error, UserError) and error.__cause__ is not None:
        error = error.__cause__
    return not isinstance(error, UserError)


def report_missing_package(program: str, error: ModuleNotFoundError) -> int:
    """Prints how to install missing packages; returns the exit status. Re-raises errors about this package's modules."""
    if (error.name or "doom_a3c").startswith("doom_a3c"):
        raise error
    print_error(f"{program}: {describe_missing(error)}")
    return 2


def _check_folder() -> None:
    """Raises UserError if the current folder was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder was removed: change to another") from None


@contextlib.contextmanager
def end_by_signals(program: str, clean: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Makes Ctrl-C, SIGTERM and SIGHUP (not under nohup) end the process at once, after `clean`, inside the block."""

    def end(number: int, frame: object) -> None:
        try:
            clean()
        finally:
            end_at_once(number, f"{program}: interrupted")

    previous = {number: signal.signal(number, end) for number in _list_signals()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def handle_signals(interrupt: Callable[[int], object], end: Callable[[int], object]) -> list[int]:
    """Makes the first signal in a block of `end_by_signals` call `interrupt`, and later ones `end`, until the block ends.

    An immediate second SIGTERM or SIGHUP is dropped: `timeout`, for one, signals its command and then its whole group.

    Returns:
        The signals received, which the handlers extend.
    """
    received: list[int] = []
    first = 0.0

    def receive(number: int, frame: object) -> None:
        nonlocal first
        now = time.monotonic()
        if not received:
            first = now
            received.append(number)
            interrupt(number)
            return
        echoed = number == received[0] != signal.SIGINT and now - first <= ECHO_SECONDS
        if not echoed:
            end(number)

    for each in _list_signals():
        signal.signal(each, receive)
    return received


def _list_signals() -> list[signal.Signals]:
    """Returns the signals that end a program, without SIGHUP under nohup."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def end_interrupted(number: int) -> NoReturn:
    """Ends play.py at once, as by a signal."""
    end_at_once(number, f"{find_program_name('play')}: interrupted")


def end_at_once(number: int, line: str) -> NoReturn:
    """Ends the process as by a signal, with a line on stderr that replaces the panel, or the line, at the cursor."""
    if can_redraw() and select.select([], [1], [], 0)[1]:  # a stopped terminal would block
        with contextlib.suppress(OSError):
            os.write(1, ERASE_BELOW.encode())
    print_at_once(line)
    os._exit(128 + number)


def find_program_call(which: str) -> str:
    """Returns the call of train or play in the form of the current call: as a command or as a file."""
    if _is_installed():
        return find_program_name(which)
    return f"python {shlex.quote(str(Path(sys.argv[0]).with_name(find_program_name(which))))}"


def find_program_name(which: str) -> str:
    """Returns the name of train or play in the form of the current call."""
    return f"doom-a3c-{which}" if _is_installed() else f"{which}.py"


def _is_installed() -> bool:
    return Path(sys.argv[0]).name.startswith("doom-a3c-")


def measure_age() -> float:
    """Returns the age of this process in seconds, including the interpreter's start and all imports.

    psutil's creation time rests on a boot time in whole seconds, so it is wrong by up to a second.
    """
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
