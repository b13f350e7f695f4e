"""Rollouts in transit: however many threads share networks, queues and servers, each stays what its games played."""

import copy
import pickle
from collections import defaultdict

import numpy as np
import pytest
import tensorflow as tf
from cluster_fakes import SMALL, Wire, a_host, servers, state_of
from fakes import actor, caught, changed, network, queue_runs, until

from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import flatten
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rewards import RewardStats
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.cluster.server_client import RunCounts
from doom_a3c.run.actors import ActorFactory
from doom_a3c.run.builder import Builder
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config

STILL = {"learning_rate": 1e-38}  # so small that no weight changes: decisions can be recomputed


class Witness(Channel):
    """A channel that keeps a copy of every item it has accepted, in order."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.seen = []

    def put(self, item):
        self.seen.append(pickle.dumps(item))
        super().put(item)

    def offer(self, item):
        self.seen.append(pickle.dumps(item))
        if not (taken := super().offer(item)):
            self.seen.pop()
        return taken


def played_by_worker(witness):
    """Returns all rollouts grouped by worker, each worker's in order; the observations identify the worker."""
    rollouts = defaultdict(list)
    for item in witness.seen:
        rollout = pickle.loads(item).rollout
        [owner] = {int(number) for number in rollout.observations[:, :, 0, 0].flat}
        rollouts[owner].append(rollout)
    return rollouts


def assert_whole(rollouts, net):
    """Asserts that an unroll from each rollout's core state gives what it recorded and the core state of the next one."""
    state = None
    for one in rollouts:
        length, batch = one.actions.shape
        for mine, its in zip(state or one.core_state, one.core_state, strict=True):
            np.testing.assert_allclose(its, mine, atol=1e-5)
        output, state = net.unroll(one.observations[:length], tf.constant(one.resets[:length]), one.core_state)
        np.testing.assert_allclose(np.reshape(output.values, (length, batch)), one.values, atol=1e-5)
        log_probs = net.distribution.log_prob(output.logits, one.actions.reshape(-1))
        np.testing.assert_allclose(np.reshape(log_probs, (length, batch)), one.log_probs, atol=1e-5)


def test_queue_engine_states_and_decisions_stay_with_their_games():
    rollouts, config = (
        Witness(2),
        Config(engine="queue", workers=6, envs_per_worker=2, rollout_length=4, predictors=3, trainers=2, **STILL),
    )
    with queue_runs() as build:
        run = build(changed(config, max_batch=24, frames=10**9), rollouts=rollouts)
        run.engine.start()
        until(lambda: len(rollouts.seen) > 120)
        run.engine.stop()
        run.engine.check()
    played = played_by_worker(rollouts)
    assert played.keys() == set(range(6))
    for ones in played.values():
        assert_whole(ones, run.model.network)


def test_rollouts_of_many_hosts_survive_lost_messages():
    config = changed(SMALL, transport="rollouts", queue_size=2, max_policy_lag=10**6, **STILL)
    names, running = [f"host_{number}" for number in range(3)], []
    lossy = [None, None, "answer lost", None, "request lost", "answer lost", "answer lost"]
    with servers(config, members=names) as build:
        server = build(state_of(), rollouts=(rollouts := Witness(2)))
        for number, name in enumerate(names):
            host = a_host(
                Wire(server, lossy * 1000),
                config,
                name,
                make_actor=lambda index, policy, first=2 * number: actor(first + index, policy),
            )
            running.append((host, *caught(host.run, 1)))
        until(lambda: len(rollouts.seen) > 60)
        server.stop()
        for host, thread, _ in running:
            thread.join(30)
            assert host.threads.alive() == []
        assert [results for _, _, results in running] == [[None]] * 3
        assert server.status()["error"] is None
        assert server.progress.faults == {}
    played = played_by_worker(rollouts)
    assert played.keys() == set(range(6))
    for ones in played.values():
        assert_whole(ones, server.model.network)


def test_accumulated_gradients_match_the_actors_rollouts():
    """The actor plays on before the gradients are computed: rollouts it returned must not change meanwhile."""
    config = changed(SMALL, workers=1, accumulate=3, push_rollouts=3)
    with servers(config) as build:
        wire = Wire(build(state_of()))
        host = a_host(wire, config)
        thread, results = caught(host.run, 1)
        until(lambda: len(wire.pushes) > 1)
        host.stop()
        thread.join(30)
        assert results == [None]
    alone = network("alone")
    player, learner = actor(0, Policy(alone)), Learner(alone, config, 0)
    batches = [learner.prepare(copy.deepcopy(player.play_rollout().rollout)) for _ in range(3)]
    player.close()
    push = wire.pushes[0][0]
    assert push["steps"] == 24
    np.testing.assert_allclose(
        push["gradients"], flatten(learner.compute_gradients(batches, 0).gradients), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 2},
        {"engine": "queue"},
        {"engine": "cluster", "transport": "rollouts"},
        {"engine": "cluster", "accumulate": 2},
        {"engine": "cluster", "transport": "rollouts", "accumulate": 2},
    ],
)
def test_a_waiting_rollout_is_not_overwritten_by_the_next(settings):
    """Games hand out their own observation buffers where no rollout waits."""
    scenario = catalog.find("cartpole")
    config = Config(scenario="cartpole", workers=1, envs_per_worker=2, game_processes=1, rollout_length=4, **settings)
    builder = Builder(scenario, config)
    player = ActorFactory(config, builder, RunCounts(), RewardStats(), lambda recording: None, restarts=0)(
        0, Policy(builder.make_network("own", 0))
    )
    waiting = [player.play_rollout().rollout for _ in range(3)]
    kept = copy.deepcopy(waiting)
    for _ in range(3):
        player.play_rollout()
    player.close()
    builder.close()
    for one, before in zip(tf.nest.flatten(waiting), tf.nest.flatten(kept), strict=True):
        np.testing.assert_array_equal(one, before)
