"""A session with loggers of a custom kind, which must receive every metric of an engine."""

import json
import math
import threading
from collections import defaultdict
from functools import partial

from fakes import changed
from run_fakes import settings

from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.engines.cluster.rates import ClusterMetrics
from doom_a3c.engines.queue import QueueMetrics
from doom_a3c.engines.train_metrics import TrainMetrics
from doom_a3c.engines.update_log import EpisodeMetrics, StepMetrics
from doom_a3c.envs.games import make_game_factory
from doom_a3c.record.metrics.loggers import flatten
from doom_a3c.record.metrics.rate_limiter import RateLimiter
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import begin_run
from doom_a3c.run.reporter import (
    ConfirmedMetrics,
    EpisodeCurve,
    EvaluationMetrics,
    LeagueMetrics,
    RolloutMetrics,
    RunMetrics,
)
from doom_a3c.run.session import build_session

# The metrics of each log; `host` stands for every host's log.
SHAPING = {"shaped_reward"}  # only if the scenario has shaping
# Only with several passes.
PASSES = {*StepMetrics._fields, "train.approx_kl", "train.clip_fraction"}
CONFIRMED = {*ConfirmedMetrics._fields}  # only if the run ends by itself
RATED = {*LeagueMetrics._fields}  # only in matches of several agents
WORKER = {*LearnerMetrics._fields, *EpisodeMetrics._fields} - SHAPING
TRAINED = {f"train.{name}" for name in TrainMetrics._fields} - PASSES
ROLLOUT = {f"rollout.{name}" for name in RolloutMetrics._fields}
RUN = {*RunMetrics._fields, *EpisodeCurve._fields, *ROLLOUT, "time.fps", "train.learning_rate"} - {"faults"}
SPREAD = ("mean", "std", "min", "max")
EVALUATION = {"score", *(f"{policy}.{number}" for policy in EvaluationMetrics._fields[1:] for number in SPREAD)}
TRAIN = WORKER | TRAINED | {"actions"}
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
    """Writes a line of JSON for every number; collects the names that all loggers of this kind have written."""

    def __init__(self, folder, names):
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.names = "host" if folder.name.startswith("host_") else folder.name, names
        self.file, self.lock = folder.with_suffix(".jsonl").open("a"), threading.Lock()

    def write(self, name, **fields):
        with self.lock:
            print(json.dumps({"name": name, **fields}), file=self.file)
        self.names[self.log].add(name)

    def metrics(self, metrics, count):
        for name, value in flatten(metrics):
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

    def set_phase(self, what):
        pass


def assert_every_metric_is_logged(engine, folder, monkeypatch):
    """Trains until every log has received all of its metrics, and checks that it received no others."""
    monkeypatch.setattr(RateLimiter, "allow", lambda limiter: True)
    scenario, config = settings("cartpole")
    folders = {name: str(folder) for name in ("models_dir", "frames_dir", "logs_dir")}
    often = {"evaluate_every": 0.1, "evaluation_episodes": 1, "minutes": 5.0}
    moving = {"final_learning_rate": 0.0, "final_entropy_cost": 0.0, "epsilon": 0.1, "final_epsilon": 0.0}
    config = changed(
        config, engine=engine, workers=2, envs_per_worker=4, normalize_rewards=True, **often, **moving, **folders
    )
    names, wanted = defaultdict(set), LOGS[engine]
    wanted = {**wanted, "global": wanted["global"] | {"config", "graph", "game"}}
    view = Until(lambda: all(wanted[log] <= names[log] for log in wanted))
    games = make_game_factory(scenario.game, scenario.observation, config.game_processes)
    make_logger = partial(JsonLinesLogger, names=names)
    with build_session(begin_run(scenario, config), games, CheckpointFolder(folder), None, view, make_logger) as session:
        view.stopping = session.stopping
        assert session.training.run().stopped_by == "SIGTERM", f"logged after five minutes: {dict(names)}"
    assert {log: {name for name in known if not name.startswith("faults.")} for log, known in names.items()} == wanted
    lines = [json.loads(line) for path in session.logs.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert {line["name"] for line in lines} == set.union(*names.values())
    assert all(math.isfinite(line["value"]) for line in lines if "value" in line)
    (logged,) = [line["settings"] for line in lines if line["name"] == "config"]
    assert (logged["engine"], logged["tables"]["name"]) == (engine, "cartpole")
