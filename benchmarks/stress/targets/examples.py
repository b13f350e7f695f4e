"""Good records and checkpoints, with every field filled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from doom_a3c.record.metrics.counters import Counters, Point
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints import checkpoint
from doom_a3c.run.checkpoints.run_record import Best, RunRecord
from doom_a3c.settings import catalog, scenarios


def make_record(name: str = "basic") -> RunRecord:
    """Returns the record of a scenario's run, with every field filled."""
    scenario = catalog.find(name)
    scenario, config = scenarios.apply_overrides(scenario, scenario.training, "settings")
    faults = {"engine_died": 2, "server_hung": 1}
    counters = Counters(800, 200, 20, 3, faults, [1.0, -2.5, 3.0], [Point(1, 200, 1.0, 1.0), Point(2, 500, -2.5, -0.75)], 1)
    return RunRecord(f"{name}-seed1-20260101-000000", 1, scenario, config, counters, Best(12.5, "sample"))


def write_small_checkpoint(path: Path) -> None:
    """Writes the checkpoint of a CartPole run with a network of a few weights."""
    record = make_record("cartpole")
    scenario = dataclasses.replace(record.scenario, network=dataclasses.replace(record.scenario.network, hidden=(4,)))
    model = Builder(scenario, record.config).make_model(record.config)
    checkpoint.save(path, model.snapshot(), record._replace(scenario=scenario))
