"""Runs objects in other processes: their crashes cannot hurt this process, and every call has a time limit.

A `GameProcess` is this process's end of the connection to one. A single fork server (`fork_server.py`) forks them all.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle

from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.ends import MATCH_BROKEN, UNKNOWN_END, End

ANSWER_SECONDS = 20.0  # without a sign of life; a server notices earlier if its engine hangs
AFTERMATH_SECONDS = 4.0  # within which a server reports that its match is broken, or that its engine has blocked it
FORK_SERVER_SECONDS = 60.0, 5.0  # for the first order to a fork server, which then imports a lot, and for later ones
PRELOAD = "doom_a3c.envs.doom.env"  # most servers need it, so the fork server imports it once


class ProcessError(Exception):
    """The process has ended and must be replaced. `kind` is the name of the fault in counts, `end` how it ended."""

    def __init__(self, kind: str, end: End = UNKNOWN_END) -> None:
        super().__init__(kind, end)
        self.kind, self.end = kind, end

    def __str__(self) -> str:
        return self.end.words if self.end.of_level else ": ".join(filter(None, (self.kind, self.end.words)))


class RemoteError(Exception):
    """The called method raised an exception other than a UserError; the message is its traceback."""


class ForkServerClient:
    """The trainer's connection to its fork server, which is replaced if it dies. Owns it, and the folder of all servers."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="doom_a3c-")).resolve()  # /proc has resolved paths
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

    def _send_order(self, order: str, number: int, end: socket.socket | None = None, ending: bool = False) -> Any:
        for last in (False, True):
            try:
                self._wire.send((order, number, ending, PRELOAD), self._patience)
                if end is not None:
                    self._wire.send_descriptor(end.fileno())
                answer = self._wire.receive(self._patience)
                self._patience = FORK_SERVER_SECONDS[1]
                return answer
            except OSError:  # or TimeoutError
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
            return number, self._send_order("start", number, end)

    def reap(self, number: int, ending: bool) -> End:
        """Kills a server and its engines, and removes their files and shared memory; returns how the server ended.

        A server that is `ending` by itself gets half a second to do so, so that the cause can be diagnosed.
        """
        with self._lock:
            return End(*self._send_order("reap", number, ending=ending))


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
    """An object in its own process. Owns the process. One thread at a time may use it; any may call `release`."""

    def __init__(self, factory: Callable[[Wire], Any]) -> None:
        """Starts the process, where `factory` makes the object from its connection; the first `answer` waits for that."""
        own, other = socket.socketpair()
        self._wire = Wire(own)
        self._number, self.pid = -1, 0
        with other, suppress(OSError):  # an error shows up at the next `answer`
            self._number, self.pid = get_fork_server().start(other)
        with suppress(OSError):
            self._wire.send(cloudpickle.dumps(factory), ANSWER_SECONDS)

    def ask(self, method: str, *arguments: Any) -> None:
        """Calls a method without waiting for its result; each `ask` needs one `answer`, in the same order.

        Raises:
            ProcessError: if the process has ended.
        """
        try:
            self._wire.send((method, arguments), ANSWER_SECONDS)
        except OSError as error:
            raise self._make_error(error) from None

    def answer(self, seconds: float | None = None) -> Any:
        """Returns the result of the oldest unanswered call.

        Raises:
            ProcessError: if the process has ended, or gave no sign of life for `seconds` (by default `ANSWER_SECONDS`).
            UserError, ModuleNotFoundError: if the method raised one.
            RemoteError: if the method raised another exception.
        """
        try:
            while (message := self._wire.receive(ANSWER_SECONDS if seconds is None else seconds))[0] == "alive":
                pass
        except OSError as error:
            raise self._make_error(error) from None
        kind, result = message
        if kind == "returned":
            return result
        if kind == "ended":
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
        """Sends an open file to the method that was asked last; raises ProcessError if the process has ended."""
        try:
            self._wire.send_descriptor(descriptor)
        except OSError as error:
            raise self._make_error(error) from None

    def _make_error(self, error: OSError) -> ProcessError:
        kind = "server_hung" if isinstance(error, TimeoutError) else "server_died"
        left_by_itself = isinstance(error, ConnectionError) and self._wire.open
        return ProcessError(kind, self._end(left_by_itself))

    def release(self) -> None:
        """Makes the current call and all later ones raise ProcessError at once."""
        self._wire.close()

    def end(self) -> End:
        """Ends the process and its children; returns how it ended, if it already had. May be called twice."""
        return self._end(ending=False)

    def _end(self, ending: bool) -> End:
        self._wire.close()
        with suppress(OSError):  # no fork server could be started; the process ends by itself
            return get_fork_server().reap(self._number, ending)
        return UNKNOWN_END


def gather(servers: Sequence[GameProcess], failure: ProcessError | None = None) -> tuple[list[Any], ProcessError | None]:
    """Returns the answers of servers that are replaced together, and the most telling of their errors.

    After a `failure` the other players of a match end soon. A player that does not is hanging, which broke the match.
    """
    answers = []
    for server in servers:
        try:
            answers.append(server.answer(AFTERMATH_SECONDS if failure else None))
        except ProcessError as error:
            failure = max(failure or error, error, key=_rank)  # the first of equals
    return answers, failure


def answer_all(servers: Sequence[GameProcess]) -> list[Any]:
    """Returns the answers of all players of a match; raises the ProcessError that says the most, see `gather`."""
    answers, failure = gather(servers)
    if failure is not None:
        raise failure
    return answers


def _rank(error: ProcessError) -> tuple[bool, bool]:
    """Returns a sort key: errors that say more about the cause have greater ones."""
    return error.kind != MATCH_BROKEN, error.end.by_itself


def make_private_folder() -> Path:
    """Returns a new folder for an engine of this process; it is cleared after this process has ended."""
    return Path(tempfile.mkdtemp(dir=_make_root()))


_server_folder: list[Path] = []  # empty in the trainer
_stuck_callbacks: list[Callable[[str], None]] = []


def become_server(folder: Path, on_stuck: Callable[[str], None]) -> None:
    """Marks this process as a game server, whose fork server clears `folder`; `on_stuck` ends it."""
    _server_folder.append(folder)
    _stuck_callbacks.append(on_stuck)


def report_stuck(kind: str) -> None:
    """Ends a game server whose only thread is blocked for good by an engine's death; `kind` is the fault."""
    for end in _stuck_callbacks:
        end(kind)


def _make_root() -> Path:
    root = _server_folder[0] if _server_folder else get_fork_server().root
    root.mkdir(exist_ok=True)
    return root
