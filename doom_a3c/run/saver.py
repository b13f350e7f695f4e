"""Saves a run at intervals, and retries after failures."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from doom_a3c.engines.state import State
from doom_a3c.engines.updates import DivergedError
from doom_a3c.record.files import format_size
from doom_a3c.record.metrics.failure_reporter import SECONDS_BETWEEN_TRIES, FailureReporter
from doom_a3c.run.checkpoints.checkpoint import all_finite
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best, RunRecord
from doom_a3c.run.checkpoints.runs import link_newest
from doom_a3c.settings.errors import RunError

ROOM = 2  # checkpoints written by a save: the newest and the best
NEWEST, BEST = "newest state is", "best weights are"  # parts of a message
NOTE_SECONDS = 1.0
FULL = (errno.ENOSPC, errno.EDQUOT)


class SaveError(RunError):
    """A run could not be saved at its start or its end."""


class Saver:
    """Writes the checkpoints of a run. Thread-safe.

    Owns the time of the next checkpoint, and best weights that could not be written yet.
    """

    def __init__(self, folder: CheckpointFolder, record: RunRecord, every: float, log: Callable[[str], None]) -> None:
        """`record` is from the session's start; checkpoints are due at intervals of `every` seconds."""
        self._folder, self._record, self._every, self._log = folder, record, every, log
        self._next = time.monotonic() + every
        self._next_note = 0.0
        self._failures = FailureReporter("checkpoints", log)
        self._best: tuple[State, Best] | None = None  # not written yet
        self._made_room = False
        self._unsaved: dict[str, int] = {}  # frames of what could not be written, by its part of a message
        self._unstarted = False  # the first checkpoint could not be written: there is no run to save
        self._lock = threading.Lock()

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def note_progress(self, frames: int) -> None:
        """Notes once a second which frame the run has reached, for the message after a kill."""
        lock, now = self._folder.lock, time.monotonic()
        if lock is not None and now >= self._next_note:
            self._next_note = now + NOTE_SECONDS
            lock.note(self._record.name, frames)

    def begin(self, state: State, best: Best) -> None:
        """Writes the first checkpoint of the session; warns if there is little room for more.

        Raises:
            SaveError: if it cannot be written.
        """
        _check_finite(state)
        with self._lock:
            try:
                self._write(state, best)
            except OSError as error:
                self._unstarted = True
                needed = ROOM * sum(value.nbytes for value in state.variables.values())
                remedy = f"; a run needs {format_size(needed)}" if error.errno == errno.ENOSPC else ""
                reason = f"{error.strerror or error}{remedy}"
                raise SaveError(f"{error.filename or self._folder.folder} could not be written to: {reason}") from None
        if self._folder.folder.name == self._record.name:  # else the models folder itself is the run's
            link_newest(self._folder.folder)
        size, free = self._folder.last.stat().st_size, shutil.disk_usage(self._folder.folder).free
        if free < ROOM * size:
            room = f"{format_size(free)} free, and a save may need {format_size(ROOM * size)}"
            self._log(f"warning: {self._folder.folder} has {room}")

    def save(self, state: State, best: Best) -> None:
        """Writes the newest checkpoint, unless the first one failed; after a failure it is soon due again.

        Raises:
            DivergedError: if a weight is not finite; nothing is written.
        """
        _check_finite(state)
        if self._unstarted:
            return
        with self._lock:
            try:
                self._write(state, best)
            except OSError as error:
                self._handle_failure(error, NEWEST, state)
            self._try_best()

    def _write(self, state: State, best: Best) -> None:
        self._next = time.monotonic() + self._every
        self._write_with_room(state, lambda: self._folder.save(state.variables, self._make_record(state, best)))
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
                self._write_with_room(
                    state, lambda: self._folder.save_best(state.variables, self._make_record(state, best))
                )
            except OSError as error:
                self._handle_failure(error, BEST, state)
            else:
                self._best = None
                self._failures.report_success(BEST)

    def _write_with_room(self, state: State, write: Callable[[], None]) -> None:
        """Writes, and deletes older checkpoints while the disk is full; raises OSError if none is left to delete."""
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
                lost = self._describe_loss(name, path, self._unsaved[name])
                raise SaveError(f"{self._folder.folder} could not be written to: {self._failures.reason}; {lost}")

    def _describe_loss(self, name: str, path: Path, frames: int) -> str:
        """Describes the loss of an unwritten state at `frames`; names the checkpoint with its weights, or an older one."""
        loss = f"the {name} not saved"
        if not self._folder.is_ours:
            return loss
        saved = {one: at for one, at in self._folder.saved.items() if one.exists()}
        if holder := next((one for one, at in saved.items() if at == frames), None):
            without = "without their newest evaluation" if holder == path else f"and {path.name} has not"
            return f"{holder.name} has the {name.split(maxsplit=1)[0]} weights, {without}"
        since = f" by {frames - saved[path]:,} frames" if path in saved else ""
        return f"{loss}, and {path.name} is older{since}" if path.exists() else loss

    def _handle_failure(self, error: OSError, name: str, state: State) -> None:
        self._unsaved[name] = state.counters.frames
        self._failures.report_failure(error, name)
        self._next = min(self._next, time.monotonic() + SECONDS_BETWEEN_TRIES)

    def _make_record(self, state: State, best: Best) -> RunRecord:
        return self._record._replace(counters=state.counters, best=best)


def _check_finite(state: State) -> None:
    if not all_finite(state.variables):
        raise DivergedError("a weight of the network is not finite")
