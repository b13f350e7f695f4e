"""The threads of an engine: started together, stopped together, and none of them dies unnoticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping


class Crew:
    """Named threads that each run a loop until told to stop. Owns the threads and the first error of any.

    An exception in a loop is kept for `check` and stops all others.
    """

    def __init__(
        self, loops: Mapping[str, Callable[[], None]], stop: Callable[[], None], unblock: Callable[[], None]
    ) -> None:
        """`stop` asks the loops to end; `unblock` frees those that wait for a game for ever, where stopping takes long."""
        self._stop, self._unblock = stop, unblock
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True) for name, loop in loops.items()
        ]

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._stop()

    def start(self) -> None:
        """Starts all threads."""
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raises the first error that a thread ended with."""
        if self._error is not None:
            raise self._error

    def metrics(self) -> dict[str, float]:
        """Returns what TensorBoard shows of the engine itself, by tag."""
        return {}

    def describe(self) -> str:
        """Returns what the live line shows of the engine itself."""
        return ""

    def stop(self, patience: float = 3.0) -> None:
        """Ends all threads; those that have not ended after `patience` seconds are unblocked. May be called twice."""
        self._stop()
        deadline = time.monotonic() + patience
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
        while any(thread.is_alive() for thread in started) and time.monotonic() < deadline + patience:
            self._unblock()
            time.sleep(0.1)
