"""TensorBoard: scalars, the run's configuration as text, gifs as animated images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from doom_a3c.record.loggers import Metrics, named

_FAULTS = "faults."  # begins the names of faults, their kind follows
TAGS = {
    "reward": "Perf/Reward",
    "maximum_reward": "Perf/Maximum Reward",
    "length": "Perf/Length",
    "value": "Perf/Value",
    "frames_per_second": "Perf/Frames per Second",
    "episodes": "Perf/Episodes",
    "updates": "Perf/Updates",
    "policy_lag": "Perf/Policy Lag",
    "push_seconds": "Perf/Push Seconds",
    "reward_by_episode": "By Episode/Reward",
    "maximum_reward_by_episode": "By Episode/Maximum Reward",
    "policy_loss": "Losses/Policy Loss",
    "value_loss": "Losses/Value Loss",
    "entropy": "Losses/Entropy",
    "grad_norm": "Losses/Grad Norm",
    "var_norm": "Losses/Var Norm",
    "learning_rate": "Schedules/Learning Rate",
    "entropy_cost": "Schedules/Entropy Cost",
    "epsilon": "Schedules/Epsilon",
    "requests": "Queue/Requests",
    "rollouts": "Queue/Rollouts",
    "prediction_batch": "Queue/Prediction Batch",
    "training_batch": "Queue/Training Batch",
    "hosts": "Cluster/Hosts",
    "pushes_per_second": "Cluster/Pushes per Second",
    "bytes_per_second": "Cluster/Bytes per Second",
    "push_lags": "Cluster/Policy Lag",
    "greedy.mean": "Evaluation/Greedy Mean",
    "greedy.std": "Evaluation/Greedy Std",
    "greedy.min": "Evaluation/Greedy Min",
    "greedy.max": "Evaluation/Greedy Max",
    "greedy.episodes": "Evaluation/Greedy Episodes",
    "sampled.mean": "Evaluation/Sampled Mean",
    "sampled.std": "Evaluation/Sampled Std",
    "sampled.min": "Evaluation/Sampled Min",
    "sampled.max": "Evaluation/Sampled Max",
    "sampled.episodes": "Evaluation/Sampled Episodes",
}


def tag(name: str) -> str:
    """Returns the tag of a metric; one that has none is shown by its name."""
    return f"Faults/{name.removeprefix(_FAULTS)}" if name.startswith(_FAULTS) else TAGS.get(name, name)


class TensorBoardLogger:
    """One TensorBoard run (a sub-folder of the logs). Owns its event file."""

    def __init__(self, folder: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder), max_queue=100, flush_millis=5000)

    def metrics(self, metrics: Metrics, count: int) -> None:
        """Writes a point for each number."""
        with self._writer.as_default():
            for name, value in named(metrics):
                tf.summary.scalar(tag(name), value, step=count)

    def histogram(self, name: str, values: Sequence[float], frames: int) -> None:
        """Writes how often values occur."""
        with self._writer.as_default():
            tf.summary.histogram(tag(name), tf.constant(values, tf.float32), step=frames)

    def text(self, name: str, markdown: str) -> None:
        """Writes a text panel."""
        with self._writer.as_default():
            tf.summary.text(name, markdown, step=0)
        self._writer.flush()

    def graph(self, graph: Any) -> None:
        """Writes a graph (of a concrete function), for the graph view."""
        with self._writer.as_default():
            tf.summary.graph(graph)
        self._writer.flush()

    def gif(self, name: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Writes an animated image: the image panel shows whatever encoding the browser knows."""
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="images"))
        tensor = tf.constant([str(width).encode(), str(height).encode(), gif])
        with self._writer.as_default():
            tf.summary.write(name, tensor, step=frames, metadata=metadata)

    def close(self) -> None:
        """Writes what is left to disk."""
        self._writer.close()
