"""Vectors of games that start in the background while the trainer still loads TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from doom_a3c.envs.processes.vectors import ProcessVectorEnv


class EarlyVectors:
    """Vectors of equal size, started before they are needed. Owns the ones not taken yet."""

    def __init__(self) -> None:
        self._futures: list[Future[ProcessVectorEnv]] = []
        self._size = (0, 0)  # games and rows of each vector

    def start(self, make_vector: Callable[[], ProcessVectorEnv], vectors: int, games: int, rows: int) -> None:
        """Starts a thread that makes the vectors one after the other; returns at once."""
        self._futures, self._size = [Future() for _ in range(vectors)], (games, rows)

        def make_all(futures: list[Future[ProcessVectorEnv]]) -> None:
            for future in futures:
                try:
                    future.set_result(make_vector())
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=make_all, args=(list(self._futures),), name="early-games", daemon=True).start()

    def take(self, games: int, rows: int) -> ProcessVectorEnv | None:
        """Returns the next vector and hands it over to the caller; None if there is none of this size."""
        return self._futures.pop(0).result() if self._futures and self._size == (games, rows) else None

    @property
    def first(self) -> ProcessVectorEnv | None:
        """The next vector, once it is made; None if there is none."""
        return self._futures[0].result() if self._futures else None

    @property
    def status(self) -> str:
        """Progress, such as 'starting 48 games: 12'; '' once all games have started."""
        futures = [future for future in self._futures if not (future.done() and future.exception())]
        prepared = sum(future.result().prepared for future in futures if future.done())
        total = len(futures) * self._size[0]
        return f"starting {total:,} games: {prepared:,}" if prepared < total else ""

    def close(self) -> None:
        """Closes the vectors that have not been taken, without waiting for games that are still starting."""
        for future in self._futures:
            future.add_done_callback(_close_vector)
        self._futures = []


def _close_vector(future: Future[ProcessVectorEnv]) -> None:
    if future.exception() is None:  # otherwise there is no vector to close
        future.result().close()
