"""Weights & Biases: one run there for a session here, whose logs are told apart by the beginning of their metrics' names.

Its own variables decide where it goes: `WANDB_MODE=offline` writes to this machine alone, `WANDB_PROJECT` names a project.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb

from doom_a3c.record.loggers import Logger, Metrics, named
from doom_a3c.record.tags import tag

PROJECT = "doom_a3c"
_COUNT = "frames"  # what metrics are drawn over


class WandbRun:
    """A run. Owns it, from its first log to the end of the last one."""

    def __init__(self) -> None:
        self._lock, self._open = threading.Lock(), 0
        self._run: Any = None

    def logger(self, folder: Path) -> Logger:
        """Returns the log of that folder, which is the run's name and the log's."""
        with self._lock:
            if self._run is None:
                folder.parent.mkdir(parents=True, exist_ok=True)
                self._run = wandb.init(
                    project=os.environ.get("WANDB_PROJECT", PROJECT),
                    name=folder.parent.name,
                    dir=str(folder.parent),
                    settings=wandb.Settings(silent=True, console="off"),
                )
                self._run.define_metric(_COUNT)
                self._run.define_metric("*", step_metric=_COUNT)
            self._open += 1
        return WandbLogger(self, self._run, folder.name)

    def release(self) -> None:
        """Ends the run with its last log."""
        with self._lock:
            self._open -= 1
            if not self._open:
                self._run.finish()
                self._run = None


class WandbLogger:
    """One log of a run."""

    def __init__(self, owner: WandbRun, run: Any, name: str) -> None:
        self._owner, self._run = owner, run
        self._prefix = "" if name == "global" else f"{name}/"

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Logs all numbers."""
        self._run.log({_COUNT: count, **{f"{self._prefix}{tag(name)}": value for name, value in named(metrics)}})

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Logs how often values occur."""
        self._run.log({_COUNT: frames, f"{self._prefix}{tag(name)}": wandb.Histogram(list(values))})

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Has them as the run's config."""
        self._run.config.update(dict(settings), allow_val_change=True)

    def graph(self, graph: Any) -> None:
        """Does nothing: it has no place for one."""

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Logs an animated picture."""
        self._run.log({_COUNT: frames, f"{self._prefix}{name}": wandb.Video(io.BytesIO(gif), format="gif")})

    def close(self) -> None:
        """Ends the run, if it is the last log of it."""
        self._owner.release()
