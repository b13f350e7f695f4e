"""The driver's side of the cluster engine on real Ray: actors that fail to start, an update, faults, logs, real calls."""

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
import textwrap
from functools import partial

import numpy as np
import pytest
from cluster_fakes import gradient_push
from commands import ROOT
from fakes import FaultyGames, Tape, changed, finish, network
from fakes import until as until_within
from logged_metrics import assert_every_metric_is_logged
from run_fakes import settings

from doom_a3c.agent.model import flatten
from doom_a3c.engines.cluster import ray as ray_side
from doom_a3c.engines.cluster.driver import ClusterEngine
from doom_a3c.engines.cluster.messages import UnreachableError
from doom_a3c.engines.cluster.ray import (
    Blueprint,
    HostProcess,
    ServerError,
    ServerProcess,
    connect,
    connect_server,
    list_machines,
)
from doom_a3c.engines.local import capture_state
from doom_a3c.engines.threads import make_threads_engine
from doom_a3c.record.metrics.counters import to_plain
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.tensorboard import TensorBoardLogger
from doom_a3c.run import remote
from doom_a3c.run.actors import ActorFactory
from doom_a3c.run.builder import Builder
from doom_a3c.run.evaluator import Evaluator
from doom_a3c.settings.errors import UserError

pytestmark = [
    pytest.mark.process,
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (requirements-cluster.txt)"),
]
until = partial(until_within, seconds=900, pause=0.5)  # generous: the machine may be busy
SCENARIO, CONFIG = settings("cartpole")
FIRST = changed(CONFIG, engine="cluster", workers=1, frames=1, seed=5)  # ends after its first update


def error_of(engine):
    """Returns the error that ended an engine, or None while it is fine."""
    try:
        engine.check()
    except Exception as error:
        return error


@pytest.fixture(scope="module")
def cluster():
    """One cluster for this file's tests, as its start takes longer than most of them; they leave no actor behind."""
    with connect(None, "test"):
        yield


def test_a_blueprint_actors_cannot_import_is_a_user_error(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def make(*arguments):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    make = importlib.import_module("only_here").make
    blueprint = Blueprint(make, make, remote.pack_settings(CONFIG, SCENARIO, 0))
    server = ServerProcess(blueprint, gpu=False)
    with pytest.raises(UserError, match="only_here"):
        connect_server().status()
    server.kill()
    host = HostProcess(blueprint, "x", number=0, generation=1, machine=list_machines()[0])
    assert "only_here" in str(host.find_failure())


def test_actors_import_the_package_from_where_the_script_did(tmp_path):
    script = """
        import sys
        sys.path.insert(0, ROOT)
        from doom_a3c.engines.cluster.ray import connect
        import ray
        with connect(None, "test"):
            print(ray.get(ray.remote(lambda: __import__("doom_a3c").__name__).remote()))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script).replace("ROOT", repr(str(ROOT))))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "script.py"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.stdout.splitlines()[-1:] == ["doom_a3c"], result.stderr


@contextlib.contextmanager
def engines(folder):
    """Yields a function that builds CartPole engines that log to a folder; stops them afterwards."""
    made = []

    def make(make_server=remote.build_server, make_host=remote.build_host, config=CONFIG):
        model, progress = Builder(SCENARIO, config).make_model(config), Progress()
        made.append(
            ClusterEngine(
                hosts=1,
                device="cpu",
                blueprint=Blueprint(make_server, make_host, remote.pack_settings(config, SCENARIO, 0)),
                state=capture_state(model, progress),
                progress=progress,
                logger_called=lambda name: TensorBoardLogger(folder / name),
                add_gif=lambda gif: None,
                log=lambda message: None,
            )
        )
        return made[-1], progress

    try:
        yield make
    finally:
        for one in made:
            one.stop()


@pytest.fixture(scope="class")
def updated(tmp_path_factory, cluster):
    """An engine whose run ended after its first update, its progress, and its state then."""
    with engines(tmp_path_factory.mktemp("updated")) as make:
        made, progress = make(config=FIRST)
        made.start()
        until(lambda: error_of(made) or progress.updates, "the first update")
        made.check()
        yield made, progress, made.capture()


@pytest.mark.parametrize(
    ("parts", "message", "lost"),
    [
        ((remote.build_server, remote.build_server), r"build_server\(\) takes 1 positional argument", 3),
        ((remote.build_host, remote.build_server), r"build_host\(\) missing 3 required positional arguments", 0),
    ],
)
def test_actors_that_fail_to_start_end_the_run_with_their_error(tmp_path, cluster, parts, message, lost):
    with engines(tmp_path) as make:
        made, progress = make(*parts)  # one or both take the wrong arguments
        made.start()
        until(lambda: error_of(made), "the error")
        with pytest.raises(ServerError, match=message):
            made.check()
    assert progress.faults["host_lost"] == lost


class TestAfterTheFirstUpdate:
    """Tests that share an engine, whose server is gone before another starts."""

    def test_the_first_update_equals_the_threads_engines(self, updated):
        _, _, state = updated
        # A cluster makes one update per rollout, even if the scenario asks for more.
        config = changed(FIRST, engine="threads", epochs=1, minibatches=1)
        builder, progress = Builder(SCENARIO, config), Progress()
        model = builder.make_model(config)
        local = make_threads_engine(
            config=config,
            model=model,
            make_actor=ActorFactory(config, builder, progress, model.reward_stats, lambda recording: None, restarts=0),
            make_network=partial(builder.make_network, seed=config.seed),
            progress=progress,
            logs=[None],
            unblock=builder.unblock,
        )
        finish(local)
        builder.close()
        assert state.counters.updates == progress.updates == 1
        assert state.variables.keys() == model.snapshot().keys()
        for name, value in model.snapshot().items():
            np.testing.assert_array_equal(state.variables[name], value, err_msg=name)

    def test_the_server_counts_evaluation_faults(self, updated):
        made, progress, _ = updated
        evaluator = Evaluator(
            FaultyGames([partial(Tape, length=2)] * 2),  # episodes of two steps
            network("evaluator"),
            np.random.SeedSequence(1),
            add_fault=made.add_fault,
        )
        assert progress.faults == {}
        evaluator.evaluate(1)
        evaluator.close()
        until(lambda: progress.faults == {"server_died": 2}, "the driver's notice")
        assert made.capture().counters.faults == {"server_died": 2}
        made.stop()
        assert progress.faults == {"server_died": 2}
        made.add_fault("late")  # the server is gone
        assert progress.faults == made.capture().counters.faults == {"server_died": 2, "late": 1}
        made.check()


def test_a_custom_logger_gets_every_metric_of_a_session(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_side, "connect", lambda address, namespace, gpu: contextlib.nullcontext())  # already connected
    assert_every_metric_is_logged("cluster", tmp_path, monkeypatch)


def test_the_protocol_works_over_real_calls(cluster):
    import ray  # only after the cluster starts: the import looks for a token

    config = changed(CONFIG, engine="cluster", max_policy_lag=1, frames=10**9)
    model = Builder(SCENARIO, config).make_model(config)
    variables, counters = capture_state(model, Progress())
    ones = np.ones(len(flatten(model.network.parameters)), np.float32)
    server = connect_server()

    def push(host, generation, sequence, version=0, gradients=ones):
        message = gradient_push(version, steps=512, frames=512, gradients=gradients, episodes=[], faults=[])
        return server.push(host, generation, sequence, message, -1)["verdict"]

    def joined():
        """Joins as soon as a server answers."""

        def answer():
            with contextlib.suppress(UnreachableError):
                return server.join("a", 1)

        return until(answer, "an answer")

    process = ServerProcess(
        Blueprint(remote.build_server, remote.build_host, remote.pack_settings(config, SCENARIO, 0)), gpu=False
    )
    assert joined() == {"verdict": "wait"}
    server.start({"variables": variables, "counters": to_plain(counters), "members": {}}, {})
    assert push("a", 1, 1) == "wait"
    server.enroll({"a": 1})
    assert joined()["verdict"] == "joined"
    assert [push("a", 1, number) for number in (1, 1, 2, 3)] == ["applied", "duplicate", "applied", "stale"]
    state = server.state()
    assert push("a", 1, 4, version=2) == "applied"
    assert push("a", 1, 5, gradients=ones * np.float32(np.nan)) == "refused"
    ray.kill(ray.get_actor("parameter_server"), no_restart=False)
    until(lambda: joined() == {"verdict": "wait"}, "a new server")  # the old one may answer once more
    server.start(state, {"a": 1})
    status = server.status()["counters"]
    assert (status["updates"], status["steps"], status["faults"]) == (2, 3 * 512, {"stale_push": 1})
    assert [push("a", 1, number, version=2) for number in (3, 4, 4)] == ["duplicate", "applied", "duplicate"]
    server.enroll({"a": 2})
    assert [push("a", 1, 5, version=3), push("a", 2, 1, version=3)] == ["fenced", "applied"]
    assert push("a", 2, 2, gradients=ones[1:]) == "refused"
    server.stop()
    assert push("a", 3, 1) == "done"
    process.kill()
