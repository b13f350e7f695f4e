"""Where the metrics of a run go: the door for TensorBoard, and for others of its kind.

Metrics travel as records (named tuples); only a logger knows what its own kind calls them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from doom_a3c.record.outage import SECONDS_BETWEEN_TRIES, Outage

Metrics = Any  # a named tuple or mapping of numbers, of None where there is no number, and of such records in turn


class Logger(Protocol):
    """One log: of the whole run, of a worker, of a host. Any thread may call every method; callers limit the rate."""

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Writes metrics, over what they are counted by: frames, or episodes where their names say so."""

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Writes how often values occur."""

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings of the run, by name; some are tables."""

    def graph(self, graph: Any) -> None:
        """Writes the graph of a concrete function of TensorFlow's."""

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Writes an animated picture."""

    def close(self) -> None:
        """Writes what is left to disk."""


class Deaf:
    """What all loggers of a kind that has no place for something do with it: nothing."""

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Does nothing."""

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Does nothing."""

    def graph(self, graph: Any) -> None:
        """Does nothing."""

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Does nothing."""


MakeLogger = Callable[[Path], Logger]  # of the log in that folder


class PatientLogger:
    """A log that may fail, as a disk is full: then it says so once, does without, and is made anew after a while."""

    def __init__(self, name: str, make: Callable[[], Logger], outage: Outage) -> None:
        """`outage` is told of failures of all logs, each by its name."""
        self._name, self._make, self._outage = name, make, outage
        self._lock = threading.Lock()
        self._next = 0.0  # when it is worth a try again
        self._logger: Logger | None = None

    def _try(self, call: Callable[[Logger], None]) -> None:
        with self._lock:
            if time.monotonic() < self._next:
                return
            try:
                self._logger = self._logger or self._make()
                call(self._logger)
                self._outage.worked(self._name)
            except Exception as error:  # of any kind of log
                self._outage.failed(error, self._name)
                self._next, old, self._logger = time.monotonic() + SECONDS_BETWEEN_TRIES, self._logger, None
                with contextlib.suppress(Exception):
                    if old is not None:
                        old.close()

    def metrics(self, metrics: Metrics, count: int) -> None:
        """As `Logger` says."""
        self._try(lambda logger: logger.metrics(metrics, count))

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """As `Logger` says."""
        self._try(lambda logger: logger.histogram(name, values, frames))

    def settings(self, settings: Mapping[str, Any]) -> None:
        """As `Logger` says."""
        self._try(lambda logger: logger.settings(settings))

    def graph(self, graph: Any) -> None:
        """As `Logger` says."""
        self._try(lambda logger: logger.graph(graph))

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """As `Logger` says."""
        self._try(lambda logger: logger.gif(name, gif, height, width, frames))

    def close(self) -> None:
        """As `Logger` says; nothing is made for it."""
        if self._logger is not None:
            self._try(lambda logger: logger.close())


class Loggers:
    """The logs of one run, each in a folder of its own. Owns them; makes one when it is first asked for."""

    def __init__(self, make: MakeLogger, folder: Path, log: Callable[[str], None] = lambda message: None) -> None:
        """`log` is told when logs fail, and when they work again."""
        self._make, self._folder = make, folder
        self._outage = Outage("logs", log)
        self._loggers: dict[str, Logger] = {}

    def __call__(self, name: str) -> Logger:
        """Returns the log of that name."""
        if name not in self._loggers:
            self._loggers[name] = PatientLogger(name, partial(self._make, self._folder / name), self._outage)
        return self._loggers[name]

    def close(self) -> None:
        """Closes all, also when one of them raises."""
        with contextlib.ExitStack() as stack:
            for logger in self._loggers.values():
                stack.callback(logger.close)


def named(metrics: Metrics, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields the numbers in metrics with their names; those of records within have the outer name before a dot."""
    items = metrics.items() if isinstance(metrics, Mapping) else metrics._asdict().items()
    for name, value in items:
        if isinstance(value, Mapping | tuple):
            yield from named(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", float(value)
