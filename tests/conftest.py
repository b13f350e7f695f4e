"""Environment of all tests, and the small pieces that several of them build on."""

import os
import signal
import sys
from pathlib import Path

import pytest

# Read by TensorFlow when it is first imported or first used, so they come before any test module does either.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the program itself has it
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # tiny operations: a pool only costs switching
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # closed forms are compared at float32, not TF32, precision

# Jobs that a shell has put into the background ignore Ctrl-C and hand that on to what they start: here it is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("told")  # it says as much as a test when it fails

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # plain `pytest` does not, `python -m pytest` does


LONGEST = (
    *("cluster", "pretrained", "commands", "campaign", "deaths", "pages", "signals", "nothing_lost", "driver"),
    *("resuming", "tour", "learner", "shaping"),
)


def pytest_collection_modifyitems(items):
    """Has the files that take longest begin first, so that none of them runs alone in the end."""
    names = [f"test_{name}" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.stem) if item.path.stem in names else len(names))


@pytest.fixture(scope="session")
def root():
    """The checkout that holds the package."""
    return ROOT


@pytest.fixture(scope="session")
def make_network():
    """Builds networks small enough for brute force: 8x8 pixels, grey unless told, one convolution, a core of 5.

    All of a session share what is compiled, as the networks of a run do: compiling takes most of the time of many tests.
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
    """Plays rollouts of counting games, one for each of the lengths of their episodes; closes what it opened."""
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
    """Closes what it is given at the end of the test."""
    opened = []

    def keep(env):
        opened.append(env)
        return env

    yield keep
    for env in opened:
        env.close()
