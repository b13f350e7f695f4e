"""What is shown of a training run: a panel that is drawn again and again on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from doom_a3c.cli.status import rows, time_left
from doom_a3c.cli.streams import draws

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, and a panel is there before


class Output(Protocol):
    """Where a panel shows what there is to show."""

    seconds: float  # between two times

    def show(self, status: Status | None, phase: str) -> None:
        """Shows how far the run has come, None before it trains, and what it does besides."""

    def log(self, message: str) -> None:
        """Shows a message, for good."""

    def close(self) -> None:
        """Leaves the newest status standing."""


class Panel:
    """Shows how a run goes. Owns a thread, which draws; any other may call its methods."""

    def __init__(self, quiet: bool) -> None:
        self._status: Status | None = None
        self._phase: Callable[[], str] = str
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._output = None if quiet else _output()
        if self._output is not None:
            threading.Thread(target=self._run, args=(self._output,), name="panel", daemon=True).start()

    def _run(self, output: Output) -> None:
        while not self._ended.wait(output.seconds):
            self._draw(output)

    def _draw(self, output: Output) -> None:
        with self._lock:
            if not self._ended.is_set():
                output.show(self._status, self._phase())

    def show(self, status: Status) -> None:
        """Has the newest status shown, when it is time."""
        self._status = status

    def phase(self, what: Callable[[], str]) -> None:
        """Has shown what the run does besides training while it does; '' is nothing. A signal handler may call it."""
        self._phase = what

    def log(self, message: str) -> None:
        """Shows a message, for good."""
        if self._output is not None:
            with self._lock:
                self._output.log(message)

    def close(self) -> None:
        """Leaves the newest status standing; messages may follow. May be called twice."""
        if self._output is not None and not self._ended.is_set():
            self._phase = str
            self._draw(self._output)
            with self._lock:
                self._ended.set()
                self._output.close()


def _output() -> Output:
    if draws():
        from doom_a3c.cli.screen import Screen  # late: it loads a library, which files and pipes do without

        return Screen()
    return _Lines()


class _Lines:
    """Prints lines, one below the other."""

    seconds = 10.0

    def show(self, status: Status | None, phase: str) -> None:
        if status is not None:  # the first line says what is played
            parts = f"{status.share:.1%}", time_left(status), *map(" ".join, rows(status)), phase
            print(" | ".join(filter(None, parts)), flush=True)

    def log(self, message: str) -> None:
        print(message, flush=True)

    def close(self) -> None:
        pass
