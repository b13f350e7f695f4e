"""The progress of a training run: a live panel on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from doom_a3c.cli.status import format_rows, format_time_left
from doom_a3c.cli.streams import can_redraw, in_notebook

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, which the panel must not wait for


class PanelSink(Protocol):
    """Where a panel appears."""

    seconds: float  # between two updates

    def show(self, status: Status | None, phase: str) -> None:
        """Shows the status, None before training begins, and the current activity besides training."""

    def log(self, message: str) -> None:
        """Prints a message that stays."""

    def close(self) -> None:
        """Leaves the latest status on the screen."""


class Panel:
    """Shows the progress of a run. Owns the thread that updates it; thread-safe."""

    def __init__(self, quiet: bool, redirect: bool = False) -> None:
        """With `redirect`, texts that others print appear above a live panel instead of breaking it."""
        self._status: Status | None = None
        self._phase: Callable[[], str] = str
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._sink = None if quiet else _choose_sink(redirect)
        if self._sink is not None:
            threading.Thread(target=self._run, args=(self._sink,), name="panel", daemon=True).start()

    def _run(self, sink: PanelSink) -> None:
        while not self._ended.wait(sink.seconds):
            self._update(sink)

    def _update(self, sink: PanelSink) -> None:
        with self._lock:
            if not self._ended.is_set():
                sink.show(self._status, self._phase())

    def show(self, status: Status) -> None:
        """Sets the status for the next update."""
        self._status = status

    def set_phase(self, describe: Callable[[], str]) -> None:
        """Sets the function that describes the activity besides training, '' for none. Safe in a signal handler."""
        self._phase = describe

    def log(self, message: str) -> None:
        """Prints a message that stays."""
        if self._sink is not None:
            with self._lock:
                self._sink.log(message)

    def close(self) -> None:
        """Leaves the latest status on the screen; messages may follow. May be called twice."""
        if self._sink is not None and not self._ended.is_set():
            self._phase = str
            self._update(self._sink)
            with self._lock:
                self._ended.set()
                self._sink.close()


def _choose_sink(redirect: bool) -> PanelSink:
    if in_notebook():
        from doom_a3c.cli.notebook import NotebookPanel  # late, as below

        return NotebookPanel()
    if can_redraw():
        from doom_a3c.cli.screen import LivePanel  # late: it loads rich, which files and pipes do not need

        return LivePanel(redirect)
    return _PrintedStatus()


class _PrintedStatus:
    """Prints one line per update."""

    seconds = 10.0

    def show(self, status: Status | None, phase: str) -> None:
        if status is not None:  # the first message names the game
            parts = f"{status.share:.1%}", format_time_left(status), *map(" ".join, format_rows(status)), phase
            print(" | ".join(filter(None, parts)), flush=True)

    def log(self, message: str) -> None:
        print(message, flush=True)

    def close(self) -> None:
        pass
