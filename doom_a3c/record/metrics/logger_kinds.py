"""The kinds of loggers by their names in `--logger`."""

from __future__ import annotations

import os

from doom_a3c.record.metrics.loggers import MakeLogger
from doom_a3c.settings.errors import UserError


def find_logger(kind: str, project: str | None = None, entity: str | None = None, frames: int = 0) -> MakeLogger:
    """Returns the constructor of loggers of a kind: 'tensorboard', 'csv', 'wandb' or 'mlflow'.

    `project` and `entity` are the destination of 'wandb'; None leaves it to its environment variables. The session begins
    at `frames`.

    Raises:
        UserError: if a package that it needs is not installed, or no project can have that name.
    """
    try:  # late: each loads packages that few runs need
        match kind:
            case "csv":
                from doom_a3c.record.metrics.csv_logger import CsvLogger

                return CsvLogger
            case "wandb":
                os.environ.setdefault("WANDB_SILENT", "true")
                from doom_a3c.record.metrics.wandb_logger import WandbRun

                return WandbRun(project, entity, frames).logger
            case "mlflow":
                os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
                from doom_a3c.record.metrics.mlflow_logger import MlflowRun

                return MlflowRun().logger
    except ModuleNotFoundError as error:
        raise UserError(f"--logger {kind} needs {error.name}: pip install -r requirements-loggers.txt") from error
    from doom_a3c.record.metrics.tensorboard import TensorBoardSession

    return TensorBoardSession(frames).logger
