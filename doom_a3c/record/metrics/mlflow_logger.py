"""Logs to MLflow: one run per session; the name of a log prefixes its metrics.

`MLFLOW_TRACKING_URI` chooses the destination; the default is `mlflow.db` in the current folder.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from doom_a3c.record.metrics.loggers import Logger, Metrics, NullLogger, flatten
from doom_a3c.record.metrics.tags import make_tag

EXPERIMENT = "doom_a3c"
_MAX_PARAMETER = 500  # characters


class MlflowRun:
    """A run that lasts from its first log to the end of its last one."""

    def __init__(self) -> None:
        self._lock, self._open, self._id = threading.Lock(), 0, ""
        self._client: MlflowClient | None = None

    def logger(self, folder: Path) -> Logger:
        """Returns the log in that folder, whose parent names the run."""
        with self._lock:
            if self._client is None:
                self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"))
                known = self._client.get_experiment_by_name(EXPERIMENT)
                experiment = known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
                self._id = self._client.create_run(experiment, run_name=folder.parent.name).info.run_id
            self._open += 1
        return MlflowLogger(self, self._client, self._id, folder.name)

    def release(self) -> None:
        """Ends the run if its last log has closed."""
        with self._lock:
            self._open -= 1
            if not self._open and self._client is not None:
                self._client.set_terminated(self._id)
                self._client = None


class MlflowLogger(NullLogger):
    """One log of a run: metrics and settings."""

    def __init__(self, owner: MlflowRun, client: MlflowClient, run: str, name: str) -> None:
        self._owner, self._client, self._run = owner, client, run
        self._prefix = "" if name == "global" else f"{name}/"

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Logs all numbers in one request."""
        now = int(1000 * time.time())
        numbers = [Metric(_clean(f"{self._prefix}{make_tag(name)}"), value, now, count) for name, value in flatten(metrics)]
        self._client.log_batch(self._run, metrics=numbers)

    def settings(self, settings: Mapping[str, object]) -> None:
        """Logs the settings as parameters."""
        params = [Param(_clean(name), str(value)[:_MAX_PARAMETER]) for name, value in settings.items()]
        self._client.log_batch(self._run, params=params)

    def close(self) -> None:
        self._owner.release()


def _clean(name: str) -> str:
    """Replaces characters that MLflow does not accept in names."""
    return re.sub(r"[^\w\-. /]", "_", name)
