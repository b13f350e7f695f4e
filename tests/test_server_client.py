"""A host's exchange with the server: a push counts once even if answers are lost; answers bring weights and frames."""

import threading
from collections import deque
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cluster_fakes import (
    FRAMES,
    SMALL,
    KnownServer,
    Wire,
    counted,
    gradient_push,
    recording,
    rollout_pushes,
    servers,
    state_of,
)
from fakes import STEPS, model, network, prompt

from doom_a3c.agent.model import SharedNetwork, split
from doom_a3c.engines.cluster.members import MAX_REFUSED
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES
from doom_a3c.engines.cluster.server_client import FencedError, RunCounts, ServerClient
from doom_a3c.engines.thread_group import ClosedError
from doom_a3c.record.metrics.rate_limiter import RateLimiter
from doom_a3c.run.remote import pack_gif, unpack_gif


class Script:
    """A buffer of ready pushes that is closed after the last one."""

    def __init__(self, *pushes):
        self.pushes, self.closed = deque(pushes), False

    def take_push(self):
        if not self.pushes:
            raise ClosedError
        return self.pushes.popleft()

    def close(self):
        self.closed = True


@pytest.fixture
def serve():
    """Builds servers; those given a state are started."""
    with servers() as make:
        yield make


def client_of(wire, *pushes, gifs=()):
    """Returns a namespace with a client, `client`, and the objects it works with."""
    a = SimpleNamespace(buffer=Script(*pushes), counts=RunCounts(), gifs=deque(map(pack_gif, gifs)), stop=threading.Event())
    a.model = SharedNetwork(network("global", seed=5))
    a.client = ServerClient("a", wire, a.buffer, a.model, a.stop, counts=a.counts, gifs=a.gifs)
    return a


def joined(wire, *pushes, gifs=()):
    """Joins and pushes everything; returns the namespace of `client_of`."""
    a = client_of(wire, *pushes, gifs=gifs)
    a.client.join(1)
    try:
        a.client.run()
    except ClosedError:
        assert not a.stop.is_set()  # it has pushed everything
    return a


def assert_learned(server: KnownServer, a, *pushes):
    """Asserts that the server learned from each push once, and that the host has its weights and frames."""
    alone = model()
    for one in pushes:
        alone.apply(split(one["gradients"], alone.network.parameters), SMALL.learning_rate.start)
    assert counted(server) == (len(pushes), 2 * len(pushes), len(pushes))
    for shared in (server.model, a.model):
        assert np.array_equal(shared.read_weights()[0], alone.read_weights()[0])
        assert shared.version == len(pushes)
    assert a.counts.frames == len(pushes) * FRAMES
    assert a.counts.reward_stats.now == server.model.reward_stats.now
    assert a.counts.reward_stats.now.size == len(pushes) * STEPS


def numbered(*numbers):
    """Returns pushes of different gradients."""
    return [gradient_push(seed=number) for number in numbers]


@pytest.mark.parametrize(
    ("faults", "tries"),
    [
        ([], 1),
        ([None, "request lost"], 2),
        ([None, "answer lost"], 2),
        ([None, "answer lost", "request lost", "answer lost"], 4),
        (["request lost"], 1),
        (["answer lost"], 1),
    ],
)
def test_a_push_counts_once_even_if_messages_are_lost(serve, faults, tries):
    server, pushes = serve(state_of()), [gradient_push(seed=1), gradient_push(seed=2, version=1)]
    wire = Wire(server, faults)
    a = joined(wire, *pushes)
    calls = [call for call in wire.calls if call != ("join", 1)]
    assert calls == [*[("push", 1, 1)] * tries, ("push", 1, 2)]
    assert [known_version for _, known_version in wire.pushes] == [*[0] * tries, 1]
    assert_learned(server, a, *pushes)


def test_a_joining_host_gets_the_runs_weights_and_frames(serve):
    server, pushes = serve(state_of()), numbered(1, 2)
    joined(Wire(server), *pushes)
    assert_learned(server, joined(Wire(server)), *pushes)


def test_a_host_waits_for_a_server_that_has_no_state_yet(serve):
    first, second, pushes = serve(), serve(), numbered(1, 2, 3)
    restart = [lambda: setattr(wire, "server", second), None, lambda: second.start(first.state(), {"a": 1})]
    wire = Wire(first, [None, None, lambda: first.start(state_of(), {"a": 1}), None, *restart])
    a = joined(wire, *pushes)
    assert wire.calls == [*[("join", 1)] * 3, ("push", 1, 1), *[("push", 1, 2)] * 3, ("push", 1, 3)]
    assert_learned(second, a, *pushes)


def test_a_host_unknown_to_the_server_waits_until_enrolled(serve):
    server, push = serve(), gradient_push()
    server.start(state_of(), {})
    wire = Wire(server, [None, None, lambda: server.enroll({"a": 1})])
    assert_learned(server, joined(wire, push), push)
    assert wire.calls == [*[("join", 1)] * 3, ("push", 1, 1)]


def test_a_rollout_is_sent_again_while_the_server_is_full(serve):
    server = serve(state_of(), transport="rollouts", queue_size=1, min_batch=2**20)  # which never learns
    first, second, taken = *rollout_pushes(2), []
    wire = Wire(server, [None] * 4 + [lambda: taken.extend(prompt(server.rollouts.take, 1, 1))])
    joined(wire, first, {**second, "version": 1})
    assert wire.calls == [("join", 1), ("push", 1, 1), *[("push", 1, 2)] * 3]
    assert [one.version for one in (*taken, *prompt(server.rollouts.take, 1, 1))] == [0, 1]


def test_each_gif_is_sent_once_unless_too_large(serve):
    server = serve(state_of(), gif_limiter=RateLimiter(0.0))
    wire, gifs = Wire(server), [recording(episode) for episode in (7, 8)]
    too_large = recording(9)._replace(data=bytes(MAX_GIF_BYTES + 1))
    joined(wire, *numbered(1, 2, 3, 4), gifs=[gifs[0], too_large, gifs[1]])
    assert [[gif["episode"] for gif in message["gifs"]] for message, _ in wire.pushes] == [[7], [], [8], []]
    arrived = [unpack_gif(gif) for gif in server.status()["gifs"]]
    assert arrived == gifs


@pytest.mark.parametrize(("over_at", "left"), [("join", 2), ("push", 1)])
def test_the_client_stops_when_the_run_is_over(serve, over_at, left):
    server = serve(state_of())
    a = joined(Wire(server, [*[None] * (over_at == "push"), server.stop]), *numbered(1, 2))
    assert a.stop.is_set()
    assert a.buffer.closed
    assert len(a.buffer.pushes) == left
    assert counted(server) == (0, 0, 0)


@pytest.mark.parametrize("at", [0, 1])
def test_a_fenced_off_client_says_why(serve, at):
    server = serve(state_of())
    a = client_of(Wire(server, [*[None] * at, lambda: server.enroll({"a": 2})]), *numbered(1, 2))
    with pytest.raises(FencedError, match=r"^a .*fenced off.*another process"):
        [step() for step in (partial(a.client.join, 1), a.client.run)]
    assert counted(server) == (0, 0, 0)


def test_a_client_survives_refused_pushes_until_it_is_fenced_off(serve):
    server, bad = serve(state_of()), [gradient_push(steps=-1) for _ in range(MAX_REFUSED)]
    wire = Wire(server, [None, None, "answer lost"])  # a refusal whose answer is lost counts once
    a = client_of(wire, gradient_push(), *bad, *numbered(2, 3))
    a.client.join(1)
    with pytest.raises(FencedError, match=r"^a .*fenced off.*steps is -1"):
        a.client.run()
    assert counted(server) == (1, 2, 1)
    assert len(a.buffer.pushes) == 1
    assert a.model.version == 1
    assert server.progress.faults == {"crash": 1, "invalid_push": MAX_REFUSED, "fenced_push": 1}
