"""Where the metrics of a run go: the door for TensorBoard, and for others of its kind.

Metrics travel as records (named tuples); only a logger knows what its own kind calls them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Metrics = Any  # a named tuple or mapping of numbers, of None where there is no number, and of such records in turn


class Logger(Protocol):
    """One log: of the whole run, of a worker, of a host. Any thread may call every method; callers limit the rate."""

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Writes metrics, over what they are counted by: frames, or episodes where their names say so."""

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Writes how often values occur."""

    def text(self, name: str, markdown: str) -> None:
        """Writes a text."""

    def graph(self, graph: Any) -> None:
        """Writes the graph of a concrete function of TensorFlow's."""

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Writes an animated picture."""

    def close(self) -> None:
        """Writes what is left to disk."""


MakeLogger = Callable[[Path], Logger]  # of the log in that folder


class Loggers:
    """The logs of one run, each in a folder of its own. Owns them; makes one when it is first asked for."""

    def __init__(self, make: MakeLogger, folder: Path) -> None:
        self._make, self._folder = make, folder
        self._loggers: dict[str, Logger] = {}

    def __call__(self, name: str) -> Logger:
        """Returns the log of that name."""
        if name not in self._loggers:
            self._loggers[name] = self._make(self._folder / name)
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
