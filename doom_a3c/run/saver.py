"""Saves a run at intervals, and tries again where that fails."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable

from doom_a3c.engines.local import State
from doom_a3c.engines.updates import DivergedError
from doom_a3c.record.metrics.failure_reporter import SECONDS_BETWEEN_TRIES, FailureReporter
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best, RunRecord
from doom_a3c.settings.errors import RunError
from doom_a3c.settings.tree import all_finite

ROOM = 2  # checkpoints that a save needs room for: the newest and the best
NEWEST, BEST = "newest state is", "best weights are"  # parts of a message
FULL = (errno.ENOSPC, errno.EDQUOT)


class SaveError(RunError):
    """A run could not be saved at its beginning, or at its end."""


class Saver:
    """Writes the checkpoints of a run; any thread may call any method.

    Owns the time of the last checkpoint, and best weights that could not be written yet.
    """

    def __init__(self, folder: CheckpointFolder, record: RunRecord, every: float, log: Callable[[str], None]) -> None:
        """`record` is the one at the session's start; a checkpoint is due `every` so many seconds."""
        self._folder, self._record, self._every, self._log = folder, record, every, log
        self._next = time.monotonic() + every
        self._failures = FailureReporter("checkpoints", log)
        self._best: tuple[State, Best] | None = None  # that could not be written yet
        self._made_room = False
        self._lock = threading.Lock()

    def is_due(self) -> bool:
        """Tells whether it is time for a checkpoint."""
        return time.monotonic() >= self._next

    def begin(self, state: State, best: Best) -> None:
        """Writes the first checkpoint of the session; warns if there is hardly room for more.

        Raises:
            SaveError: if there is no room for it.
        """
        _check_finite(state)
        with self._lock:
            try:
                self._write(state, best)
            except OSError as error:
                needed = ROOM * sum(value.nbytes for value in state.variables.values()) / 1e6
                remedy = f"; a run begins where {needed:,.0f} MB are free" if error.errno == errno.ENOSPC else ""
                reason = f"{error.strerror or error}{remedy}"
                raise SaveError(f"{self._folder.folder} could not be written to: {reason}") from None
        size, free = self._folder.last.stat().st_size, shutil.disk_usage(self._folder.folder).free
        if free < ROOM * size:
            room = f"room for {free / 1e6:,.0f} MB, and a save may need {ROOM * size / 1e6:,.0f}"
            self._log(f"warning: {self._folder.folder} has {room}")

    def save(self, state: State, best: Best) -> None:
        """Writes the newest checkpoint; where that fails it is tried again soon.

        Raises:
            DivergedError: if a weight is not finite; then nothing is written.
        """
        _check_finite(state)
        with self._lock:
            try:
                self._write(state, best)
            except OSError as error:
                self._handle_failure(error, NEWEST)
            self._try_best()

    def _write(self, state: State, best: Best) -> None:
        self._next = time.monotonic() + self._every
        self._with_room(state, lambda: self._folder.save(state.variables, self._make_record(state, best)))
        self._failures.report_success(NEWEST)

    def save_best(self, state: State, best: Best) -> None:
        """Writes the best weights, or keeps them until there is room again; raises as `save` does."""
        _check_finite(state)
        with self._lock:
            self._best = state, best
            self._try_best()

    def _try_best(self) -> None:
        if self._best is not None:
            state, best = self._best
            try:
                self._with_room(state, lambda: self._folder.save_best(state.variables, self._make_record(state, best)))
            except OSError as error:
                self._handle_failure(error, BEST)
            else:
                self._best = None
                self._failures.report_success(BEST)

    def _with_room(self, state: State, write: Callable[[], None]) -> None:
        """Writes; deletes older checkpoints where the disk is full. Raises OSError if none of them is left."""
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in FULL or (removed := self._folder.make_room(state.counters.frames)) is None:
                    raise
            if not self._made_room:
                self._log(f"warning: disk full in {self._folder.folder}: deleting old checkpoints, {removed.name} first")
            self._made_room = True

    def check(self) -> None:
        """Raises SaveError if the newest state or the best weights are still unwritten after a failure."""
        for name, path in ((NEWEST, self._folder.last), (BEST, self._folder.best)):
            if self._failures.is_failing(name):
                what = f"{self._folder.folder} could not be written to, and the {name} not saved: {self._failures.reason}"
                before = f"; {path.name} is the one before" if self._folder.is_ours and path.exists() else ""
                raise SaveError(what + before)

    def _handle_failure(self, error: OSError, name: str) -> None:
        self._failures.report_failure(error, name)
        self._next = min(self._next, time.monotonic() + SECONDS_BETWEEN_TRIES)

    def _make_record(self, state: State, best: Best) -> RunRecord:
        return self._record._replace(counters=state.counters, best=best)


def _check_finite(state: State) -> None:
    if not all_finite(state.variables):
        raise DivergedError("a weight of the network is no longer finite")
