"""The door for loggers: a second kind is told everything, TensorBoard has a tag for all of it, and no log grows fast."""

import json
import math
import threading
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from fakes import changed
from run_fakes import settings

from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.engines.cluster.rates import ClusterMetrics
from doom_a3c.engines.queue import QueueMetrics
from doom_a3c.engines.updates import EpisodeMetrics, StepMetrics
from doom_a3c.envs.games import games_of
from doom_a3c.record import loggers as loggers_module
from doom_a3c.record import rate_limiter
from doom_a3c.record.loggers import Loggers, named
from doom_a3c.record.rate_limiter import RateLimiter, log_gif_limiter, log_limiter
from doom_a3c.record.tags import TAGS, tag
from doom_a3c.run.folder import CheckpointFolder
from doom_a3c.run.reporter import EpisodeCurve, EvaluationMetrics, RunMetrics
from doom_a3c.run.run_record import begun
from doom_a3c.run.session import session_of

# What each log is told; `host` is that of every host.
SHAPING = {"shaped_reward"}  # where a scenario has it
PASSES = {*StepMetrics._fields}  # where there are several
WORKER = {*LearnerMetrics._fields, *EpisodeMetrics._fields} - SHAPING
RUN = {*RunMetrics._fields, *EpisodeCurve._fields} - {"faults"}
SPREAD = ("mean", "std", "min", "max")
EVALUATION = {"score", *(f"{policy}.{number}" for policy in EvaluationMetrics._fields[1:] for number in SPREAD)}
TRAIN = WORKER | {"actions"}
LOGS = {
    "threads": {"global": RUN | EVALUATION, "train_0": TRAIN, "train_1": TRAIN},
    "queue": {"global": RUN | EVALUATION | {*QueueMetrics._fields}, "train_0": TRAIN},
    "cluster": {
        "global": RUN | EVALUATION | {*ClusterMetrics._fields},
        "server": {"push_lags"},
        "host": WORKER | {"push_seconds", "frames_per_second"},
    },
}


class JsonLinesLogger:
    """Writes a line of JSON for every number; knows all names that any of its kind has written."""

    def __init__(self, folder, names):
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.names = "host" if folder.name.startswith("host_") else folder.name, names
        self.file, self.lock = folder.with_suffix(".jsonl").open("a"), threading.Lock()

    def write(self, name, **fields):
        with self.lock:
            print(json.dumps({"name": name, **fields}), file=self.file)
        self.names[self.log].add(name)

    def metrics(self, metrics, count):
        for name, value in named(metrics):
            self.write(name, value=value, count=count)

    def histogram(self, name, values, frames):
        self.write(name, values=list(values), count=frames)

    def settings(self, settings):
        self.write("config", settings=settings)

    def graph(self, graph):
        self.write("graph", operations=len(graph.get_operations()))

    def gif(self, name, gif, height, width, frames):
        self.write(name, bytes=len(gif), size=[height, width], count=frames)

    def close(self):
        self.file.close()


class Until:
    """A view that ends a session once a condition holds."""

    def __init__(self, condition):
        self.condition, self.stopping = condition, None

    def show(self, status):
        if self.condition():
            self.stopping.interrupt("SIGTERM")

    def log(self, message):
        pass

    def phase(self, what):
        pass


@pytest.mark.parametrize("engine", ["threads", "queue", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_another_kind_of_log_is_told_every_metric_of_a_session(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(RateLimiter, "allow", lambda limiter: True)
    scenario, config = settings("cartpole")
    folders = {name: str(tmp_path) for name in ("models_dir", "frames_dir", "logs_dir")}
    often = {"evaluate_every": 0.1, "evaluation_episodes": 1, "minutes": 5.0}
    moving = {"final_learning_rate": 0.0, "final_entropy_cost": 0.0, "epsilon": 0.1, "final_epsilon": 0.0}
    config = changed(config, engine=engine, workers=2, games=4, normalize_rewards=True, **often, **moving, **folders)
    names, wanted = defaultdict(set), LOGS[engine]
    wanted = {**wanted, "global": wanted["global"] | {"config", "graph", "game"}}
    view = Until(lambda: all(wanted[log] <= names[log] for log in wanted))
    games = games_of(scenario.game, scenario.observation, config.game_processes)
    make_logger = partial(JsonLinesLogger, names=names)
    with session_of(begun(scenario, config), games, CheckpointFolder(tmp_path), None, view, make_logger) as session:
        view.stopping = session.stopping
        assert session.training.run().stopped_by == "SIGTERM", f"logged after five minutes: {dict(names)}"
    assert {log: {name for name in known if not name.startswith("faults.")} for log, known in names.items()} == wanted
    lines = [json.loads(line) for path in session.logs.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert {line["name"] for line in lines} == set.union(*names.values())
    assert all(math.isfinite(line["value"]) for line in lines if "value" in line)
    (told,) = [line["settings"] for line in lines if line["name"] == "config"]
    assert (told["engine"], told["tables"]["name"]) == (engine, "cartpole")


def test_every_metric_has_a_tag_and_every_tag_a_metric():
    logged = set.union(*(names for logs in LOGS.values() for names in logs.values()))
    assert set(TAGS) == logged | SHAPING | PASSES
    assert len(set(TAGS.values())) == len(TAGS)
    assert tag("faults.engine_died") == "Faults/engine_died"
    assert tag("new") == "new"


class Inner(NamedTuple):
    mean: float
    episodes: int


class Outer(NamedTuple):
    rate: float | None
    inner: Inner
    faults: dict


def test_all_logs_are_closed_though_one_of_them_raises():
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
    assert lines == ["warning: logs not written: the disk is full; training continues, and tries again"]


def test_a_log_that_fails_is_made_anew_and_says_so_twice(monkeypatch):
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
    assert lines == [
        "warning: logs not written: No space left on device; training continues, and tries again",
        "logs written again",
    ]


def test_several_logs_that_fail_by_turns_are_told_of_once(monkeypatch):
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
    assert lines == ["warning: logs not written: no space on the device; training continues, and tries again"]
    full.clear()
    clock[0] = 160.0
    loggers("global").metrics({}, 1)
    assert lines[1:] == ["logs written again"]


def test_records_within_records_have_the_outer_name_before_theirs():
    assert dict(named(Outer(None, Inner(1.5, 3), {"died": 2}))) == {
        "inner.mean": 1.5,
        "inner.episodes": 3,
        "faults.died": 2,
    }
    assert dict(named({"a": np.float32(0.5), "b": None, "c": {"d": {"e": True}}})) == {"a": 0.5, "c.d.e": 1.0}
    assert all(type(value) is float for _, value in named(Outer(np.float64(1), Inner(1, 2), {"died": 2})))


@pytest.fixture
def clock(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(rate_limiter.time, "monotonic", lambda: clock[0])
    return clock


def test_points_come_once_a_second_and_more_rarely_in_a_long_run(clock):
    clock[0] = 0.0
    limiter = log_limiter()
    first_minute = sum(limiter.allow() for clock[0] in np.arange(0, 60, 0.25))
    assert first_minute == 60
    day = sum(limiter.allow() for clock[0] in range(60, 86_400))
    assert 5_000 < day < 15_000


def test_gifs_of_a_log_come_once_a_minute_and_ever_more_rarely(clock):
    clock[0] = 0.0
    limiter = log_gif_limiter()
    assert sum(limiter.allow() for clock[0] in range(0, 1200, 10)) == 20
    assert 100 < sum(limiter.allow() for clock[0] in range(1200, 7 * 86_400, 10)) < 200


def test_a_limiter_allows_once_a_minute_from_the_start(clock):
    limiter = RateLimiter(60)
    allowed = [limiter.allow() for clock[0] in range(100, 281, 20)]
    assert allowed == [True, False, False, True, False, False, True, False, False, True]


def test_without_seconds_nothing_is_limited(clock):
    limiter = RateLimiter(0)
    assert all(limiter.allow() for _ in range(3))
