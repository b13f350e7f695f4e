"""MLflow: one run there for a session here, whose logs are told apart by the beginning of their metrics' names.

`MLFLOW_TRACKING_URI` says where it goes; without it, that is `mlflow.db` in the current folder.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from doom_a3c.record.loggers import Deaf, Logger, Metrics, named
from doom_a3c.record.tags import tag

EXPERIMENT = "doom_a3c"
_LONGEST = 500  # characters of a parameter


class MlflowRun:
    """A run. Owns it, from its first log to the end of the last one."""

    def __init__(self) -> None:
        self._lock, self._open, self._id = threading.Lock(), 0, ""
        self._client: Any = None

    def logger(self, folder: Path) -> Logger:
        """Returns the log of that folder, which is the run's name and the log's."""
        with self._lock:
            if self._client is None:
                self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"))
                known = self._client.get_experiment_by_name(EXPERIMENT)
                experiment = known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
                self._id = self._client.create_run(experiment, run_name=folder.parent.name).info.run_id
            self._open += 1
        return MlflowLogger(self, self._client, self._id, folder.name)

    def release(self) -> None:
        """Ends the run with its last log."""
        with self._lock:
            self._open -= 1
            if not self._open:
                self._client.set_terminated(self._id)
                self._client = None


class MlflowLogger(Deaf):
    """One log of a run: metrics and settings."""

    def __init__(self, owner: MlflowRun, client: Any, run: str, name: str) -> None:
        self._owner, self._client, self._run = owner, client, run
        self._prefix = "" if name == "global" else f"{name}/"

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Logs all numbers."""
        for name, value in named(metrics):
            self._client.log_metric(self._run, _allowed(f"{self._prefix}{tag(name)}"), value, step=count)

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Has them as the run's parameters."""
        for name, value in settings.items():
            self._client.log_param(self._run, _allowed(name), str(value)[:_LONGEST])

    def close(self) -> None:
        """Ends the run, if it is the last log of it."""
        self._owner.release()


def _allowed(name: str) -> str:
    """Returns a name without the characters that MLflow takes none of."""
    return re.sub(r"[^\w\-. /]", "_", name)
