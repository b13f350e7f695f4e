"""Saying once that something does not work, and once that it does again."""

from __future__ import annotations

from collections.abc import Callable


class Outage:
    """One thing that may fail and be tried again. Owns the fact of whether it fails; any one thread may use it."""

    def __init__(self, what: str, log: Callable[[str], None]) -> None:
        self._what, self._log = what, log
        self.reason = ""  # that it fails for, '' while it works

    def began(self, error: BaseException) -> None:
        """Notes a failure; says so if it is the first in a row."""
        before, self.reason = self.reason, _told(error)
        if not before:
            self._log(f"warning: {self._what} not written: {self.reason}; training continues, and tries again")

    def ended(self) -> None:
        """Notes that it works; says so if it did not."""
        if self.reason:
            self._log(f"{self._what} written again")
            self.reason = ""


def _told(error: BaseException) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason).splitlines()[0][:100]
