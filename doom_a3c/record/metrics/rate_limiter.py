"""Limits the rate of events."""

from __future__ import annotations

import threading
import time


class RateLimiter:
    """Allows an event once per interval. Owns the time of the last one; thread-safe.

    With `share` > 0 the interval grows to that share of the limiter's age: a run of days then logs ten thousand points
    instead of filling the disk.
    """

    def __init__(self, seconds: float, share: float = 0.0) -> None:
        self._lock, self._seconds, self._share = threading.Lock(), seconds, share
        self._start = self._next = time.monotonic()

    def allow(self) -> bool:
        """Returns whether the event may happen now, and counts it if so."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return False
            self._next = now + max(self._seconds, self._share * (now - self._start))
            return True


def log_limiter() -> RateLimiter:
    """Returns the limiter of a log's points: one per second, and some 10,000 in a run of days."""
    return RateLimiter(1.0, share=1 / 2000)


def log_gif_limiter() -> RateLimiter:
    """Returns the limiter of a log's gifs, all of which are kept: one per minute, and some 150 in a week."""
    return RateLimiter(60.0, share=1 / 20)
