"""A bounded queue between threads."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from doom_a3c.engines.thread_group import ClosedError

Item = TypeVar("Item")


class Channel(Generic[Item]):
    """A bounded queue that can be closed, which raises `ClosedError` in all waiting threads. Owns its items."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._closed = capacity, False
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()

    def put(self, item: Item) -> None:
        """Adds an item, waiting while the channel is full; raises ClosedError once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity)
            if self._closed:
                raise ClosedError
            self._items.append(item)
            self._changed.notify_all()

    def wait_for_room(self, seconds: float) -> None:
        """Waits until there is room or the channel is closed, for `seconds` at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity, seconds)

    def offer(self, item: Item) -> bool:
        """Adds an item if there is room; returns whether it did."""
        with self._changed:
            if self._closed or len(self._items) >= self._capacity:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def take(self, low: int, high: int) -> list[Item]:
        """Waits for `low` items; removes and returns the oldest, `high` at most. Raises ClosedError once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) >= low)
            if self._closed:
                raise ClosedError
            taken = [self._items.popleft() for _ in range(min(high, len(self._items)))]
            self._changed.notify_all()
            return taken

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Raises `ClosedError` in all threads that wait now or later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._items)
