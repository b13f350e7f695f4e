"""The threads of an engine: started and ended together, with no error lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

Loop = Callable[[], None]


class ClosedError(Exception):
    """A channel between threads was closed because the engine stops."""


class ThreadGroup:
    """Named threads that each run a loop. Owns the threads and their first error.

    When one loop ends, at the end of the run or by an error, all others are asked to end. A loop may end by ClosedError,
    because closing the channels wakes waiting threads. `check` raises any other exception.
    """

    def __init__(self, loops: Mapping[str, Loop], stop: Callable[[], None], unblock: Callable[[], None]) -> None:
        """`stop` asks the loops to end; `unblock` frees loops that wait for a hanging game."""
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
        for thread in self._threads:
            thread.start()

    def alive(self) -> list[str]:
        """Returns the names of the running threads."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def check(self) -> None:
        """Raises the first error that ended a thread."""
        if self.error is not None:
            raise self.error

    def stop(self, patience: float = 3.0) -> None:
        """Asks all threads to end, and waits for them; may be called twice.

        Unblocks threads that are still alive after `patience` seconds. Returns after twice that time even if some are
        still alive: they are daemons, and one that is in a long computation ends when that does.
        """
        self._stop()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        while self.alive() and time.monotonic() < deadline + patience:
            self._unblock()
            time.sleep(0.1)
