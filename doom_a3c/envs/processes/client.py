"""Objects in processes of their own: what happens to them cannot hurt this process, and every call has a time limit.

A `GameProcess` is this process's end of one. The processes are forked by a fork server (see there), one for all of them.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle

from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.ends import UNKNOWN_END, End

ANSWER_SECONDS = 20.0  # without a sign of life; engines that hang are noticed before, by their server
FORK_SERVER_SECONDS = 60.0, 5.0  # for a fork server's first order, as it imports a lot then, and for others
PRELOAD = "doom_a3c.envs.doom.env"  # what most servers need; the fork server imports it once for all of them


class ProcessError(Exception):
    """The process is gone, and has to be replaced. `kind` is what faults are counted by, `end` how it ended."""

    def __init__(self, kind: str, end: End = UNKNOWN_END) -> None:
        super().__init__(kind, end)
        self.kind, self.end = kind, end

    def __str__(self) -> str:
        return self.end.words if self.end.of_level else ": ".join(filter(None, (self.kind, self.end.words)))


class RemoteError(Exception):
    """What was called raised an exception that is no user's mistake; the message is its traceback there."""


class ForkServerClient:
    """The trainer's connection to its fork server, which it replaces if it dies. Owns the folder of all servers."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="doom_a3c-")).resolve()  # as /proc shows it
        self._numbers, self._begin = itertools.count(), time.time()
        self._patience = FORK_SERVER_SECONDS[0]
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        own, other = socket.socketpair()
        self._process = subprocess.Popen(
            _fork_server_command(other.fileno(), self.root, self._begin),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
            start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads must not be forked
        )
        other.close()
        self._wire = Wire(own)

    def _order(self, order: str, number: int, end: socket.socket | None = None, ending: bool = False) -> Any:
        for last in (False, True):
            try:
                self._wire.send((order, number, ending, PRELOAD), self._patience)
                if end is not None:
                    self._wire.send_descriptor(end.fileno())
                answer = self._wire.receive(self._patience)
                self._patience = FORK_SERVER_SECONDS[1]
                return answer
            except OSError:  # a time-out too
                self._process.kill()
                self._process.wait()
                self._wire.close()
                if last:
                    raise
                self._patience = FORK_SERVER_SECONDS[0]
                self._start()

    def start(self, end: socket.socket) -> tuple[int, int]:
        """Starts a server at the other end of a socket; returns its number and process id."""
        with self._lock:
            number = next(self._numbers)
            return number, self._order("start", number, end)

    def reap(self, number: int, ending: bool) -> End:
        """Kills a server and its engines, if they live, and removes what they leave; returns how it ended.

        One that is `ending` by itself is given a moment for it, in which it shows of what.
        """
        with self._lock:
            return End(*self._order("bury", number, ending=ending))


def _fork_server_command(descriptor: int, root: Path, begin: float) -> list[str]:
    """Returns the command that runs a fork server with the modules that this process can import."""
    program = Path(__file__).with_name("start_fork_server.py")
    return [sys.executable, str(program), str(descriptor), str(root), str(begin), *sys.path]


_fork_server_lock = threading.Lock()
_make_fork_server = functools.cache(ForkServerClient)


def get_fork_server() -> ForkServerClient:
    """Returns the fork server of this process, starting it if there is none."""
    with _fork_server_lock:
        return _make_fork_server()


class GameProcess:
    """An object in a process of its own. Owns the process; one thread at a time may use it, `release` is for any."""

    def __init__(self, factory: Callable[[Wire], Any]) -> None:
        """Starts the process, in which `factory` makes the object from its connection; the first `answer` waits for it."""
        own, other = socket.socketpair()
        self._wire = Wire(own)
        self._number, self.pid = -1, 0
        with other, suppress(OSError):  # what goes wrong here is noticed when the process has to answer
            self._number, self.pid = get_fork_server().start(other)
        with suppress(OSError):
            self._wire.send(cloudpickle.dumps(factory), ANSWER_SECONDS)

    def ask(self, method: str, *arguments: Any) -> None:
        """Calls a method without waiting for its end; every call is followed by its `answer`, in their order.

        Raises:
            ProcessError: if the process is gone.
        """
        try:
            self._wire.send((method, arguments), ANSWER_SECONDS)
        except OSError as error:
            raise self._failure(error) from None

    def answer(self, seconds: float | None = None) -> Any:
        """Returns what the call returns.

        Raises:
            ProcessError: if the process is gone, or has given no sign of life for so many seconds (`ANSWER_SECONDS`).
            UserError: if the call raised one.
            RemoteError: if it raised anything else.
        """
        try:
            while (message := self._wire.receive(ANSWER_SECONDS if seconds is None else seconds))[0] == "alive":
                pass
        except OSError as error:
            raise self._failure(error) from None
        kind, result = message
        if kind == "returned":
            return result
        if kind == "gone":
            fault, end = result
            self.end()
            raise ProcessError(fault, end)
        if kind == "mistake":
            mistake, where = result
            raise mistake from RemoteError(where)
        raise RemoteError(result)

    def call(self, method: str, *arguments: Any) -> Any:
        """Returns the result of a method of the object; raises as `ask` and `answer` do."""
        self.ask(method, *arguments)
        return self.answer()

    def send_descriptor(self, descriptor: int) -> None:
        """Hands an open file over, which a call that has been asked for takes."""
        try:
            self._wire.send_descriptor(descriptor)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> ProcessError:
        kind = "server_hung" if isinstance(error, TimeoutError) else "server_died"
        left_by_itself = isinstance(error, ConnectionError) and self._wire.open
        return ProcessError(kind, self._end(left_by_itself))

    def release(self) -> None:
        """Makes the call under way and all later ones fail at once."""
        self._wire.close()

    def end(self) -> End:
        """Ends the process and whatever it has started; returns how it ended before; may be called twice."""
        return self._end(ending=False)

    def _end(self, ending: bool) -> End:
        self._wire.close()
        with suppress(OSError):  # no fork server lives long enough: the process ends by itself
            return get_fork_server().reap(self._number, ending)
        return UNKNOWN_END


def make_private_folder() -> Path:
    """Returns a new folder for an engine of this process; it is cleared when this process is gone."""
    return Path(tempfile.mkdtemp(dir=_make_root()))


_own: list[Path] = []
_when_stuck: list[Callable[[str], None]] = []


def become_server(folder: Path, when_stuck: Callable[[str], None]) -> None:
    """Makes this process a game server, whose fork server clears `find_folder`; `when_stuck` ends it."""
    _own.append(folder)
    _when_stuck.append(when_stuck)


def report_stuck(kind: str) -> None:
    """Ends a game server after an engine's death has left its only thread blocked for good; `kind` is the fault."""
    for end in _when_stuck:
        end(kind)


def _make_root() -> Path:
    root = _own[0] if _own else get_fork_server().root
    root.mkdir(exist_ok=True)
    return root
