"""Loggers: every kind receives every metric, TensorBoard has a tag for each, and no log grows fast."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from logged_metrics import CONFIRMED, LOGS, PASSES, RATED, SHAPING, assert_every_metric_is_logged

from doom_a3c.record.metrics import loggers as loggers_module
from doom_a3c.record.metrics import rate_limiter
from doom_a3c.record.metrics.loggers import Loggers, flatten
from doom_a3c.record.metrics.rate_limiter import RateLimiter, log_gif_limiter, log_limiter
from doom_a3c.record.metrics.tags import TAGS, make_tag


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_a_custom_logger_receives_every_metric_of_a_session(engine, tmp_path, monkeypatch):
    assert_every_metric_is_logged(engine, tmp_path, monkeypatch)


def test_every_metric_has_a_tag_and_every_tag_a_metric():
    logged = set.union(*(names for logs in LOGS.values() for names in logs.values()))
    assert set(TAGS) == logged | SHAPING | PASSES | CONFIRMED | RATED
    assert len(set(TAGS.values())) == len(TAGS)
    assert make_tag("faults.engine_died") == "Faults/engine_died"
    assert make_tag("new") == "new"


class Inner(NamedTuple):
    mean: float
    episodes: int


class Outer(NamedTuple):
    rate: float | None
    inner: Inner
    faults: dict


def test_all_logs_are_closed_even_if_one_raises():
    class Log:
        def __init__(self, folder):
            self.name = folder.name

        def settings(self, settings):
            pass

        def close(self):
            closed.append(self.name)
            if self.name == "global":
                raise OSError("the disk is full")

    closed, lines = [], []
    loggers = Loggers(Log, Path("logs"), lines.append)
    for name in ("global", "train_0"):
        loggers(name).settings({})
    loggers.close()
    assert sorted(set(closed)) == ["global", "train_0"]
    (line,) = lines
    assert "logs not written: the disk is full" in line


def test_a_failed_log_is_reopened_with_a_warning_and_a_recovery(monkeypatch):
    clock, made, lines, full = [100.0], [], [], [False]
    monkeypatch.setattr(loggers_module.time, "monotonic", lambda: clock[0])

    class Log:
        def __init__(self, folder):
            made.append(self)
            self.points = []

        def metrics(self, metrics, count):
            if full[0]:
                raise OSError(28, "No space left on device")
            self.points.append(count)

        def close(self):
            pass

    logger = Loggers(Log, Path("logs"), lines.append)("global")
    for clock[0], full[0] in ((100.0, False), (101.0, True), (102.0, True), (103.0, False), (112.0, True), (130.0, False)):
        logger.metrics({}, int(clock[0]))
    assert [log.points for log in made] == [[100], [], [130]]
    warning, recovery = lines
    assert "logs not written: No space left on device" in warning
    assert recovery == "logs written again"


def test_several_failing_logs_are_reported_once(monkeypatch):
    clock, lines, full = [100.0], [], {"global"}
    monkeypatch.setattr(loggers_module.time, "monotonic", lambda: clock[0])

    class Log:
        def __init__(self, folder):
            self.name = folder.name

        def metrics(self, metrics, count):
            if self.name in full:
                raise ValueError("{{function_node x}} no space on the device\nand more")

        def close(self):
            pass

    loggers = Loggers(Log, Path("logs"), lines.append)
    for clock[0] in (100.0, 120.0, 140.0):
        for name in ("global", "train_0"):
            loggers(name).metrics({}, 1)
    (line,) = lines
    assert "logs not written: no space on the device;" in line
    full.clear()
    clock[0] = 160.0
    loggers("global").metrics({}, 1)
    assert lines[1:] == ["logs written again"]


def test_nested_records_have_dotted_names():
    assert dict(flatten(Outer(None, Inner(1.5, 3), {"died": 2}))) == {
        "inner.mean": 1.5,
        "inner.episodes": 3,
        "faults.died": 2,
    }
    assert dict(flatten({"a": np.float32(0.5), "b": None, "c": {"d": {"e": True}}})) == {"a": 0.5, "c.d.e": 1.0}
    assert all(type(value) is float for _, value in flatten(Outer(np.float64(1), Inner(1, 2), {"died": 2})))


@pytest.fixture
def clock(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(rate_limiter.time, "monotonic", lambda: clock[0])
    return clock


def test_points_are_logged_every_second_then_more_rarely(clock):
    clock[0] = 0.0
    limiter = log_limiter()
    first_minute = sum(limiter.allow() for clock[0] in np.arange(0, 60, 0.25))
    assert first_minute == 60
    day = sum(limiter.allow() for clock[0] in range(60, 86_400))
    assert 5_000 < day < 15_000


def test_gifs_are_logged_every_minute_then_more_rarely(clock):
    clock[0] = 0.0
    limiter = log_gif_limiter()
    assert sum(limiter.allow() for clock[0] in range(0, 1200, 10)) == 20
    assert 100 < sum(limiter.allow() for clock[0] in range(1200, 7 * 86_400, 10)) < 200


def test_a_limiter_allows_one_call_a_minute_from_the_start(clock):
    limiter = RateLimiter(60)
    allowed = [limiter.allow() for clock[0] in range(100, 281, 20)]
    assert allowed == [True, False, False, True, False, False, True, False, False, True]


def test_a_limiter_of_zero_seconds_allows_everything(clock):
    limiter = RateLimiter(0)
    assert all(limiter.allow() for _ in range(3))
