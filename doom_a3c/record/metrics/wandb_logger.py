"""Logs to Weights & Biases: one run per session, which uploads the contents of TensorBoard's event files.

Its environment variables choose the destination: `WANDB_MODE=offline` keeps the run on this machine, `WANDB_PROJECT` and
`WANDB_ENTITY` name the project and its owner, unless the settings do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import wandb
from wandb.errors import UsageError
from wandb.integration.tensorboard import patch, unpatch

from doom_a3c.record.metrics.tensorboard import TensorBoardLogger, TensorBoardSession
from doom_a3c.settings.errors import UserError, first_line

PROJECT = "doom_a3c"


class WandbRun:
    """A run that lasts from its first log to the end of its last one. Owns the library's hook into TensorFlow."""

    def __init__(self, project: str | None, entity: str | None, frames: int = 0) -> None:
        """The session begins at `frames`. Raises UserError for a name that no project can have."""
        self._project, self._entity = project or os.environ.get("WANDB_PROJECT", PROJECT), entity
        try:
            wandb.Settings(project=self._project)
        except UsageError as error:
            raise UserError(f"{'--wandb-project' if project else 'WANDB_PROJECT'}: {first_line(error)}") from error
        self._lock, self._open = threading.Lock(), 0
        self._run: wandb.Run | None = None
        self._session = TensorBoardSession(frames)

    def logger(self, folder: Path) -> TensorBoardLogger:
        """Returns the log in that folder, whose parent names the run. Raises UserError if the library is not set up."""
        with self._lock:
            if self._run is None:
                folder.parent.mkdir(parents=True, exist_ok=True)
                patch(root_logdir=str(folder.parent))  # before TensorFlow opens the first event file
                try:
                    self._run = wandb.init(
                        project=self._project,
                        entity=self._entity,
                        name=folder.parent.name,
                        dir=str(folder.parent),
                        settings=wandb.Settings(silent=True, console="off"),
                    )
                except Exception as error:
                    unpatch()  # or the next try would fail because of this one
                    if isinstance(error, UsageError):  # such as no API key
                        raise UserError(f"--logger wandb: {first_line(error)} Or set WANDB_MODE=offline") from error
                    raise
            self._open += 1
        return self._session.logger(folder, partial(WandbLogger, self, self._run))

    def release(self) -> None:
        """Ends the run if its last log has closed."""
        with self._lock:
            self._open -= 1
            if not self._open and self._run is not None:
                self._run.finish()
                unpatch()
                self._run = None


class WandbLogger(TensorBoardLogger):
    """One TensorBoard run that the library follows; the settings become the run's config."""

    def __init__(self, owner: WandbRun, run: wandb.Run, folder: Path, resumed_at: int | None = None) -> None:
        super().__init__(folder, resumed_at)
        self._owner, self._run = owner, run

    def settings(self, settings: Mapping[str, object]) -> None:
        """Writes the settings to TensorBoard and to the run's config."""
        super().settings(settings)
        self._run.config.update(dict(settings), allow_val_change=True)

    def close(self) -> None:
        """Closes the event file, and the run with its last log."""
        super().close()
        self._owner.release()
