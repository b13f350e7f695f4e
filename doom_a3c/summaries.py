"""TensorBoard: scalars at a bounded rate, the run's configuration as text, gifs as animated images."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf


class Summaries:
    """One TensorBoard run (a sub-folder of the logs). Owns its event file.

    Points come at most once a second, and more rarely the longer a run lasts (every 1/2000 of its age), so that a run of
    days writes some ten thousand points and not a full disk.
    """

    def __init__(self, folder: Path, clock: float | None = None) -> None:
        self._writer = tf.summary.create_file_writer(str(folder), max_queue=100, flush_millis=5000)
        self._start = self._next = time.monotonic() if clock is None else clock

    def due(self) -> bool:
        """Tells whether a point may be written now, and if so counts it as written."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + max(1.0, (now - self._start) / 2000)
        return True

    def scalars(self, values: Mapping[str, float], frames: int) -> None:
        """Writes a point of each tag, with frames (or what the caller counts by) on the x-axis; ask `due` first."""
        with self._writer.as_default():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step=frames)

    def histogram(self, tag: str, values: Sequence[float], frames: int) -> None:
        """Writes how often values occur; ask `due` first."""
        with self._writer.as_default():
            tf.summary.histogram(tag, tf.constant(values, tf.float32), step=frames)

    def text(self, tag: str, markdown: str) -> None:
        """Writes a text panel."""
        with self._writer.as_default():
            tf.summary.text(tag, markdown, step=0)
        self._writer.flush()

    def graph(self, graph: Any) -> None:
        """Writes a graph (of a concrete function), for the graph view."""
        with self._writer.as_default():
            tf.summary.graph(graph)
        self._writer.flush()

    def gif(self, tag: str, gif: bytes, height: int, width: int, frames: int) -> None:
        """Writes an animated image: the image panel shows whatever encoding the browser knows."""
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="images"))
        tensor = tf.constant([str(width).encode(), str(height).encode(), gif])
        with self._writer.as_default():
            tf.summary.write(tag, tensor, step=frames, metadata=metadata)

    def close(self) -> None:
        """Writes what is left to disk."""
        self._writer.close()
