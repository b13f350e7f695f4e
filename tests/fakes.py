"""Stand-ins shared by several tests: a tiny network, tiny games, and helpers that wait for other threads."""

import contextlib
import itertools
import threading
import time
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.graphs import Graphs
from doom_a3c.agent.inputs import Inputs
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Player
from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.optimizers import RMSProp
from doom_a3c.engines.queue import make_queue_engine, make_queues
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import parse_values, to_flat
from doom_a3c.settings.interface import FAULTS
from doom_a3c.settings.network import Network

SPEC = Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4)
INPUTS = Inputs((6, 6, 1), 0)
ACTIONS = Categorical(3)
STEPS, FRAME_SKIP = 8, 3  # an actor's rollout: 2 games, 4 steps each
GRAPHS = Graphs()  # shared by all networks here, as in a run: each is compiled once


def changed(config, **flat):
    """Returns a copy of a config with some settings changed, by their flat names."""
    return parse_values(type(config), {**to_flat(config), **flat}, "test")


def until(condition, what="it", *, seconds=30, pause=0.005):
    """Returns a condition's first true value; fails on a timeout."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(pause)
    return value


def finish(engine):
    """Starts an engine and waits until it ends by itself; raises the error that ended it, if any."""
    engine.start()
    until(lambda: engine.threads.alive() == [], "the end", seconds=60)
    engine.stop()
    engine.check()


class Tape(gymnasium.Env):
    """Shows its owner, the time and the last action as noise; the reward depends on the action.

    Episodes end after `length` steps; `cut_off` cycles through whether they are truncated.
    `before_step` is called before every step.
    """

    observation_space = gymnasium.spaces.Box(0, 255, INPUTS.pixels, np.uint8)
    action_space = gymnasium.spaces.Discrete(ACTIONS.size)

    def __init__(self, owner=0, *, length=3, cut_off=(False,), pay=lambda action: 1.0 + action, before_step=lambda: None):
        self.owner, self.length, self.pay, self.before_step = owner, length, pay, before_step
        self.cut_off = itertools.cycle(cut_off)

    def see(self, action):
        pixels = np.random.default_rng([self.owner, self.time, action]).integers(256, size=INPUTS.pixels, dtype=np.uint8)
        pixels[0, 0] = self.owner
        return pixels

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.truncates = 0, next(self.cut_off)
        return self.see(9), {}

    def step(self, action):
        self.before_step()
        self.time += 1
        ends = self.time >= self.length
        return self.see(int(action)), self.pay(int(action)), ends and not self.truncates, ends and self.truncates, {}


class FaultyGames(LocalVectorEnv):
    """Games of which the first reports a fault in every step."""

    def step(self, actions):
        *results, infos = super().step(actions)
        return *results, {**infos, FAULTS: [["server_died"], None]}


def network(name="network", seed=1):
    """Returns a network for these games."""
    return ACNetwork(SPEC, INPUTS, ACTIONS, seed, name, graphs=GRAPHS)


def model(seed=1, *, optimizer=RMSProp, kind=GlobalModel):
    """Returns a global model around such a network."""
    shared = network("global", seed)
    return kind(shared, optimizer(shared.parameters))


class PullLog(GlobalModel):
    """Records who pulled its weights, as (thread name, network name)."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.pulled = set()

    def pull(self, network):
        self.pulled.add((threading.current_thread().name, network.name))
        super().pull(network)


def actor(index, policy, *, frame_skip=FRAME_SKIP, cut_off=(False, True), **game):
    """Returns a worker's actor: 2 games that take turns to be truncated, and rollouts of 4 steps."""
    turns = (cut_off, cut_off[::-1])
    env = LocalVectorEnv([partial(Tape, index, cut_off=turn, **game) for turn in turns])
    return Actor(
        Player.from_seed(env, policy, np.random.SeedSequence([1, index])),
        rollout_length=4,
        frame_skip=frame_skip,
        discount=0.9,
    )


@contextlib.contextmanager
def queue_runs(make_progress=Progress):
    """Yields a function that builds queue engines on tiny games; stops them afterwards."""
    engines = []

    def make(config, make_actor=actor, make_network=network, unblock=None, **queues):
        run = SimpleNamespace(progress=make_progress(), model=model(kind=PullLog), unblocked=threading.Event())
        run.queues = make_queues(config)._replace(**queues)
        run.engine = make_queue_engine(
            config=config,
            model=run.model,
            make_actor=make_actor,
            make_network=make_network,
            progress=run.progress,
            logs=[None] * config.trainers,
            unblock=unblock or run.unblocked.set,
            queues=run.queues,
        )
        engines.append(run.engine)
        return run

    try:
        yield make
    finally:
        for engine in engines:
            engine.stop()


def caught(call, *arguments):
    """Makes a call in a new thread; returns the thread and a list that will hold the result or error."""
    results = []

    def run():
        try:
            results.append(call(*arguments))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, name="test", daemon=True)
    thread.start()
    return thread, results


def waits(thread):
    """Returns whether a thread is still running after a moment."""
    thread.join(0.1)
    return thread.is_alive()


def prompt(call, *arguments):
    """Returns the result or error of a call that must not block."""
    thread, results = caught(call, *arguments)
    thread.join(10)
    assert results, "the call is still blocked"
    return results[0]


def complaint(call, *arguments):
    """Returns the one-line message of the UserError that a call must raise."""
    with pytest.raises(UserError) as raised:
        call(*arguments)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    return message
