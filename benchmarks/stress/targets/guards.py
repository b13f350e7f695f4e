"""Guards around code that reads hostile inputs: the files it opens, programs, imports, time and memory."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from doom_a3c.run.imports import PACKAGES

SECONDS = 5.0  # of CPU time per input
BYTES = 2**30  # of address space per input
# Python's audit events: the ones an input must not cause, and the ones whose first arguments are paths to write to.
_RUNS = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"),
    *("pickle.find_class", "ctypes.dlopen", "socket.connect", "socket.bind", "socket.sendto", "webbrowser.open"),
}
_CHANGES = {
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
    **dict.fromkeys(
        ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.rmtree"), 1
    ),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class HangError(BaseException):
    """An input takes too long; no `except Exception` catches it."""


class Guard:
    """A watch on this process while it takes an input. Owns the offences seen, and the limits."""

    def __init__(self, folders: Sequence[Path], *, named_by_user: bool = False) -> None:
        """Allows writing only in `folders`; with `named_by_user`, other writes are refused but are no finding."""
        self._folders = tuple(f"{folder.resolve()}{os.sep}" for folder in folders)
        self._named_by_user, self._active = named_by_user, False
        self._modules: frozenset[str] = frozenset()
        self.seen: list[str] = []
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGVTALRM, self._late)

    def limit_memory(self) -> None:
        """Allows BYTES more address space than is used now."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, resource.RLIM_INFINITY))

    def know_modules(self) -> None:
        """Allows, from now on, only modules imported so far, the standard library and packages of requirements.txt."""
        known = {name.partition(".")[0] for name in sys.modules}
        self._modules = frozenset(known | sys.stdlib_module_names | PACKAGES.keys())

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watches what happens in the block."""
        self.seen.clear()
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        self._active = True
        try:
            yield
        finally:
            self._active = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _late(self, number: int, frame: object) -> None:
        if self._active:
            raise HangError(f"more than {SECONDS:g} s")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "open":
            path, mode, flags = arguments
            if (isinstance(mode, str) and not set(mode).isdisjoint("wax+")) or (mode is None and flags & _WRITING):
                self._check_write(path)
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]]:
                self._check_write(path)
        elif event in _RUNS:
            self._refuse(f"{event} {arguments[:1]!r}")
        elif event == "import" and arguments[0].partition(".")[0] not in self._modules:
            self._refuse(f"import of {arguments[0]}")

    def _check_write(self, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike) or path in ("/dev/null", ""):
            return
        self._active = False  # resolving a path is not the input's doing
        try:
            inside = os.path.realpath(os.fsdecode(path)).startswith(self._folders)
        except (ValueError, OSError):
            inside = True  # no such path can be written to
        finally:
            self._active = True
        if not inside:
            self._refuse("" if self._named_by_user else f"write to {os.fsdecode(path)!r}")

    def _refuse(self, what: str) -> None:
        if what:
            self.seen.append(what)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


class FindingError(Exception):
    """An input was accepted that must not be."""


class Outcome(NamedTuple):
    """An input's outcome."""

    verdict: str  # 'accepted', 'refused' or 'finding'
    signature: str = ""  # equal for findings that are likely the same
    detail: str = ""


def find_outcome(guard: Guard, take: Callable[[bytes], bool], data: bytes) -> Outcome:
    """Runs `take` on an input: it should return whether that is accepted, and raise nothing."""
    try:
        with guard.watch():
            accepted = take(data)
    except FindingError as error:
        return Outcome("finding", str(error))
    except BaseException as error:
        if not guard.seen:
            return Outcome("finding", f"{type(error).__name__} at {find_place(error)}", str(error)[:500])
    if guard.seen:
        return Outcome("finding", guard.seen[0].partition(" ")[0], guard.seen[0])
    return Outcome("accepted" if accepted else "refused")


def find_place(error: BaseException) -> str:
    """Returns the innermost line of the program that an error came through."""
    found, trace = "?", error.__traceback__
    while trace is not None:
        _, package, name = trace.tb_frame.f_code.co_filename.rpartition("doom_a3c/")
        if package:
            found = f"{package}{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
