"""Logs as tables: `metrics.csv` with one number per line, and `settings.json`."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from doom_a3c.record.files import write_json
from doom_a3c.record.metrics.loggers import Metrics, NullLogger, flatten
from doom_a3c.record.metrics.tags import make_tag

_FLUSH_SECONDS = 5.0
TABLE = "metrics.csv"
COLUMNS = ("count", "metric", "value")


def _drop_partial_line(table: Path) -> None:
    """Cuts off the line that a killed run left unfinished."""
    if table.exists():
        whole = table.read_bytes()
        if not whole.endswith(b"\n"):
            table.write_bytes(whole[: whole.rfind(b"\n") + 1])


class CsvLogger(NullLogger):
    """One log in its own folder; a resumed run appends to its table. Owns the open file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._lock, self._flushed = folder, threading.Lock(), time.monotonic()
        table = folder / TABLE
        _drop_partial_line(table)
        self._file = table.open("a", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if not self._file.tell():  # new, or of a run that was killed before its first flush
            self._writer.writerow(COLUMNS)

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Writes one line per number."""
        with self._lock:
            self._writer.writerows((count, make_tag(name), value) for name, value in flatten(metrics))
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._file.flush()
                self._flushed = time.monotonic()

    def settings(self, settings: Mapping[str, object]) -> None:
        """Writes `settings.json`."""
        write_json(self._folder / "settings.json", settings)

    def close(self) -> None:
        self._file.close()
