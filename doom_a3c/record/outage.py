"""Saying once that something does not work, and once that it does again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from doom_a3c.settings.fields import first_line

SECONDS_BETWEEN_TRIES = 10.0  # of something that has failed


class Outage:
    """Things of one kind that may fail and be tried again. Owns the names of those that fail; any thread may use it."""

    def __init__(self, what: str, log: Callable[[str], None]) -> None:
        self._what, self._log = what, log
        self._failing: set[str] = set()
        self._lock = threading.Lock()
        self.reason = ""  # that the newest failure had, '' while all work

    def failed(self, error: BaseException, name: str = "") -> None:
        """Notes a failure; says so if all have worked."""
        with self._lock:
            first = not self._failing
            self._failing.add(name)
            self.reason = _reason(error)
        if first:
            self._log(f"warning: {self._what} not written: {self.reason}; training continues, and tries again")

    def worked(self, name: str = "") -> None:
        """Notes that one works; says so if it was the last that did not."""
        with self._lock:
            last = self._failing == {name}
            self._failing.discard(name)
            self.reason = self.reason if self._failing else ""
        if last:
            self._log(f"{self._what} written again")

    def is_failing(self, name: str) -> bool:
        """Returns whether the newest try of one has failed."""
        with self._lock:
            return name in self._failing


def _reason(error: BaseException) -> str:
    """Returns why, in a few words: TensorFlow puts names of its functions before its own."""
    return str(getattr(error, "strerror", None) or re.sub(r"\{\{.*?\}\}", "", first_line(error)).strip())[:200]
