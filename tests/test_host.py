"""Hosts of the cluster engine: what they push, that it counts once whatever befalls the calls, and how they end."""

import itertools
import pickle
import threading
import time
from collections import deque
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from fakes import changed

from doom_a3c.config import Config
from doom_a3c.engines.channel import ClosedError
from doom_a3c.engines.host import FencedError, Host, Link, UnreachableError
from doom_a3c.engines.outbox import GradientSum, RolloutBox
from doom_a3c.engines.server import ParameterServer
from doom_a3c.engines.threads import ThreadsEngine, Worker
from doom_a3c.engines.updates import Updater
from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.learner import Gradients
from doom_a3c.model import GlobalModel, SharedNetwork, flat, split
from doom_a3c.networks import ACNetwork, Inputs
from doom_a3c.optimizers import RMSProp
from doom_a3c.progress import Progress
from doom_a3c.recording import Gate, Gif
from doom_a3c.rollouts import Actor, Episode, Policy
from doom_a3c.scenarios import Network

SPEC = Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4)
FRAMES = 24  # of a rollout: 2 games, 4 decisions, 3 tics each
SMALL = Config(engine="cluster", workers=2, games=2, rollout_length=4, frame_skip=3, discount=0.9, max_batch=8)
EPISODE = Episode(2.0, 3, 0.5, 0)
TRANSPORTS = pytest.mark.parametrize("transport", ["gradients", "rollouts"])


class Tape(gymnasium.Env):
    """Shows its own noise, pays by the action and ends after three steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, seed, before_step=lambda: None):
        self.random, self.before_step = np.random.default_rng(seed), before_step

    def see(self):
        return self.random.integers(256, size=(6, 6, 1), dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.see(), {}

    def step(self, action):
        self.before_step()
        self.time += 1
        return self.see(), 1.0 + int(action), self.time == 3, False, {}


class Wire:
    """Calls a server with copies, as from another process; each call is befallen by the next of `faults`, if any."""

    def __init__(self, server, faults=()):
        self.server, self.faults, self.calls, self.pushes = server, iter(faults), [], []

    def __call__(self, method, *arguments):
        sent = pickle.dumps(arguments)
        assert b"doom_a3c" not in sent  # plain data
        self.calls.append((method, *arguments[1:3]))
        self.pushes += [arguments[3:]] if method == "push" else []
        fault = next(self.faults, None)
        if callable(fault):
            fault()
        if fault == "request lost":
            raise UnreachableError
        answer = getattr(self.server, method)(*pickle.loads(sent))
        if fault == "answer lost":
            raise UnreachableError
        return pickle.loads(pickle.dumps(answer))


class Script:
    """An outbox of pushes that are ready, and closed after the last."""

    def __init__(self, *pushes):
        self.pushes, self.closed = deque(pushes), False

    def take(self):
        if not self.pushes:
            raise ClosedError
        return self.pushes.popleft()

    def close(self):
        self.closed = True


def network(name, seed=1):
    return ACNetwork(SPEC, Inputs((6, 6, 1), 0), 3, seed, name)


def model():
    shared = network("global")
    return GlobalModel(shared, RMSProp(shared.parameters))


def actor(index, policy, **game):
    env = LocalVectorEnv([partial(Tape, 2 * index + number, **game) for number in range(2)])
    seed = np.random.SeedSequence([1, index])
    return Actor(env, policy, rollout_length=4, discount=0.9, reward_scale=1.0, seed=seed)


def start():
    return {"variables": model().snapshot(), "progress": Progress().record(), "members": {}}


@pytest.fixture
def serve():
    """Builds servers, which start with `state` if there is any; stops them, and leaves no thread of a test behind."""
    servers = []

    def make(config=SMALL, state=None):
        servers.append(ParameterServer(config, model(), Progress(), network("trainer", seed=7)))
        if state:
            servers[-1].start(state)
        return servers[-1]

    yield make
    for server in servers:
        server.stop()
    until(lambda: alive() == [])


def alive():
    mine = ("worker_", "link", "games-", "trainer", "test")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(mine)]


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def caught(call, *arguments):
    """Starts a thread that appends the result of a call, or its error, to the list that is returned with it."""
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
    thread.join(0.1)
    return thread.is_alive()


def prompt(call, *arguments):
    """Returns the result of a call that must not wait."""
    thread, results = caught(call, *arguments)
    thread.join(10)
    assert results, "waited in vain"
    return results[0]


def counts(server):
    """Rollouts, episodes and updates."""
    record = server._progress.record()
    assert record["frames"] == 3 * record["steps"]
    return record["frames"] / FRAMES, record["episodes"], record["updates"]


# What waits to be pushed


def gradients(version, vector, finite=True, entropy=0.5):
    return Gradients([tf.constant(vector, tf.float32)], {"Losses/Entropy": entropy}, finite, version)


def test_gradients_are_added_up_until_they_are_enough():
    sums = GradientSum(3, 1)
    thread, results = caught(sums.take)
    for number, version in enumerate((5, 3, 4)):
        assert waits(thread)
        sums.count(8 + number, [EPISODE] * number, ["crash"] * number)
        sums.add(gradients(version, [1.0, 10.0**number], entropy=number))
    thread.join(10)
    [push] = results
    assert push.pop("gradients").tolist() == [3.0, 111.0]
    nothing = {"rollout": None, "gifs": []}
    counted = {"steps": 27, "episodes": [tuple(EPISODE)] * 3, "faults": ["crash"] * 3}
    assert push == {"version": 3, **counted, "not_finite": 0, "metrics": {"Losses/Entropy": 2}, **nothing}


def test_gradients_that_are_not_finite_are_left_out_and_counted():
    sums = GradientSum(3, 1)
    for vector in ([np.nan, 1.0], [1.0, 2.0], [np.inf, 1.0]):
        sums.count(8, [], [])
        sums.add(gradients(1, vector, finite=bool(np.isfinite(vector).all())))
    push = prompt(sums.take)
    assert (push["gradients"].tolist(), push["not_finite"], push["steps"]) == ([1.0, 2.0], 2, 24)
    for _ in range(3):
        prompt(sums.add, gradients(4, [np.nan], finite=False))
    push = prompt(sums.take)
    assert (push["gradients"], push["not_finite"], push["steps"], push["version"]) == (None, 3, 0, 4)


def test_a_worker_waits_until_its_push_is_answered_and_plays_on_before_it_is_complete():
    sums = GradientSum(4, 2)  # each of two rollouts
    prompt(sums.apply, gradients(0, [1.0]))
    second, results = caught(sums.apply, gradients(0, [10.0]))
    assert waits(second)
    assert prompt(sums.take)["gradients"].tolist() == [11.0]
    assert waits(second)  # for the answer
    prompt(sums.apply, gradients(0, [1.0]))  # into the next push
    taker, pushes = caught(sums.take)
    assert waits(taker)
    second.join(10)
    assert results == [None]
    last, _ = caught(sums.apply, gradients(0, [100.0]))
    taker.join(10)
    assert [push["gradients"].tolist() for push in pushes] == [[101.0]]
    assert waits(last)
    sums.close()


def test_a_worker_need_not_wait_for_the_pushes_of_others():
    sums = GradientSum(1, 1)
    first, results = caught(sums.apply, gradients(0, [1.0]))
    assert waits(first)
    prompt(sums.take)
    second, _ = caught(sums.apply, gradients(0, [10.0]))
    assert waits(second)
    assert prompt(sums.take)["gradients"].tolist() == [10.0]
    first.join(10)
    assert results == [None]
    assert waits(second)
    sums.close()


def test_what_is_counted_at_once_is_taken_at_once():
    sums, takers = GradientSum(1, 1), []

    def episodes():
        takers.append(caught(sums.take))
        assert waits(takers[0][0])
        yield EPISODE

    sums.add(gradients(0, [1.0]))
    sums.count(8, episodes(), ["crash"])
    thread, results = takers[0]
    thread.join(10)
    assert [(push["steps"], len(push["episodes"]), push["faults"]) for push in results] == [(8, 1, ["crash"])]


def test_many_workers_lose_and_double_nothing():
    sums, pushes, total = GradientSum(1, 1), [], 8 * 50

    def work():
        for _ in range(50):
            sums.count(8, [EPISODE], ["crash"])
            sums.apply(gradients(0, [1.0]))
            sums.apply(gradients(0, [np.nan], finite=False))

    def take():
        while sum(push["not_finite"] for push in pushes) < total:
            pushes.append(sums.take())
        sums.close()

    for thread in [caught(call)[0] for call in (take, *[work] * 8)]:
        thread.join(30)
        assert not thread.is_alive()
    assert sum(push["gradients"][0] for push in pushes if push["gradients"] is not None) == total
    assert sum(push["not_finite"] for push in pushes) == total
    assert sum(push["steps"] for push in pushes) == 8 * total
    assert [sum(len(push[key]) for push in pushes) for key in ("episodes", "faults")] == [total, total]


def test_rollouts_wait_in_order_and_as_plain_arrays():
    player, box = actor(0, Policy(network("player"))), RolloutBox(2)
    played = [(player.rollout(), version, *player.take()) for version in (4, 5, 6)]
    player.close()
    for one in played[:2]:
        prompt(box.put, *one)
    thread, results = caught(box.put, *played[2])
    assert waits(thread)
    for rollout, version, episodes, _ in played:
        push = prompt(box.take)
        arrays = push.pop("rollout")
        kept = {"gradients": None, "not_finite": 0, "metrics": {}, "faults": [], "gifs": []}
        assert push == {"version": version, "steps": 8, "episodes": [tuple(one) for one in episodes], **kept}
        assert arrays.keys() == rollout._asdict().keys()
        for array, other in zip(tf.nest.flatten(list(arrays.values())), tf.nest.flatten(list(rollout)), strict=True):
            assert type(array) is np.ndarray
            np.testing.assert_array_equal(array, other)
    thread.join(10)
    assert results == [None]


def test_closing_wakes_everyone_and_nothing_is_taken_afterwards():
    empty, full, box = GradientSum(1, 1), GradientSum(1, 1), RolloutBox(1)
    full.add(gradients(0, [1.0]))
    waiting = [caught(empty.take), caught(full.apply, gradients(0, [1.0])), caught(box.take)]
    assert all(waits(thread) for thread, _ in waiting)
    for outbox in (empty, full, box):
        outbox.close()
        assert isinstance(prompt(outbox.take), ClosedError)
    for thread, _ in waiting:
        thread.join(10)
    assert [type(results[0]) for _, results in waiting] == [ClosedError, type(None), ClosedError]


# The link


def push(number, version=0):
    sums, size = GradientSum(1, 1), len(flat(network("any").parameters))
    sums.count(8, [EPISODE], [])
    sums.add(gradients(version, np.random.default_rng(number).normal(size=size)))
    return sums.take()


def linked(wire, *pushes, gifs=()):
    """Joins and pushes; returns what the link has had to do with."""
    a = SimpleNamespace(outbox=Script(*pushes), progress=Progress(), gifs=deque(gifs), stop=threading.Event())
    a.model = SharedNetwork(network("global", seed=5))
    link = Link("a", wire, a.outbox, a.model, a.progress, a.gifs, a.stop)
    link.join()
    link.run()
    return a


def assert_learned(server, a, *pushes):
    """The server has learned from these pushes, each once, and its weights and frames are the host's."""
    alone = model()
    for one in pushes:
        alone.apply(split(one["gradients"], alone.network.parameters), SMALL.learning_rate.start)
    assert counts(server) == (len(pushes), len(pushes), len(pushes))
    for shared in (server._model, a.model):
        assert np.array_equal(shared.weights()[0], alone.weights()[0])
        assert shared.version == len(pushes)
    assert a.progress.frames == len(pushes) * FRAMES


@pytest.mark.parametrize(
    ("faults", "generation", "tries"),
    [
        ([], 1, 1),
        ([None, "request lost"], 1, 2),
        ([None, "answer lost"], 1, 2),
        ([None, "answer lost", "request lost", "answer lost"], 1, 4),
        (["request lost"], 1, 1),
        (["answer lost"], 2, 1),  # the server has taken the host for a second one
    ],
)
def test_a_push_counts_once_whatever_is_lost(serve, faults, generation, tries):
    server, pushes = serve(state=start()), [push(1), push(2, version=1)]
    wire = Wire(server, faults)
    a = linked(wire, *pushes)
    calls = [call for call in wire.calls if call != ("join",)]
    assert calls == [*[("push", generation, 1)] * tries, ("push", generation, 2)]
    assert [known_version for _, known_version in wire.pushes] == [*[0] * tries, 1]
    assert_learned(server, a, *pushes)


def test_a_host_has_the_weights_and_frames_of_a_run_that_it_joins(serve):
    server, pushes = serve(state=start()), [push(1), push(2)]
    linked(Wire(server), *pushes)
    assert_learned(server, linked(Wire(server)), *pushes)


def test_a_host_joins_a_restarted_server_that_does_not_know_it(serve):
    lost, restarted = serve(state=start()), serve(state=start())
    lost.join("a")  # for the generations to differ
    pushes = [push(number) for number in (1, 2, 3, 4)]
    wire = Wire(lost, [None, None, None, lambda: setattr(wire, "server", restarted)])
    a = linked(wire, *pushes)
    before = [("join",), ("push", 2, 1), ("push", 2, 2)]
    assert wire.calls == [*before, ("push", 2, 3), ("join",), ("push", 1, 1), ("push", 1, 2)]
    assert_learned(restarted, a, *pushes[2:])


def test_a_host_waits_for_a_server_that_has_no_state_yet(serve):
    first, second, pushes = serve(), serve(), [push(number) for number in (1, 2, 3)]
    restart = [lambda: setattr(wire, "server", second), None, lambda: second.start(first.state())]
    wire = Wire(first, [None, None, lambda: first.start(start()), None, *restart])
    a = linked(wire, *pushes)
    assert wire.calls == [*[("join",)] * 3, ("push", 1, 1), *[("push", 1, 2)] * 3, ("push", 1, 3)]
    assert_learned(second, a, *pushes)


def test_a_rollout_that_the_server_has_no_room_for_is_sent_again(serve):
    server = serve(changed(SMALL, transport="rollouts", queue_size=1, min_batch=2**20), start())  # which never learns
    box, player, taken = RolloutBox(2), actor(0, Policy(network("player"))), []
    for version in (0, 1):
        box.put(player.rollout(), version, *player.take())
    player.close()
    wire = Wire(server, [None] * 4 + [lambda: taken.extend(server._rollouts.take(1, 1))])
    linked(wire, box.take(), box.take())
    assert wire.calls == [("join",), ("push", 1, 1), *[("push", 1, 2)] * 3]
    assert [one.version for one in (*taken, *server._rollouts.take(1, 1))] == [0, 1]


def test_every_gif_goes_with_one_push(serve):
    server = serve(state=start())
    server._gate = Gate(0.0)
    wire, gifs = Wire(server), [Gif(b"GIF89a", 2, 3, 2.0, episode, 1) for episode in (7, 8)]
    linked(wire, push(1), push(2), push(3), gifs=gifs)
    assert [[gif["episode"] for gif in message["gifs"]] for message, _ in wire.pushes] == [[7], [8], []]
    arrived = [Gif(**{**gif, "data": gif["data"].tobytes()}) for gif in server.status()["gifs"]]
    assert arrived == gifs


@pytest.mark.parametrize(("over_at", "left"), [("join", 2), ("push", 1)])
def test_the_link_ends_everything_when_the_run_is_over(serve, over_at, left):
    server = serve(state=start())
    a = linked(Wire(server, [*[None] * (over_at == "push"), server.stop]), push(1), push(2))
    assert a.stop.is_set()
    assert a.outbox.closed
    assert len(a.outbox.pushes) == left
    assert counts(server) == (0, 0, 0)


# Hosts


@pytest.fixture
def host():
    """Builds hosts and runs each on a thread; ends them, whatever the test does."""
    runs = []

    def make(wire, config, **game):
        run = SimpleNamespace(wire=wire, unblocked=threading.Event(), players=set())

        def make_actor(index, policy):
            run.players.add((index, policy._network.name))
            return actor(index, policy, **game)

        run.host = Host(
            "a",
            wire,
            config=config,
            network=network("global", seed=5),
            make_network=partial(network, seed=6),
            make_actor=make_actor,
            progress=Progress(),
            gifs=deque(),
            unblock=run.unblocked.set,
        )
        run.thread, run.results = caught(run.host.run)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.host.stop()


def ended(run):
    """Waits for a host to end by itself; returns what `run` has returned or raised."""
    run.thread.join(30)
    assert not run.thread.is_alive()
    assert set(alive()) <= {"trainer"}
    return run.results[0]


@TRANSPORTS
def test_the_first_update_is_that_of_the_threads_engine(serve, host, transport):
    # A budget of one rollout: nothing is applied after the update that learns from it.
    config = changed(SMALL, workers=1, transport=transport, learning_rate=1e-2, final_learning_rate=1e-3, frames=FRAMES)
    server = serve(config, start())
    run = host(Wire(server), config)
    until(lambda: counts(server)[2] == 1)
    run.host.stop()
    assert ended(run) is None
    shared, progress, stop = model(), Progress(), threading.Event()
    config = changed(config, engine="threads")
    worker = Worker(
        0,
        config=config,
        model=shared,
        network=network("worker_0"),
        make_actor=actor,
        progress=progress,
        updates=Updater(config, shared, progress, None),
        stop=stop,
    )
    engine = ThreadsEngine([worker], stop, lambda: None)
    engine.start()
    engine._threads[0].join(60)
    engine.check()
    assert counts(server) == (1, progress.episodes, 1)
    assert progress.updates == 1
    before, after, expected = model().snapshot(), server.state()["variables"], shared.snapshot()
    for name, value in expected.items():
        change = np.abs(value - before[name]).max()
        assert change > 0 or "momentum" in name
        tolerance = 0 if transport == "gradients" else max(1e-4 * change, 1e-7)
        np.testing.assert_allclose(after[name], value, rtol=0, atol=tolerance, err_msg=name)


@TRANSPORTS
def test_a_host_plays_to_the_frame_budget(serve, host, transport):
    config = changed(SMALL, transport=transport, queue_size=1, frames=30 * FRAMES)
    server = serve(config, start())
    run = host(Wire(server, [None, None, "request lost", "answer lost"]), config)
    assert ended(run) is None
    until(lambda: alive() == [])
    rollouts, episodes, updates = counts(server)
    assert 30 <= rollouts == int(rollouts) <= 34
    assert episodes == pytest.approx(rollouts * 8 / 3, abs=2 * 4)
    assert 0 < updates == server._model.version <= rollouts
    assert server._progress.faults == {}
    assert run.players == {(0, "worker_0"), (1, "worker_1")}
    numbers = [number for method, *number in run.wire.calls if method == "push"]
    assert [number for number, _ in itertools.groupby(numbers)] == [[1, n + 1] for n in range(numbers[-1][1])]


def test_a_push_of_a_host_has_as_many_rollouts_as_it_is_told(serve, host):
    config = changed(SMALL, workers=1, accumulate=2, push_rollouts=8)
    run = host(Wire(serve(config, start())), config)
    until(lambda: run.wire.pushes)
    # 8 are enough, 2 more fit, and another 2 have been counted when their gradients wait.
    assert 8 * 8 <= run.wire.pushes[0][0]["steps"] <= 8 * 12


def test_a_host_ends_though_its_last_push_would_not_be_whole(serve, host):
    config = changed(SMALL, workers=1, push_rollouts=16, frames=16 * FRAMES)
    server = serve(config, start())
    run = host(Wire(server), config)
    until(lambda: counts(server)[2] == 1 and "worker_0" not in alive())
    run.thread.join(2)
    assert not run.thread.is_alive()


@TRANSPORTS
def test_an_error_in_a_game_ends_the_host(serve, host, transport):
    steps, config = itertools.count(), changed(SMALL, transport=transport)

    def break_once():
        if next(steps) == 10:
            raise RuntimeError("the game broke")

    run = host(Wire(serve(config, start())), config, before_step=break_once)
    assert str(ended(run)) == "the game broke"


def test_a_host_that_is_fenced_off_ends(serve, host):
    server = serve(state=start())
    run = host(Wire(server), SMALL)
    until(lambda: counts(server)[2] > 0)
    server.join("a")
    assert isinstance(ended(run), FencedError)


@TRANSPORTS
def test_a_host_whose_workers_wait_ends_with_the_run(serve, host, transport):
    reachable, config = threading.Event(), changed(SMALL, transport=transport)
    server = serve(config, start())
    faults = itertools.chain([None], iter(lambda: None if reachable.is_set() else "request lost", 0))
    run = host(Wire(server, faults), config)
    room = run.host._outbox._changed if transport == "gradients" else run.host._outbox._channel._changed
    until(lambda: len(run.wire.calls) > 1 and len(room._waiters) == 2)  # the link is at a push, both workers wait
    server.stop()
    reachable.set()
    assert ended(run) is None
    assert not run.unblocked.is_set()  # so it has been prompt
    assert counts(server) == (0, 0, 0)
