"""A training run of the cluster engine for a benchmark to watch and break."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from doom_a3c.run import remote
from doom_a3c.settings import catalog, scenarios
from doom_a3c.settings.config import Config

if TYPE_CHECKING:
    from doom_a3c.engines.cluster.messages import Answer, Push, Server, ServerState, ServerStatus
    from doom_a3c.engines.state import State
    from doom_a3c.run.builder import Builder


Value = TypeVar("Value")


def make_settings(scenario: str, **changes: Any) -> tuple[Config, dict[str, Any], Builder]:
    """Returns a scenario's settings, also as plain data, and its network builder."""
    from doom_a3c.run.builder import Builder

    found = catalog.find(scenario)
    values = {**found.training, "scenario": scenario, "engine": "cluster", **changes}
    resolved, config = scenarios.apply_overrides(found, values, "settings")
    return config, remote.pack_settings(config, resolved, 0), Builder(resolved, config)


def make_start_state(config: Config, builder: Builder) -> State:
    """Returns the initial state of a run."""
    from doom_a3c.engines.local import capture_state
    from doom_a3c.record.metrics.progress import Progress

    return capture_state(builder.make_model(config), Progress())


def build_audited_server(log: Path, settings: dict[str, Any]) -> Server:
    """Returns a server that logs its update count at start and every push it applies or refuses, with times."""
    server = remote.build_server(settings)
    take_in, begin, entries = server.push, server.start, log.open("a")

    def write(*entry: Any) -> None:
        entries.write(json.dumps([time.time(), *entry]) + "\n")
        entries.flush()

    def audited_start(state: ServerState, hosts: dict[str, int]) -> None:
        write("began", state["counters"]["updates"])
        begin(state, hosts)

    def audited_push(host: str, generation: int, sequence: int, push: Push, known_version: int) -> Answer:
        answer = take_in(host, generation, sequence, push, known_version)
        if answer["verdict"] in ("applied", "fenced"):
            write(answer["verdict"], host, generation, sequence)
        return answer

    server.start, server.push = audited_start, audited_push  # type: ignore[method-assign]  # the rest is unchanged
    return server


class Audit:
    """The log of a run's audited servers. An update is one push, as long as --push-rollouts is 1."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _entries(self, kind: str) -> list[list[Any]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [entry for entry in map(json.loads, lines) if entry[1] == kind]

    def _lineage(self) -> tuple[list[list[Any]], list[int]]:
        """Returns the pushes in the weights, and the number lost each time a server started."""
        kept: list[list[Any]] = []
        lost = []
        entries = sorted(self._entries("began") + self._entries("applied"))
        for entry in entries:
            if entry[1] == "applied":
                kept.append(entry)
            else:
                lost.append(len(kept) - entry[2])
                del kept[entry[2] :]
        return kept, lost

    def applied(self) -> list[list[Any]]:
        """Returns the pushes in the weights: time, 'applied', host, generation, sequence."""
        return self._lineage()[0]

    def lost(self) -> list[int]:
        """Counts the updates lost each time a server started, 0 for the first."""
        return self._lineage()[1]

    def twice(self) -> int:
        """Counts the pushes that are in the weights more than once."""
        names = [tuple(entry[2:]) for entry in self.applied()]
        return len(names) - len(set(names))

    @property
    def fenced(self) -> int:
        """The number of pushes refused because their host had been replaced."""
        return len(self._entries("fenced"))

    def generations(self) -> dict[str, int]:
        """Returns the newest generation of every host."""
        return {host: generation for _, _, host, generation, _ in self._entries("applied")}

    def first_of_a_new_generation(self, known: dict[str, int]) -> float | None:
        """Returns the time of the first push by a host that replaced a known one."""
        times = [entry[0] for entry in self._entries("applied") if entry[3] > known.get(entry[2], entry[3])]
        return times[0] if times else None

    def first_after_a_beginning(self, start: float) -> float | None:
        """Returns the time of the first update applied by a server started after `start`."""
        began = [entry[0] for entry in self._entries("began") if entry[0] > start]
        return next((entry[0] for entry in self._entries("applied") if began and entry[0] > began[0]), None)

    def longest_pause(self, start: float) -> float:
        """Returns the longest time without an update since `start`."""
        times = [start, *(entry[0] for entry in self._entries("applied") if entry[0] > start)]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


class Trial:
    """A training run. Owns the driver's engine."""

    def __init__(self, scenario: str, hosts: int, folder: Path, **changes: Any) -> None:
        """`hosts` play on each machine; `changes` override scenario settings."""

        from doom_a3c.engines.cluster.driver import ClusterEngine
        from doom_a3c.engines.cluster.ray import Blueprint
        from doom_a3c.record.metrics.progress import Progress
        from doom_a3c.record.metrics.tensorboard import TensorBoardLogger

        config, settings, builder = make_settings(scenario, hosts=hosts, workers=1, frames=10**12, **changes)
        log = folder / "audit"
        self.audit = Audit(log)
        self.engine = ClusterEngine(
            hosts=hosts,
            device="cpu",
            blueprint=Blueprint(partial(build_audited_server, log), remote.build_host, settings),
            state=make_start_state(config, builder),
            progress=Progress(),
            logger_called=lambda name: TensorBoardLogger(folder / name),
            add_gif=lambda gif: None,
            log=lambda line: None,
        )
        self.engine.start()

    def status(self) -> ServerStatus:
        """Returns the server's status, once it is ready."""
        from doom_a3c.engines.cluster.ray import connect_server

        def ready() -> ServerStatus | None:
            self.engine.check()
            found = call_patiently(connect_server().status)
            return found if found["ready"] else None

        return wait_until(ready)

    def pushes(self) -> dict[str, int]:
        """Returns the number of pushes per host."""
        return {name: tally["pushes"] for name, tally in self.status()["hosts"].items()}

    def all_play(self, hosts: int) -> bool:
        """Returns whether `hosts` hosts have pushed often enough to be past start-up."""
        pushes = self.pushes()
        return len(pushes) == hosts and min(pushes.values()) > 20

    def newcomers(self, known: set[str]) -> set[str]:
        """Returns the hosts that have pushed and are not `known`."""
        return set(self.pushes()) - known


def call_patiently(call: Callable[[], Value], seconds: float = 60.0) -> Value:
    """Retries a call until it reaches the server; returns the answer."""
    from doom_a3c.engines.cluster.messages import UnreachableError

    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except UnreachableError:
            if time.monotonic() > end:
                raise
        time.sleep(0.05)


def wait_until(condition: Callable[[], Value | None], seconds: float = 120.0) -> Value:
    """Returns a condition's value once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"condition not met within {seconds:g} s")
        time.sleep(0.05)
    return value
