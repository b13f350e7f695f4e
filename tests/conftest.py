"""Environment of all tests, and the fixtures that several of them share."""

import os
import signal
import sys
from pathlib import Path

import cloudpickle
import pytest

# TensorFlow reads these when first imported or first used, so they are set before any test module does either.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in the program itself
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # operations are tiny: a thread pool would only add switching
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # closed forms are compared in float32, not TF32

# Background jobs of a shell ignore Ctrl-C, and so do their children; some tests here need it to work.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("logged_metrics")  # its failures are explained like those of a test

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `python -m pytest` does this, plain `pytest` does not


LONGEST = (
    *("cluster", "pretrained", "commands", "campaign", "deaths", "pages", "signals", "nothing_lost", "driver"),
    *("opponents", "api", "guard", "resuming", "tour", "learner", "shaping"),
)


def pytest_collection_modifyitems(items):
    """Starts the slowest files first, so that none of them runs alone at the end.

    Sends the classes of test modules to game servers by value: a server that imported the module would load TensorFlow.
    """
    names = [f"test_{name}" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.stem) if item.path.stem in names else len(names))
    for module in {item.module for item in items}:
        cloudpickle.register_pickle_by_value(module)


@pytest.fixture(scope="session")
def root():
    """The checkout that contains the package."""
    return ROOT


@pytest.fixture(scope="session")
def make_network():
    """Builds networks small enough for brute force: 8x8 pixels, grey by default, one convolution, a core of 5.

    All networks of a session share compiled graphs, as those of a run do: compiling dominates the time of many tests.
    """
    from doom_a3c.agent.distributions import Categorical
    from doom_a3c.agent.graphs import Graphs
    from doom_a3c.agent.inputs import Inputs
    from doom_a3c.agent.networks import ACNetwork
    from doom_a3c.settings.network import Network

    graphs = Graphs()

    def make(*, channels=1, variables=0, actions=3, seed=0, name="network", precision="float32", **sizes):
        spec = Network(**{"convolutions": ((4, 3, 2),), "hidden": (8,), "core_size": 5, **sizes})
        inputs = Inputs((8, 8, channels), variables)
        return ACNetwork(spec, inputs, Categorical(actions), seed, name, precision, graphs)

    return make


@pytest.fixture
def play(make_network):
    """Plays rollouts of counting games, one game for each episode length, and closes the actors afterwards."""
    from counting import CountingEnv, session

    actors = []

    def make(lengths=(3, 4, 5), *, core="lstm", variables=False, endings=("terminated",), fault=None, losses=(), **options):
        network = make_network(core=core, variables=2 if variables else 0)
        kind = {"endings": endings, "variables": variables, "fault": fault, "losses": losses}
        games = [CountingEnv(i, length, **kind) for i, length in enumerate(lengths)]
        played = session(network, games, **options)
        actors.append(played.actor)
        return played

    yield make
    for actor in actors:
        actor.close()


@pytest.fixture
def closing():
    """Closes the given environments at the end of the test."""
    opened = []

    def keep(env):
        opened.append(env)
        return env

    yield keep
    for env in opened:
        env.close()
