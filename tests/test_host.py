"""Hosts of the cluster engine: what they learn, what they push and how they end."""

import itertools
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cluster_fakes import FRAMES, SMALL, Wire, a_host, alive, counted, servers, state_of
from fakes import STEPS, actor, caught, changed, complaint, model, network, until
from run_fakes import settings as run_settings

from doom_a3c.engines.cluster.server_client import FencedError
from doom_a3c.engines.threads import make_threads_engine
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run import remote

TRANSPORTS = pytest.mark.parametrize("transport", ["gradients", "rollouts"])


@pytest.fixture
def serve():
    """Builds started servers."""
    with servers() as make:
        yield partial(make, state_of())


@pytest.fixture
def host():
    """Builds hosts, each running on a thread; ends them even if the test fails."""
    runs = []

    def make(wire, config=SMALL, **game):
        run = SimpleNamespace(wire=wire, unblocked=threading.Event(), players=set())

        def make_actor(index, policy):
            run.players.add((index, threading.current_thread().name))
            return actor(index, policy, **game)

        run.host = a_host(wire, config, make_actor=make_actor, unblock=run.unblocked.set)
        run.thread, run.results = caught(run.host.run, 1)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.host.stop()
        until(lambda run=run: run.host.threads.alive() == [])


def ended(run):
    """Waits for a host to end by itself; returns the result or the error of `run`.

    `run` waits only a few seconds for its threads: under load one may still be compiling or computing a gradient.
    """
    run.thread.join(30)
    assert not run.thread.is_alive()
    until(lambda: run.host.threads.alive() == [], "the end of all threads", seconds=60)
    return run.results[0]


@TRANSPORTS
def test_the_first_update_equals_that_of_the_threads_engine(serve, host, transport):
    # A budget of one rollout: nothing is applied after the update that learns from it.
    rates = {"learning_rate": 1e-2, "final_learning_rate": 1e-3}
    settings = {"workers": 1, "transport": transport, "frames": FRAMES, **rates}
    server, config = serve(**settings), changed(SMALL, **settings)
    run = host(Wire(server), config)
    until(lambda: counted(server)[2] == 1)
    run.host.stop()
    assert ended(run) is None
    shared, progress = model(), Progress()
    engine = make_threads_engine(
        config=changed(config, engine="threads"),
        model=shared,
        make_actor=actor,
        make_network=network,
        progress=progress,
        logs=[None],
        unblock=lambda: None,
    )
    engine.start()
    until(lambda: engine.threads.alive() == [])
    engine.check()
    assert counted(server) == (1, progress.episodes, 1)
    assert progress.updates == 1
    before, after, expected = model().snapshot(), server.state()["variables"], shared.snapshot()
    for name, value in expected.items():
        change = np.abs(value - before[name]).max()
        assert change > 0 or "momentum" in name
        tolerance = 0 if transport == "gradients" else max(1e-4 * change, 1e-7)
        np.testing.assert_allclose(after[name], value, rtol=0, atol=tolerance, err_msg=name)


@TRANSPORTS
def test_a_host_plays_to_the_frame_budget(serve, host, transport):
    settings = {"transport": transport, "queue_size": 1, "frames": 30 * FRAMES}
    server = serve(**settings)
    run = host(Wire(server, [None, None, "request lost", "answer lost"]), changed(SMALL, **settings))
    assert ended(run) is None
    until(lambda: alive("trainer") == [])
    rollouts, episodes, updates = counted(server)
    assert 30 <= rollouts == int(rollouts) <= 34
    assert episodes == pytest.approx(rollouts * 8 / 3, abs=2 * 4)
    assert 0 < updates == server.model.version <= rollouts
    assert server.progress.faults == {}
    assert run.players == {(0, "worker_0"), (1, "worker_1")}
    numbers = [number for method, *number in run.wire.calls if method == "push"]
    assert [number for number, _ in itertools.groupby(numbers)] == [[1, n + 1] for n in range(numbers[-1][1])]


def test_a_hosts_push_holds_the_configured_number_of_rollouts(serve, host):
    settings = {"workers": 1, "accumulate": 2, "push_rollouts": 8}
    run = host(Wire(serve(**settings)), changed(SMALL, **settings))
    until(lambda: run.wire.pushes)
    # 8 are enough, 2 more fit, and another 2 may be counted while their gradients wait.
    assert 8 * STEPS <= run.wire.pushes[0][0]["steps"] <= 12 * STEPS


def test_a_host_ends_even_if_its_last_push_is_incomplete(serve, host):
    settings = {"workers": 1, "push_rollouts": 16, "frames": 16 * FRAMES}
    server = serve(**settings)
    run = host(Wire(server), changed(SMALL, **settings))
    until(lambda: counted(server)[2] == 1)
    assert ended(run) is None
    assert not run.unblocked.is_set()


@TRANSPORTS
def test_an_error_in_a_game_ends_the_host(serve, host, transport):
    steps = itertools.count()

    def break_once():
        if next(steps) == 10:
            raise RuntimeError("the game broke")

    wire = Wire(serve(transport=transport))
    assert str(ended(host(wire, changed(SMALL, transport=transport), before_step=break_once))) == "the game broke"


def test_a_fenced_host_ends(serve, host):
    server = serve()
    run = host(Wire(server))
    until(lambda: counted(server)[2] > 0)
    server.enroll({"a": 2})
    assert isinstance(ended(run), FencedError)


def test_a_host_that_joins_after_the_run_starts_no_game(serve, host):
    server = serve()
    server.stop()
    run = host(Wire(server))
    assert ended(run) is None
    assert run.players == set()
    assert run.wire.calls == [("join", 1)]


@TRANSPORTS
def test_a_host_with_waiting_workers_ends_with_the_run(serve, host, transport):
    reachable, steps = threading.Event(), itertools.count(1)
    played = []
    server = serve(transport=transport)
    faults = itertools.chain([None], iter(lambda: None if reachable.is_set() else "request lost", 0))
    config = changed(SMALL, transport=transport)
    run = host(Wire(server, faults), config, before_step=lambda: played.append(next(steps)))
    # Each of two workers has played a rollout and waits for the first answer; with rollouts, one is in transit, two wait.
    most = STEPS * (2 if transport == "gradients" else 2 + 1 + 2)
    until(lambda: len(run.wire.pushes) > 0 and len(played) == most)
    time.sleep(0.3)  # for the workers to reach the point where they wait
    assert len(played) == most
    server.stop()
    reachable.set()
    assert ended(run) is None
    assert not run.unblocked.is_set()  # so it ended promptly
    assert counted(server) == (0, 0, 0)


@pytest.mark.parametrize("transport", ["gradients", "rollouts"])
def test_the_learning_side_refuses_bfloat16_without_its_kernels(monkeypatch, transport):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # as on a machine that has no kernels for it
    scenario, config = run_settings("cartpole")
    config = changed(config, engine="cluster", precision="bfloat16", workers=1, transport=transport)
    settings = remote.pack_settings(config, scenario, 0)
    make_host, make_server = partial(remote.build_host, settings, "7c1d_0", 0, None), partial(remote.build_server, settings)
    if transport == "gradients":
        made, said, name = make_server(), complaint(make_host), "host 7c1d_0"
    else:
        made, said, name = make_host(), complaint(make_server), "parameter server"
    made.stop()  # it computes no gradients
    assert name in said
    assert "--precision bfloat16" in said
