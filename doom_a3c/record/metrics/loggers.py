"""The interface of loggers: TensorBoard and others.

Metrics travel as records (named tuples); only a logger knows the names under which its kind shows them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from doom_a3c.record.metrics.failure_reporter import SECONDS_BETWEEN_TRIES, FailureReporter
from doom_a3c.settings.errors import UserError

Metrics = Any  # a named tuple or mapping of numbers, None where there is no number, and nested records


class Logger(Protocol):
    """The log of a run, a worker or a host. Thread-safe; callers limit the rate."""

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Writes metrics at a frame count, or at an episode count where their names say so."""

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Writes a histogram of values."""

    def settings(self, settings: Mapping[str, object]) -> None:
        """Writes the settings of the run by name; some are tables."""

    def graph(self, graph: Any) -> None:
        """Writes the graph of a TensorFlow concrete function."""

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Writes an animated image."""

    def close(self) -> None:
        """Flushes the log and closes it."""


class NullLogger:
    """Ignores everything but metrics: the base of loggers without histograms, graphs and gifs."""

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Does nothing."""

    def settings(self, settings: Mapping[str, object]) -> None:
        """Does nothing."""

    def graph(self, graph: Any) -> None:
        """Does nothing."""

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Does nothing."""


MakeLogger = Callable[[Path], Logger]  # makes the log in that folder


class RetryingLogger:
    """A `Logger` that survives a failing log, as on a full disk: reports it once, drops points, and reopens it later.

    A user's mistake, such as a missing key, is raised instead as long as nothing has been written.
    """

    def __init__(self, name: str, make: Callable[[], Logger], failures: FailureReporter) -> None:
        """`failures` is shared by all logs of a run and identifies this one by `name`."""
        self._name, self._make, self._failures = name, make, failures
        self._lock = threading.Lock()
        self._next = 0.0  # time of the next attempt
        self._logger: Logger | None = None
        self._has_written = False

    def _try(self, call: Callable[[Logger], None]) -> None:
        with self._lock:
            if time.monotonic() < self._next:
                return
            try:
                self._logger = self._logger or self._make()
                call(self._logger)
                self._has_written = True
                self._failures.report_success(self._name)
            except Exception as error:  # each kind of log raises its own errors
                if isinstance(error, UserError) and not self._has_written:
                    raise
                self._failures.report_failure(error, self._name)
                self._next, old, self._logger = time.monotonic() + SECONDS_BETWEEN_TRIES, self._logger, None
                with contextlib.suppress(Exception):
                    if old is not None:
                        old.close()

    def metrics(self, metrics: Metrics, count: int) -> None:
        self._try(lambda logger: logger.metrics(metrics, count))

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        self._try(lambda logger: logger.histogram(name, values, frames))

    def settings(self, settings: Mapping[str, object]) -> None:
        self._try(lambda logger: logger.settings(settings))

    def graph(self, graph: Any) -> None:
        self._try(lambda logger: logger.graph(graph))

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        self._try(lambda logger: logger.gif(name, gif, height, width, frames))

    def close(self) -> None:
        """See `Logger`; does not open a log only to close it."""
        if self._logger is not None:
            self._try(lambda logger: logger.close())


class Loggers:
    """The logs of one run, each in its own folder. Owns them; opens each on first use."""

    def __init__(self, make: MakeLogger, folder: Path, log: Callable[[str], None] = lambda message: None) -> None:
        """`log` receives a line when logs fail, and one when they work again."""
        self._make, self._folder = make, folder
        self._failures = FailureReporter("logs", log)
        self._loggers: dict[str, Logger] = {}

    def __call__(self, name: str) -> Logger:
        if name not in self._loggers:
            self._loggers[name] = RetryingLogger(name, partial(self._make, self._folder / name), self._failures)
        return self._loggers[name]

    def close(self) -> None:
        """Closes all logs, even if closing one raises."""
        with contextlib.ExitStack() as stack:
            for logger in self._loggers.values():
                stack.callback(logger.close)


def flatten(metrics: Metrics, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields name and value of every number in metrics; nested records have dotted names."""
    items = metrics.items() if isinstance(metrics, Mapping) else metrics._asdict().items()
    for name, value in items:
        if isinstance(value, Mapping | tuple):
            yield from flatten(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", float(value)
