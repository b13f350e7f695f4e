"""Reports once that an output fails, and once more when it works again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from doom_a3c.settings.errors import first_line

SECONDS_BETWEEN_TRIES = 10.0  # after a failure


class FailureReporter:
    """Tracks outputs of one kind that may fail and are retried. Owns the names of the failing ones; thread-safe."""

    def __init__(self, outputs: str, log: Callable[[str], None]) -> None:
        """`outputs` names the outputs in messages, such as 'gifs'."""
        self._outputs, self._log = outputs, log
        self._failing: set[str] = set()
        self._lock = threading.Lock()
        self.reason = ""  # for the latest failure; '' while everything works

    def report_failure(self, error: BaseException, name: str = "") -> None:
        """Records a failure; logs a warning if it is the first one."""
        with self._lock:
            first = not self._failing
            self._failing.add(name)
            self.reason = _summarize(error)
        if first:
            self._log(f"warning: {self._outputs} not written: {self.reason}; trying again")

    def report_success(self, name: str = "") -> None:
        """Records a success; logs it if nothing fails any more."""
        with self._lock:
            last = self._failing == {name}
            self._failing.discard(name)
            self.reason = self.reason if self._failing else ""
        if last:
            self._log(f"{self._outputs} written again")

    def is_failing(self, name: str) -> bool:
        """Returns whether the latest attempt of one output failed."""
        with self._lock:
            return name in self._failing


def _summarize(error: BaseException) -> str:
    """Returns the reason in a few words, without the function names that TensorFlow puts first."""
    return str(getattr(error, "strerror", None) or re.sub(r"\{\{.*?\}\}", "", first_line(error)).strip())[:200]
