"""Frames, pushes and bytes per second of the hosts of a cluster, for the terminal and the logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from doom_a3c.record.metrics.loggers import Logger
from doom_a3c.record.metrics.rate_limiter import RateLimiter, log_limiter

_SECONDS = 2.0  # shortest interval of a measurement
_SILENT_SECONDS = 30.0  # without a push, after which a host is left out


class _Measured(NamedTuple):
    """The tally of a host at its last measurement, and its rates."""

    time: float  # of the newest measurement with a push in it
    tally: Mapping[str, Any]
    frames: float = 0.0  # per second, as are the next two
    pushes: float = 0.0
    bytes: float = 0.0


class ClusterMetrics(NamedTuple):
    """Number and rates of the playing hosts."""

    hosts: int
    pushes_per_second: float
    bytes_per_second: float


class Rates:
    """Measures the rates of all hosts. Owns a log for each host and one for the server."""

    def __init__(self, make_logger: Callable[[str], Logger]) -> None:
        self._make_logger = make_logger
        self._server_limiter = log_limiter()
        self._limiters: dict[str, RateLimiter] = {}
        self._lags: list[int] = []
        self._since = time.monotonic()
        self._hosts: dict[str, _Measured] = {}  # every host that has pushed
        self._lost: set[str] = set()

    def add(self, tallies: Mapping[str, Mapping[str, Any]], lags: Sequence[int], frames: int) -> list[str]:
        """Measures the rates from the hosts' tallies, and collects the policy lags of the newest pushes.

        Args:
            tallies: of each host, since the server started.
            lags: of the pushes since the last call, in updates.
            frames: played by the run, for the logs.

        Returns:
            The hosts with a push since the last measurement; [] if it is too early for a new measurement.
        """
        self._lags += lags
        now = time.monotonic()
        if now - self._since < _SECONDS:
            return []
        nothing = _Measured(self._since, {"frames": 0, "pushes": 0, "bytes": 0})
        pushed = []
        for name, tally in tallies.items():
            known = self._hosts.get(name, nothing)
            if tally["pushes"] == known.tally["pushes"]:
                continue
            # A restarted server counts from 0 again.
            gained = [max(0, tally[key] - known.tally[key]) for key in ("frames", "pushes", "bytes")]
            host = self._hosts[name] = _Measured(now, tally, *(count / (now - known.time) for count in gained))
            self._write(name, {**tally["metrics"], "frames_per_second": host.frames}, frames)
            pushed.append(name)
        self._since = now
        self._lost.difference_update(pushed)
        if self._lags and self._server_limiter.allow():
            self._make_logger("server").histogram("push_lags", self._lags, frames)
            self._lags = []
        return pushed

    def drop(self, name: str) -> None:
        """Leaves a host out until it pushes again."""
        self._lost.add(name)

    def _list_playing(self) -> list[_Measured]:
        oldest = time.monotonic() - _SILENT_SECONDS
        return [host for name, host in self._hosts.items() if name not in self._lost and host.time > oldest]

    def _write(self, name: str, metrics: Mapping[str, float], frames: int) -> None:
        if self._limiters.setdefault(name, log_limiter()).allow():
            self._make_logger(f"host_{name}").metrics(metrics, frames)

    def metrics(self) -> ClusterMetrics:
        hosts = self._list_playing()
        return ClusterMetrics(len(hosts), sum(host.pushes for host in hosts), sum(host.bytes for host in hosts))

    def describe(self) -> str:
        hosts = self._list_playing()
        if not hosts:
            return "no host is playing yet"
        each = " + ".join(f"{host.frames:,.0f}" for host in hosts)
        pushes, megabytes = sum(host.pushes for host in hosts), sum(host.bytes for host in hosts) / 1e6
        return f"{len(hosts)} hosts: {each} frames/s, {pushes:.1f} pushes/s, {megabytes:.1f} MB/s"
