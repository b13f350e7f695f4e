"""A limit on how often something happens."""

from __future__ import annotations

import threading
import time


class RateLimiter:
    """Allows something once every so many seconds. Owns the time of the last one; any thread may ask.

    With `share` above 0 it allows more rarely the older it gets, every `share` of its age: a run of days then logs some
    ten thousand points and not a full disk.
    """

    def __init__(self, seconds: float, share: float = 0.0) -> None:
        self._lock, self._seconds, self._share = threading.Lock(), seconds, share
        self._start = self._next = time.monotonic()

    def allow(self) -> bool:
        """Tells whether it may happen now, and if so counts it."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return False
            self._next = now + max(self._seconds, self._share * (now - self._start))
            return True


def log_limiter() -> RateLimiter:
    """Returns the limit on the points of a log: one a second, and some 10,000 in a run of days."""
    return RateLimiter(1.0, share=1 / 2000)


def log_gif_limiter() -> RateLimiter:
    """Returns the limit on the gifs of a log, which keeps them all: one a minute, and some 150 in a week."""
    return RateLimiter(60.0, share=1 / 20)
