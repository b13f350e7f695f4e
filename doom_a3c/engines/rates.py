"""How fast the hosts of a cluster are, for the live line and for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from doom_a3c.summaries import Summaries

_SECONDS = 2.0  # that a rate is the mean of


class Rates:
    """Rates of all hosts. Owns what it measures; writes a TensorBoard run for each, and one for the server."""

    def __init__(self, make_summaries: Callable[[str], Summaries]) -> None:
        self._make_summaries = make_summaries
        self._server = make_summaries("server")
        self._runs: dict[str, Summaries] = {}
        self._tallies: Mapping[str, Mapping[str, Any]] = {}
        self._lags: list[int] = []
        self._since = time.monotonic()
        self._hosts: dict[str, float] = {}  # frames/s
        self._pushes = self._bytes = 0.0  # per second

    def add(self, tallies: Mapping[str, Mapping[str, Any]], lags: Sequence[int], frames: int) -> list[str]:
        """Takes in what has come from each host since the server began, and the staleness of the newest pushes.

        Returns:
            The hosts that have pushed since the rates were last measured; none where it is too early to measure.
        """
        self._lags += lags
        now = time.monotonic()
        if now - self._since < _SECONDS:
            return []
        passed, self._since = now - self._since, now
        self._hosts, self._pushes, self._bytes = {}, 0.0, 0.0
        for name, tally in tallies.items():
            before = self._tallies.get(name, {})
            frames_gained, pushes, size = (
                max(0, tally[key] - before.get(key, 0)) / passed for key in ("frames", "pushes", "bytes")
            )
            if pushes:
                self._hosts[name] = frames_gained
                self._pushes, self._bytes = self._pushes + pushes, self._bytes + size
                self._write(name, {**tally["metrics"], "Perf/Frames per Second": frames_gained}, frames)
        self._tallies = tallies
        if self._lags and self._server.due():
            self._server.histogram("Cluster/Staleness", self._lags, frames)
            self._lags = []
        return list(self._hosts)

    def _write(self, name: str, values: Mapping[str, float], frames: int) -> None:
        run = self._runs.get(name) or self._runs.setdefault(name, self._make_summaries(f"host_{name}"))
        if run.due():
            run.scalars(values, frames)

    def metrics(self) -> dict[str, float]:
        """Returns the rates of the whole cluster by TensorBoard tag."""
        return {
            "Cluster/Hosts": float(len(self._hosts)),
            "Cluster/Pushes per Second": self._pushes,
            "Cluster/Bytes per Second": self._bytes,
        }

    def describe(self) -> str:
        """Returns all rates in words."""
        if not self._hosts:
            return "no host plays yet"
        each = " + ".join(f"{rate:,.0f}" for rate in self._hosts.values())
        return f"{len(self._hosts)} hosts: {each} frames/s, {self._pushes:.1f} pushes/s, {self._bytes / 1e6:.1f} MB/s"
