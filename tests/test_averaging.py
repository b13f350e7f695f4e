"""Averaged weights: exact on known weights, begun anew where a run goes back, and what best.ckpt holds."""

from types import SimpleNamespace

import numpy as np
import pytest
from commands import train

from doom_a3c.agent.model import State
from doom_a3c.record.progress import Progress
from doom_a3c.run import averaging
from doom_a3c.run.averaging import WeightAverage
from doom_a3c.run.checkpoint import load
from doom_a3c.run.guard import COLLAPSED

NETWORK = SimpleNamespace(parameters=[SimpleNamespace(name="kernel:0")])  # of one weight


class Weights:
    """A run whose one weight, and its optimizer slot, are what a test says."""

    def __init__(self):
        self.frames, self.value, self.faults = 0, 0.0, {}

    def capture(self):
        counters = Progress().counters()._replace(frames=self.frames, faults=dict(self.faults))
        value = np.full((2, 3), self.value, np.float32)
        return State({"kernel": value, "kernel/slot": value.copy()}, counters)

    def at(self, frames, value):
        self.frames, self.value = frames, value


@pytest.fixture
def run():
    return Weights()


def means_of(run, average, points):
    found = []
    for frames, value in points:
        run.at(frames, value)
        found.append(float(average.state().variables["kernel"][1, 2]))
    return found


POINTS = [(100, 1.0), (150, 4.0), (400, -2.0), (400, -2.0), (1000, 3.0)]


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_weights_count_by_a_power_of_their_frame(run, share):
    found = means_of(run, WeightAverage(run.capture, NETWORK, share), POINTS)
    grid = np.arange(1000) + 0.5  # frames, each with the weights that were taken in next
    values = np.select([grid < 100, grid < 150, grid < 400], [1.0, 4.0, -2.0], 3.0)
    for (frames, _), mean in zip(POINTS, found, strict=True):
        played = grid < frames
        density = (grid[played] / frames) ** (1 / share - 1)
        assert mean == pytest.approx(np.average(values[played], weights=density), abs=5e-3)


def test_two_thirds_come_from_the_newest_share(run):
    average = WeightAverage(run.capture, NETWORK, 0.1)
    assert means_of(run, average, [(900, 0.0), (1000, 1.0)])[-1] == pytest.approx(1 - np.exp(-1), abs=0.02)


def test_without_a_share_the_newest_weights_are_taken(run):
    average = WeightAverage(run.capture, NETWORK, 0.0)
    assert means_of(run, average, POINTS) == [value for _, value in POINTS]


def test_all_but_the_weights_is_the_newest_and_nothing_given_away_changes(run):
    average = WeightAverage(run.capture, NETWORK, 0.3)
    run.at(100, 1.0)
    first = average.state()
    run.at(200, 2.0)
    second = average.state()
    assert (first.variables["kernel"] == 1.0).all()
    assert 1.0 < second.variables["kernel"][0, 0] < 2.0
    assert second.variables["kernel"].dtype == np.float32
    assert (second.variables["kernel/slot"] == 2.0).all()
    assert second.counters.frames == 200


@pytest.mark.parametrize("back", ["collapse", "frames"])
def test_a_run_that_goes_back_begins_its_average_anew(run, back):
    average = WeightAverage(run.capture, NETWORK, 0.3)
    means_of(run, average, [(100, 100.0), (200, 100.0)])
    if back == "collapse":
        run.faults = {COLLAPSED: 1}
    assert means_of(run, average, [(190 if back == "frames" else 210, 1.0)]) == [1.0]
    assert 1.0 < means_of(run, average, [(250, 2.0)])[0] < 2.0


def test_a_session_before_the_first_frame_has_the_newest_weights(run):
    average = WeightAverage(run.capture, NETWORK, 0.3)
    assert means_of(run, average, [(0, 1.0), (0, 2.0), (1, 3.0)]) == [1.0, 2.0, 3.0]


def test_weights_are_taken_in_once_in_a_while(run, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(averaging.time, "monotonic", lambda: clock[0])
    taken = []
    average = WeightAverage(lambda: taken.append(clock[0]) or run.capture(), NETWORK, 0.3)
    for clock[0] in (0.0, 0.5, 0.9, 1.0, 1.5, 2.5):
        average.look()
    assert taken == [0.0, 1.0, 2.5]
    WeightAverage(lambda: pytest.fail("not asked for"), NETWORK, 0.0).look()


@pytest.mark.parametrize(("share", "same"), [(0.3, False), (0.0, True)])
def test_the_best_checkpoint_has_averages_and_the_last_one_the_newest_weights(tmp_path, monkeypatch, share, same):
    monkeypatch.chdir(tmp_path)
    result = train(tmp_path, "--frames", 12000, "--average-weights", share)
    assert result.returncode == 0, result.stderr
    best, last = (load(tmp_path / "models" / f"{name}.ckpt") for name in ("best", "last"))
    assert best.record.counters.updates == last.record.counters.updates  # there was one evaluation, the last
    differ = [name for name in best.variables if not np.array_equal(best.variables[name], last.variables[name])]
    assert bool(differ) != same
    assert not [name for name in differ if "adam" in name.lower()]
