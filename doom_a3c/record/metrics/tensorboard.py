"""Logs to TensorBoard: scalars, histograms, the run's settings as text and hyper-parameters, gifs as animated images."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams import summary_v2 as hparams  # `api` also imports Keras, which takes half a second

from doom_a3c.record.metrics.loggers import Metrics, flatten
from doom_a3c.record.metrics.tags import make_tag

_QUIETLY = np.errstate(over="ignore")  # rewards may exceed float32
_RESULTS = {"confirmed_score": "best, confirmed", "score": "evaluation"}  # metrics of the hyper-parameter view


class TensorBoardLogger:
    """One TensorBoard run in its own folder. Owns the event file."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        """Begins a session at the frame `resumed_at`: later points, from a killed session, are no longer shown."""
        self._run_name = folder.parent.name
        self._writer = tf.summary.create_file_writer(str(folder), max_queue=100, flush_millis=5000)
        if resumed_at is not None:
            started = SessionLog(status=SessionLog.START)
            event = Event(wall_time=time.time(), step=resumed_at + 1, session_log=started)
            tf.raw_ops.ImportEvent(writer=self._writer._resource, event=event.SerializeToString())

    @_QUIETLY
    def metrics(self, metrics: Metrics, count: int) -> None:
        """Writes one point per number."""
        with self._writer.as_default():
            for name, value in flatten(metrics):
                tf.summary.scalar(make_tag(name), np.asarray(value, np.float32), step=_to_step(count))

    @_QUIETLY
    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        with self._writer.as_default():
            tf.summary.histogram(make_tag(name), np.asarray(values, np.float32), step=_to_step(frames))

    def settings(self, settings: Mapping[str, object]) -> None:
        """Writes all settings as text, and the scalar ones as hyper-parameters of the evaluation score."""
        with self._writer.as_default():
            tf.summary.text("config", f"```json\n{json.dumps(settings, indent=2)}\n```", step=0)
            known = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
            hparams.hparams_config(
                hparams=[hparams.HParam(name) for name in sorted(known)],
                metrics=[hparams.Metric(make_tag(name), display_name=shown) for name, shown in _RESULTS.items()],
            )
            hparams.hparams(known, trial_id=self._run_name)  # the name of the row
        self._writer.flush()

    def graph(self, graph: Any) -> None:
        """Writes the graph of a concrete function for the graph view."""
        with self._writer.as_default():
            tf.summary.graph(graph)
        self._writer.flush()

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Writes an animated image: the image panel passes the encoded bytes on to the browser."""
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="images"))
        tensor = tf.constant([str(width).encode(), str(height).encode(), gif])
        with self._writer.as_default():
            tf.summary.write(name, tensor, step=_to_step(frames), metadata=metadata)

    def close(self) -> None:
        self._writer.close()


class TensorBoardSession:
    """Makes the logs of a session that begins at `frames`. Owns the folders of those it has made."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._begun: set[Path] = set()

    def logger(
        self, folder: Path, make: Callable[[Path, int | None], TensorBoardLogger] = TensorBoardLogger
    ) -> TensorBoardLogger:
        """Opens a log of a kind, or reopens it after a failure."""
        log = make(folder, None if folder in self._begun else self._frames)
        self._begun.add(folder)
        return log


def _to_step(count: int) -> NDArray[np.int64]:
    """Returns a count as an array: TensorFlow caches forever every Python number that it converts to a tensor."""
    return np.asarray(count, np.int64)
