"""The driver's side of the cluster engine on real Ray: actors that cannot begin, faults of evaluation, real calls."""

import contextlib
import importlib.util
from functools import partial

import numpy as np
import pytest
from cluster_fakes import gradient_push
from fakes import FaultyGames, Tape, network
from fakes import until as until_within

from doom_a3c.agent.model import captured, flat
from doom_a3c.engines.cluster.driver import ClusterEngine
from doom_a3c.engines.cluster.messages import UnreachableError
from doom_a3c.engines.cluster.ray import RayServer, ServerError, ServerProcess, connected
from doom_a3c.record.progress import Progress, to_plain
from doom_a3c.record.tensorboard import TensorBoardLogger
from doom_a3c.run import remote
from doom_a3c.run.builder import Builder
from doom_a3c.run.evaluation import Evaluator
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (requirements-cluster.txt)"),
]
until = partial(until_within, seconds=900, pause=0.5)  # beside whatever else
SCENARIO = catalog.find("cartpole")


def error_of(engine):
    """Returns the error that has ended an engine's watch, None while it goes on."""
    try:
        engine.check()
    except Exception as error:
        return error


@pytest.fixture(scope="module")
def cluster():
    """A cluster of this file's tests: its start takes longer than most of them. They leave no actor behind in it."""
    with connected(None, "test"):
        yield


@pytest.fixture
def engine(tmp_path, cluster):
    """Builds engines of CartPole; ends them, whatever the test does."""
    made = []

    def make(make_server=remote.server, make_host=remote.host, **settings):
        config = Config(scenario="cartpole", **settings)
        model, progress = Builder(SCENARIO, config).model(config), Progress()
        made.append(
            ClusterEngine(
                hosts=1,
                device="cpu",
                settings=remote.settings(config, SCENARIO, 0),
                make_server=make_server,
                make_host=make_host,
                state=captured(model, progress),
                progress=progress,
                logger_called=lambda name: TensorBoardLogger(tmp_path / name),
                add_gif=lambda gif: None,
                log=lambda message: None,
            )
        )
        return made[-1], progress

    yield make
    for one in made:
        one.stop()


@pytest.mark.parametrize(
    ("parts", "message", "lost"),
    [
        ((remote.server, remote.server), r"server\(\) takes 1 positional argument", 3),
        ((remote.host, remote.host), r"host\(\) missing 3 required positional arguments", 0),
    ],
)
def test_actors_that_cannot_begin_end_the_run_with_their_error(engine, parts, message, lost):
    made, progress = engine(*parts)  # one of them takes other arguments
    made.start()
    until(lambda: error_of(made), "the error")
    with pytest.raises(ServerError, match=message):
        made.check()
    made.stop()
    assert progress.faults["host_lost"] == lost


def test_faults_of_evaluation_are_counted_by_the_server(engine):
    made, progress = engine(engine="cluster", workers=1, games=1)
    evaluator = Evaluator(
        FaultyGames([partial(Tape, length=2)] * 2),  # of two steps
        network("evaluator"),
        np.random.SeedSequence(1),
        add_fault=made.add_fault,
    )
    made.start()
    until(lambda: progress.updates > 0, "the first update")
    assert progress.faults == {}
    evaluator.evaluate(1)
    evaluator.close()
    until(lambda: progress.faults == {"server_died": 2}, "the driver's notice")
    assert made.capture().counters.faults == {"server_died": 2}
    made.stop()
    assert progress.faults == {"server_died": 2}
    made.add_fault("late")  # there is no server any more
    assert progress.faults == made.capture().counters.faults == {"server_died": 2, "late": 1}
    made.check()


def test_the_protocol_over_real_calls(cluster):
    import ray  # not before the cluster: it reads at once whether there is a token

    config = Config(scenario="cartpole", engine="cluster", max_policy_lag=1, frames=10**9)
    model = Builder(SCENARIO, config).model(config)
    variables, counters = captured(model, Progress())
    ones = np.ones(len(flat(model.network.parameters)), np.float32)
    server = RayServer()

    def push(host, generation, sequence, version=0, gradients=ones):
        message = gradient_push(version, steps=480, frames=480, gradients=gradients, episodes=[], faults=[])
        return server.push(host, generation, sequence, message, -1)["verdict"]

    def joined():
        """Joins, when a server has come that answers."""

        def answer():
            with contextlib.suppress(UnreachableError):
                return server.join("a", 1)

        return until(answer, "an answer")

    process = ServerProcess(remote.server, remote.settings(config, SCENARIO, 0), gpu=False)
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
    assert (status["updates"], status["steps"], status["faults"]) == (2, 3 * 480, {"stale_push": 1})
    assert [push("a", 1, number, version=2) for number in (3, 4, 4)] == ["duplicate", "applied", "duplicate"]
    server.enroll({"a": 2})
    assert [push("a", 1, 5, version=3), push("a", 2, 1, version=3)] == ["fenced", "applied"]
    assert push("a", 2, 2, gradients=ones[1:]) == "refused"
    server.stop()
    assert push("a", 3, 1) == "done"
    process.kill()
