"""The parameter server when hosts send rollouts: what waits, what is learned from, and stopping during an update."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from cluster_fakes import SMALL, Gate, assert_diverged, counted, rollout_pushes, servers, state_of, variables, verdict
from fakes import changed, prompt, until

from doom_a3c.agent.learner import Learner
from doom_a3c.engines.cluster import server as server_module
from doom_a3c.engines.updates import MAX_NON_FINITE


@pytest.fixture
def build():
    """Builds servers; with a state, they have started and know `a` and `b` in generation 1."""
    with servers(changed(SMALL, transport="rollouts"), members="ab") as make:
        yield make


def test_rollouts_are_learned_and_resent_when_the_queue_is_full(build):
    gate = Gate()
    server, messages = build(state_of(2), progress=gate, queue_size=1), rollout_pushes(3)
    before = variables(server)
    assert verdict(server, "a", 1, 1, messages[0]) == "applied"
    assert gate.reached.wait(30)
    assert verdict(server, "a", 1, 2, messages[1]) == "applied"
    assert verdict(server, "a", 1, 3, messages[2]) == "full"
    assert verdict(server, "a", 1, 2, messages[1]) == "duplicate"
    status = server.status()
    assert (status["hosts"]["a"]["pushes"], len(status["lags"])) == (2, 2)
    assert server.state()["members"] == {"a": (1, 2, 0), "b": (1, 0, 0)}
    gate.opened.set()
    until(lambda: verdict(server, "a", 1, 3, messages[2]) == "applied")
    until(lambda: counted(server)[2] == 3)
    assert counted(server) == (3, 6, 3)
    assert variables(server) != before
    answer = server.push("a", 1, 3, messages[2], 0)
    assert np.array_equal(answer["weights"], server.model.read_weights()[0])
    parts = [part for one in messages for name, part in one["rollout"].items() if name != "core_state"]
    parts += [part for one in messages for part in one["rollout"]["core_state"]]
    taken_in, answers = sum(part.nbytes for part in parts), server.status()["hosts"]["a"]["bytes"]
    assert (answers - taken_in) % answer["weights"].nbytes == 0  # each answer had all weights or none
    assert answers - taken_in >= 5 * answer["weights"].nbytes


def test_old_rollouts_are_counted_but_not_learned_from(build):
    server = build(state_of(2, updates=9), max_policy_lag=3, queue_size=1)
    before = variables(server)
    for number, message in enumerate(rollout_pushes(5, version=5), 1):  # more than the queue holds
        assert verdict(server, "a", 1, number, message) == "stale"
    assert counted(server) == (5, 10, 9)
    assert server.status()["counters"]["faults"] == {"stale_push": 5}
    assert variables(server) == before
    assert verdict(server, "a", 1, 6, rollout_pushes(1, version=6)[0]) == "applied"
    until(lambda: counted(server) == (6, 12, 10))


def test_rollouts_without_finite_gradients_end_the_run(build):
    server, message = build(state_of(2)), rollout_pushes(1, pay=lambda action: 1e30)[0]
    before = variables(server)
    for number in range(1, MAX_NON_FINITE + 1):
        until(lambda sequence=number: verdict(server, "a", 1, sequence, message) == "applied")
    until(lambda: server.status()["error"])
    assert_diverged(server)
    assert verdict(server, "a", 1, 99, message) == "done"
    assert variables(server) == before


def test_stopping_waits_for_the_update_in_progress(build, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    gradients_of = Learner.compute_gradients

    def slowly(*arguments):
        began.set()
        go_on.wait(30)
        return gradients_of(*arguments)

    monkeypatch.setattr(Learner, "compute_gradients", slowly)
    server = build(state_of(2))
    assert verdict(server, "a", 1, 1, rollout_pushes(1)[0]) == "applied"
    assert began.wait(30)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert counted(server)[2] == 0
    go_on.set()
    stopping.join(30)
    assert counted(server)[2] == server.state()["counters"]["updates"] == 1


def test_a_push_waits_for_room_in_the_queue(build, monkeypatch):
    monkeypatch.setattr(server_module, "ROOM_SECONDS", 30.0)
    gate, verdicts = Gate(), []
    server, messages = build(state_of(2), progress=gate, queue_size=1), rollout_pushes(3)
    verdict(server, "a", 1, 1, messages[0])
    assert gate.reached.wait(30)
    verdict(server, "a", 1, 2, messages[1])
    pushing = threading.Thread(target=lambda: verdicts.append(verdict(server, "a", 1, 3, messages[2])))
    pushing.start()
    pushing.join(0.2)
    assert pushing.is_alive()
    assert server.status()["hosts"]["a"]["pushes"] == 2  # others are answered meanwhile
    gate.opened.set()
    pushing.join(30)
    assert verdicts == ["applied"]


def test_waiting_rollouts_do_not_hold_their_message(build):
    """Messages lie in Ray's memory, which is small: once it is full, every further push takes seconds."""
    server, [message] = build(state_of(2), min_batch=16, max_batch=16, queue_size=2), rollout_pushes(1)
    assert verdict(server, "a", 1, 1, message) == "applied"
    [waiting] = prompt(server.rollouts.take, 1, 1)
    for name, array in message["rollout"].items():
        for mine, its in zip(tf.nest.flatten(array), tf.nest.flatten(getattr(waiting.rollout, name)), strict=True):
            np.testing.assert_array_equal(mine, its)
            assert not np.shares_memory(mine, its)
