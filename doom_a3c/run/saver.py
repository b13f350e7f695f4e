"""Saving a run: when, and as what."""

from __future__ import annotations

import time

from doom_a3c.agent.model import State
from doom_a3c.run.checkpoint import CheckpointFolder
from doom_a3c.run.evaluation import Best
from doom_a3c.run.run_record import RunRecord


class Saver:
    """Writes checkpoints of a run into its folder. Owns the time of the last one."""

    def __init__(self, folder: CheckpointFolder, record: RunRecord, every: float) -> None:
        """`record` is that of the session's start; a checkpoint is due `every` so many seconds."""
        self._folder, self._record, self._every = folder, record, every
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Tells whether it is time for a checkpoint."""
        return time.monotonic() - self._saved >= self._every

    def save(self, state: State, best: Best) -> None:
        """Writes the newest checkpoint."""
        self._folder.save(state.variables, self._of(state, best))
        self._saved = time.monotonic()

    def save_best(self, state: State, best: Best) -> None:
        """Writes what has been evaluated best."""
        self._folder.save_best(state.variables, self._of(state, best))

    def _of(self, state: State, best: Best) -> RunRecord:
        return self._record._replace(counters=state.counters, best=best)
