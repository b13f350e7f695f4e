"""Stand-ins for the cluster engine's tests: servers with visible parts, pushes, and a connection that fails."""

import contextlib
import pickle
import threading
from collections import deque
from functools import cache, partial

import numpy as np
from fakes import STEPS, actor, changed, model, network, until

from doom_a3c.agent.model import flatten
from doom_a3c.agent.policy import Policy
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.cluster.host import Host
from doom_a3c.engines.cluster.messages import UnreachableError
from doom_a3c.engines.cluster.send_buffer import RolloutBuffer
from doom_a3c.engines.cluster.server import ParameterServer
from doom_a3c.engines.cluster.server_client import RunCounts, ServerClient
from doom_a3c.record.films.gifs import Gif
from doom_a3c.record.metrics.counters import to_plain
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.remote import pack_gif
from doom_a3c.settings.config import Config

SMALL = Config(engine="cluster", workers=2, envs_per_worker=2, rollout_length=4, discount=0.9, max_batch=8, frames=10**9)
FRAMES = 24  # in a push: 8 steps
SIZE = len(flatten(network().parameters))
METRICS = {"policy_loss": 0.125, "value_loss": 2.0, "entropy": 0.25, "uniform_kl": 0.5, "grad_norm": 3.0, "var_norm": 4.0}


class KnownServer(ParameterServer):
    """A server whose model, progress and rollout queue are exposed."""

    def __init__(self, config, progress=None, gif_limiter=None, rollouts=None):
        self.model, self.progress = model(), progress or Progress()
        self.rollouts = Channel(config.queue_size) if rollouts is None else rollouts
        limits = {"rollouts": self.rollouts, "gif_limiter": gif_limiter}
        super().__init__(config, self.model, self.progress, network("trainer", seed=7), **limits)


class Gate(Progress):
    """Blocks any thread that counts an update until opened."""

    def __init__(self):
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def add_update(self, entropy, lag):
        self.reached.set()
        self.opened.wait(30)
        super().add_update(entropy, lag)


class Wire:
    """A connection that copies everything, as between processes; each call suffers the next of `faults`, if any."""

    def __init__(self, server, faults=()):
        self.server, self.faults, self.calls, self.pushes = server, iter(faults), [], []

    def join(self, host, generation):
        self.calls.append(("join", generation))
        return self.carry("join", host, generation)

    def push(self, host, generation, sequence, push, known_version):
        self.calls.append(("push", generation, sequence))
        self.pushes.append((push, known_version))
        return self.carry("push", host, generation, sequence, push, known_version)

    def carry(self, method, *arguments):
        sent = pickle.dumps(arguments)
        assert b"doom_a3c" not in sent  # only plain data
        fault = next(self.faults, None)
        if callable(fault):
            fault()
        if fault == "request lost":
            raise UnreachableError
        answer = getattr(self.server, method)(*pickle.loads(sent))
        if fault == "answer lost":
            raise UnreachableError
        return pickle.loads(pickle.dumps(answer))


def a_host(wire, config=SMALL, name="a", make_actor=actor, unblock=lambda: None):
    """Returns a host with its own networks."""
    counts = RunCounts()
    return Host(
        config,
        network=network("global", seed=5),
        make_network=partial(network, seed=6),
        make_actor=make_actor,
        make_client=partial(ServerClient, name, wire, counts=counts, gifs=deque()),
        counts=counts,
        unblock=unblock,
    )


@contextlib.contextmanager
def servers(config=SMALL, members="a"):
    """Yields a function that builds servers; stops them afterwards.

    Servers given a state are started, and know `members` as generation 1.
    """
    made = []

    def make(state=None, progress=None, gif_limiter=None, rollouts=None, **settings):
        server = KnownServer(changed(config, **settings), progress, gif_limiter, rollouts)
        made.append(server)
        if state:
            server.start(state, dict.fromkeys(members, 1))
        return server

    try:
        yield make
    finally:
        for server in made:
            server.stop()
        until(lambda: alive("trainer") == [], "the end of the trainers")


def alive(*names):
    """Returns the names of the running threads that begin with one of `names`."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


@cache
def fresh_variables(seed):
    """Returns the read-only weights and optimizer slots of a new run."""
    variables = model(seed).snapshot()
    for array in variables.values():
        array.flags.writeable = False
    return variables


def state_of(seed=1, **counters):
    """Returns the state of a new run, with weights drawn from `seed`."""
    plain = {**to_plain(Progress().counters()), **counters}
    return {"variables": dict(fresh_variables(seed)), "counters": plain, "members": {}}


def gradient_push(version=0, seed=1, **parts):
    """Returns a push of finite gradients with two episodes and a fault; `parts` override its entries."""
    return {
        "version": version,
        "steps": STEPS,
        "frames": FRAMES,
        "episodes": [(2.0, 5, 0.5, 0, 2.0), (4.0, 7, 1.0, 1, 4.0)],
        "faults": ["crash"],
        "reward_sums": [STEPS, 0.5, 2.0 * STEPS],
        "gradients": np.random.default_rng(seed).normal(size=SIZE).astype(np.float32),
        "not_finite": 0,
        "metrics": {**METRICS, "entropy": 0.25 * seed},
        "push_seconds": 0.5,
        "rollout": None,
        "gifs": [],
        **parts,
    }


def gif(episode):
    """Returns the gif of `recording`, as it is sent."""
    return pack_gif(recording(episode))


def recording(episode):
    """Returns a gif that is only a header, of 3 by 2 pixels, since nothing else is read."""
    return Gif(b"GIF89a\x03\x00\x02\x00", 2, 3, 2.0, episode, 1)


def rollout_pushes(count, version=0, **game):
    """Returns rollout pushes with two episodes each, as a host makes them."""
    player, buffer = actor(0, Policy(network("player")), length=4, cut_off=(False,), **game), RolloutBuffer(count)
    for _ in range(count):
        buffer.put(player.play_rollout()._replace(version=version))
    player.close()
    return [buffer.take_push() for _ in range(count)]


def counted(server):
    """Returns how many one-rollout pushes, episodes and updates a server has counted."""
    counters = server.progress.counters()
    assert counters.frames == 3 * counters.steps
    return counters.frames / FRAMES, counters.episodes, counters.updates


def verdict(server, host, generation, sequence, push):
    """Returns only the verdict in a server's answer to a push."""
    return server.push(host, generation, sequence, push, -1)["verdict"]


def comparable(snapshot):
    """Returns weights as bytes, which compare by value."""
    return {name: value.tobytes() for name, value in snapshot.items()}


def variables(server):
    """Returns a server's weights and slots in comparable form."""
    return comparable(server.state()["variables"])


def everything(server):
    """Returns a server's weights, counters, members and per-host statistics in comparable form."""
    return {**server.state(), "variables": variables(server), "hosts": server.status()["hosts"]}


def assert_diverged(server):
    status = server.status()
    assert "not finite" in status["error"]
    assert status["diverged"]
