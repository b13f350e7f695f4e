"""What a host buffers before it pushes: summed gradients, and whole rollouts."""

import numpy as np
import pytest
import tensorflow as tf
from cluster_fakes import METRICS, SMALL
from fakes import FRAME_SKIP, actor, caught, network, prompt, waits

from doom_a3c.agent.learner import Gradients, LearnerMetrics
from doom_a3c.agent.player import Episode
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import RolloutStats
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.engines.cluster.send_buffer import GradientAccumulator, RolloutBuffer
from doom_a3c.engines.cluster.validation import PushRules
from doom_a3c.engines.thread_group import ClosedError

EPISODE = Episode(2.0, 3, 0.5, 0, 2.0)


def gradients(vector, finite=True, entropy=0.5):
    metrics = LearnerMetrics(**{**METRICS, "entropy": entropy})
    return Gradients([tf.constant(vector, tf.float32)], metrics, finite)


def stats(steps, episodes=(), faults=()):
    return RolloutStats(steps, FRAME_SKIP * steps, episodes, episodes, faults, RunningMoments(steps, 1.5, 0.0))


def test_gradients_are_summed_until_there_are_enough():
    sums = GradientAccumulator(3, 1)
    thread, results = caught(sums.take_push)
    for number, version in enumerate((5, 3, 4)):
        assert waits(thread)
        sums.count(stats(8 + number, [EPISODE] * number, ["crash"] * number), None)
        sums.add(gradients([1.0, 10.0**number], entropy=number), version)
    thread.join(10)
    [push] = results
    assert push.pop("gradients").tolist() == [3.0, 111.0]
    nothing = {"push_seconds": 0.0, "rollout": None, "gifs": []}
    counted = {"steps": 27, "frames": 81, "episodes": [tuple(EPISODE[:5])] * 3, "faults": ["crash"] * 3}
    counted["reward_sums"] = [27, 1.5, 0.0]
    assert push == {"version": 3, **counted, "not_finite": 0, "metrics": {**METRICS, "entropy": 2}, **nothing}


def test_non_finite_gradients_are_left_out_and_counted():
    sums = GradientAccumulator(3, 1)
    for vector in ([np.nan, 1.0], [1.0, 2.0], [np.inf, 1.0]):
        sums.count(stats(8), None)
        sums.add(gradients(vector, finite=bool(np.isfinite(vector).all())), 1)
    push = prompt(sums.take_push)
    assert (push["gradients"].tolist(), push["not_finite"], push["steps"]) == ([1.0, 2.0], 2, 24)
    for _ in range(3):
        prompt(sums.add, gradients([np.nan], finite=False), 4)
    push = prompt(sums.take_push)
    assert (push["gradients"], push["not_finite"], push["steps"], push["version"]) == (None, 3, 0, 4)
    assert push["metrics"] == {}


def test_a_worker_waits_only_if_its_gradient_completes_a_push():
    sums = GradientAccumulator(4, 2)  # each gradient is of two rollouts
    prompt(sums.apply, gradients([1.0]), 0, True)
    second, results = caught(sums.apply, gradients([10.0]), 0, True)
    assert waits(second)
    assert prompt(sums.take_push)["gradients"].tolist() == [11.0]
    assert waits(second)  # for the answer
    prompt(sums.apply, gradients([1.0]), 0, True)  # into the next push
    taker, pushes = caught(sums.take_push)
    assert waits(taker)
    second.join(10)
    assert results == [True]
    last, _ = caught(sums.apply, gradients([100.0]), 0, True)
    taker.join(10)
    assert [push["gradients"].tolist() for push in pushes] == [[101.0]]
    assert waits(last)
    sums.close()


def test_a_worker_waits_only_for_its_own_push():
    sums = GradientAccumulator(1, 1)
    first, results = caught(sums.apply, gradients([1.0]), 0, True)
    assert waits(first)
    prompt(sums.take_push)
    second, _ = caught(sums.apply, gradients([10.0]), 0, True)
    assert waits(second)
    assert prompt(sums.take_push)["gradients"].tolist() == [10.0]
    first.join(10)
    assert results == [True]
    assert waits(second)
    sums.close()


def test_counts_are_added_atomically():
    sums, takers = GradientAccumulator(1, 1), []

    def episodes():
        takers.append(caught(sums.take_push))
        assert waits(takers[0][0])
        yield EPISODE

    sums.add(gradients([1.0]), 0)
    sums.count(stats(8, episodes(), ["crash"]), None)
    thread, results = takers[0]
    thread.join(10)
    assert [(push["steps"], len(push["episodes"]), push["faults"]) for push in results] == [(8, 1, ["crash"])]


def test_many_workers_lose_and_duplicate_nothing():
    sums, pushes, total = GradientAccumulator(1, 1), [], 8 * 50

    def work():
        for _ in range(50):
            sums.count(stats(8, [EPISODE], ["crash"]), None)
            sums.apply(gradients([1.0]), 0, True)
            sums.apply(gradients([np.nan], finite=False), 0, True)

    def take():
        while sum(push["not_finite"] for push in pushes) < total:
            pushes.append(sums.take_push())
        sums.close()

    for thread in [caught(call)[0] for call in (take, *[work] * 8)]:
        thread.join(30)
        assert not thread.is_alive()
    assert sum(push["gradients"][0] for push in pushes if push["gradients"] is not None) == total
    assert sum(push["not_finite"] for push in pushes) == total
    assert [sum(push[key] for push in pushes) for key in ("steps", "frames")] == [8 * total, 24 * total]
    assert [sum(len(push[key]) for push in pushes) for key in ("episodes", "faults")] == [total, total]


def test_rollouts_are_queued_in_order_as_plain_arrays():
    player, buffer = actor(0, Policy(network("player"))), RolloutBuffer(2)
    played = [player.play_rollout()._replace(version=version) for version in (4, 5, 6)]
    player.close()
    for one in played[:2]:
        prompt(buffer.put, one)
    thread, results = caught(buffer.put, played[2])
    assert waits(thread)
    for one in played:
        push = prompt(buffer.take_push)
        arrays = push.pop("rollout")
        kept = {
            "gradients": None,
            "not_finite": 0,
            "metrics": {},
            "push_seconds": 0.0,
            "faults": [],
            "gifs": [],
            "reward_sums": [0, 0.0, 0.0],
        }
        counted = {"steps": 8, "frames": 24, "episodes": [tuple(episode[:5]) for episode in one.stats.episodes]}
        assert push == {"version": one.version, **counted, **kept}
        assert arrays.keys() == one.rollout._asdict().keys()
        for array, other in zip(tf.nest.flatten(list(arrays.values())), tf.nest.flatten(list(one.rollout)), strict=True):
            assert type(array) is np.ndarray
            np.testing.assert_array_equal(array, other)
    thread.join(10)
    assert results == [None]


def test_closing_wakes_all_waiters_and_refuses_further_takes():
    empty, full, buffer = GradientAccumulator(1, 1), GradientAccumulator(1, 1), RolloutBuffer(1)
    full.add(gradients([1.0]), 0)
    waiting = [caught(empty.take_push), caught(full.apply, gradients([1.0]), 0, True), caught(buffer.take_push)]
    assert all(waits(thread) for thread, _ in waiting)
    for one in (empty, full, buffer):
        one.close()
        assert isinstance(prompt(one.take_push), ClosedError)
    for thread, _ in waiting:
        thread.join(10)
    assert [type(results[0]) for _, results in waiting] == [ClosedError, bool, ClosedError]


def test_a_push_carries_the_faults_of_its_rollout():
    player, buffer = actor(0, Policy(network("player"))), RolloutBuffer(1)
    played = player.play_rollout()
    player.close()
    buffer.put(played._replace(stats=played.stats._replace(faults=["engine_died"])))
    assert buffer.take_push()["faults"] == ["engine_died"]


def test_the_server_accepts_episodes_with_observations_that_are_not_finite():
    sums = GradientAccumulator(1, 1)
    sums.count(stats(8, [EPISODE._replace(value=float("nan")), EPISODE], ["observation_unusable"]), None)
    sums.add(gradients([np.nan], finite=False), 0)
    push = prompt(sums.take_push)
    PushRules(SMALL, network()).check(push)
    assert [episode[2] for episode in push["episodes"]] == [0.0, 0.5]
    assert push["faults"] == ["observation_unusable"]


@pytest.mark.parametrize("enough", [1, 3])
def test_adding_a_gradient_returns_the_number_of_its_push(enough):
    sums = GradientAccumulator(enough, 1)
    for number in (1, 2):
        assert [sums.add(gradients([1.0]), 0) for _ in range(enough)] == [number] * enough
        assert prompt(sums.take_push)["gradients"].tolist() == [enough]
