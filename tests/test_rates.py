"""Rates per host: who plays, how fast, and when a host stops counting."""

import time

import pytest

from doom_a3c.engines.cluster.rates import ClusterMetrics, Rates


class Log:
    """Records what would be logged."""

    def __init__(self, name):
        self.name, self.points, self.histograms = name, [], []

    def metrics(self, metrics, count):
        self.points.append((count, metrics))

    def histogram(self, name, values, frames):
        self.histograms.append((name, list(values), frames))


@pytest.fixture
def clock(monkeypatch):
    """The time, as a one-element list."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def tally(frames, pushes, size, **metrics):
    return {"frames": frames, "pushes": pushes, "bytes": size, "metrics": metrics}


def make_rates():
    logs = {}
    return Rates(lambda name: logs.setdefault(name, Log(name))), logs


def test_rates_count_since_a_hosts_last_push(clock):
    measured, logs = make_rates()
    clock[0] += 1.0
    assert measured.add({"a": tally(100, 1, 10)}, [0], 100) == []  # too early
    clock[0] += 1.0
    assert measured.add({"a": tally(400, 4, 4_000_000, x=1.0)}, [1], 400) == ["a"]
    assert measured.describe() == "1 hosts: 200 frames/s, 2.0 pushes/s, 2.0 MB/s"
    assert logs["host_a"].points == [(400, {"x": 1.0, "frames_per_second": 200.0})]
    assert logs["server"].histograms == [("push_lags", [0, 1], 400)]
    clock[0] += 10.0
    assert measured.add({"a": tally(400, 4, 4_000_000), "b": tally(50, 1, 0)}, [], 450) == ["b"]
    assert measured.describe() == "2 hosts: 200 + 5 frames/s, 2.1 pushes/s, 2.0 MB/s"  # a slow host still counts
    clock[0] += 10.0
    measured.add({"a": tally(600, 6, 4_000_000), "b": tally(50, 1, 0)}, [], 650)
    assert measured.describe() == "2 hosts: 10 + 5 frames/s, 0.2 pushes/s, 0.0 MB/s"  # 200 frames in 20 seconds
    assert measured.metrics() == pytest.approx(ClusterMetrics(hosts=2, pushes_per_second=0.2, bytes_per_second=0))


def test_a_silent_host_expires_and_a_lost_one_drops_at_once(clock):
    measured, _ = make_rates()
    both = {"a": tally(8, 1, 0), "b": tally(8, 1, 0)}
    clock[0] += 2.0
    measured.add(both, [], 16)
    measured.drop("b")
    assert measured.metrics().hosts == 1
    clock[0] += 2.0
    assert measured.add(both, [], 16) == []
    assert measured.metrics().hosts == 1  # the server's old tally of it is not a push
    assert measured.add({}, [], 16) == []
    clock[0] += 2.0
    assert measured.add({**both, "b": tally(16, 2, 0)}, [], 24) == ["b"]
    assert measured.metrics().hosts == 2
    clock[0] += 40.0
    assert "no host" in measured.describe()


def test_a_server_that_restarts_at_0_gives_no_negative_rate(clock):
    measured, _ = make_rates()
    for tallies in ({"a": tally(1000, 10, 10)}, {"a": tally(40, 2, 1)}, {"a": tally(60, 3, 2)}):
        clock[0] += 2.0
        assert measured.add(tallies, [], 0) == ["a"]
    assert measured.describe().startswith("1 hosts: 10 frames/s, 0.5 pushes/s")
    assert measured.add({}, [], 0) == []


def test_an_old_run_logs_less_often_and_batches_its_lags(clock):
    measured, logs = make_rates()
    for number, seconds in enumerate((2.0, 20_000.0, 2.0, 2.0, 10.0), 1):
        clock[0] += seconds
        assert measured.add({"a": tally(8 * number, number, 0)}, [number], 8 * number) == ["a"]
    assert [frames for frames, _ in logs["host_a"].points] == [8, 16, 40]
    assert logs["server"].histograms == [("push_lags", [1], 8), ("push_lags", [2], 16), ("push_lags", [3, 4, 5], 40)]
    assert set(logs) == {"server", "host_a"}
