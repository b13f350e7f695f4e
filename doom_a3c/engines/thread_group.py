"""The threads of an engine: started together, ended together, and none of them dies unnoticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

Loop = Callable[[], None]


class ClosedError(Exception):
    """A channel between threads has been closed: the engine stops."""


class ThreadGroup:
    """Named threads that each run a loop. Owns the threads and the first error of any.

    When one loop ends, all are asked to: it has seen the end of the run, or has failed. A loop may end by ClosedError, as
    channels are closed to end those that wait there. Any other exception is kept for `check`.
    """

    def __init__(self, loops: Mapping[str, Loop], stop: Callable[[], None], unblock: Callable[[], None]) -> None:
        """`stop` asks the loops to end; `unblock` frees those that wait for a game that does not answer."""
        self._stop, self._unblock = stop, unblock
        self.error: BaseException | None = None  # the first one
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True) for name, loop in loops.items()
        ]

    def _run(self, loop: Loop) -> None:
        try:
            loop()
        except ClosedError:
            pass
        except BaseException as error:
            with self._lock:
                self.error = self.error or error
        finally:
            self._stop()

    def start(self) -> None:
        """Starts all threads."""
        for thread in self._threads:
            thread.start()

    def alive(self) -> list[str]:
        """Returns the names of the threads that run."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def check(self) -> None:
        """Raises the first error that a thread ended with."""
        if self.error is not None:
            raise self.error

    def stop(self, patience: float = 3.0) -> None:
        """Ends all threads; those that have not ended after `patience` seconds are unblocked. May be called twice."""
        self._stop()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        while self.alive() and time.monotonic() < deadline + patience:
            self._unblock()
            time.sleep(0.1)
