"""Older rollouts that are learned from again: which are drawn, their targets, and what the updates hold on to."""

import collections

import numpy as np
import pytest
from by_hand import (
    SETTINGS,
    B,
    T,
    assert_close,
    corrected_by_hand,
    decided,
    differ,
    gae_by_hand,
    played_by,
    ppo_by_hand,
    random_rollout,
)
from fakes import changed

from doom_a3c.agent.learner import Learner
from doom_a3c.agent.replay import Replay
from doom_a3c.agent.rollouts import Played, RolloutStats
from doom_a3c.algorithm.optimizers import Adam

REPLAYING = {"replay": 1, "passes": 2}


def played(network, seed=0, version=0, **changes):
    rollout = random_rollout(network, seed)._replace(**changes)
    return Played(rollout, version, RolloutStats(T * B, T * B, [], []))


def own(network, seed=0):
    """A rollout as the network itself would have played it."""
    rollout = random_rollout(network, seed)
    log_probs, values = played_by(network, rollout)
    next_values = np.where(rollout.ends, rollout.next_values, values[1:])
    return rollout._replace(log_probs=log_probs.astype(np.float32), values=values[:T], next_values=next_values)


# Targets and gradients


@pytest.mark.parametrize("engine", ["threads", "queue"])
@pytest.mark.parametrize("core", ["lstm", "skip_lstm", "none"])
def test_of_its_own_rollout_a_network_learns_as_without_a_replay(make_network, core, engine):
    network = decided(make_network(core=core))
    rollout = own(network)
    learner = Learner(network, changed(SETTINGS, **REPLAYING, engine=engine), 0)
    assert_close(learner.gradients([learner.prepare(rollout)], 0).gradients, gae_by_hand(network, rollout)[1])


@pytest.mark.parametrize("engine", ["threads", "queue"])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_what_another_has_played_is_corrected_once_and_updates_hold_on_to_the_policy_before_them(
    make_network, core, engine
):
    network, clip = decided(make_network(core=core)), 0.02
    rollout = random_rollout(network)  # of a policy that is nobody's
    settings = changed(SETTINGS, **REPLAYING, engine=engine, ratio_clip=clip, rho_clip=0.9, c_clip=0.7)
    learner, optimizer = Learner(network, settings, 0), Adam(network.parameters)
    targets, clipped = corrected_by_hand(network, rollout, 0.9, 0.7), []
    before = rollout._replace(log_probs=played_by(network, rollout)[0].astype(np.float32))
    batch = learner.prepare(rollout)
    np.testing.assert_allclose(np.reshape(batch.log_probs, (T, B)), before.log_probs, rtol=1e-4, atol=1e-5)
    for _ in range(3):
        expected, count = ppo_by_hand(network, before, clip, targets)
        clipped.append(count)
        found = learner.gradients([batch], 0)
        assert_close(found.gradients, expected)
        optimizer.apply(found.gradients, 0.002)
        network.refresh()
    assert clipped[0] == 0 < clipped[-1] < T * B
    assert differ(expected, ppo_by_hand(network, rollout, clip, targets)[0])  # around the policy that has played


# Which rollouts are drawn


def replay_of(network, index=0, **changes):
    config = changed(SETTINGS, **{**REPLAYING, **changes})
    return Replay(Learner(network, config, index), config, index)


def marked(network, number, version=0):
    """A rollout whose actions say which it is, up to three."""
    return played(network, number, version, actions=np.full((T, B), number, np.int32))


def numbers(batches):
    return [int(batch.actions.flat[0]) for batch in batches]


def test_without_a_replay_nothing_but_the_new_is_learned_from(make_network):
    replay = replay_of(make_network(), replay=0)
    for number in range(3):
        batches, version = replay.batches([marked(make_network(), number, number)], 0)
        assert (numbers(batches), version) == ([number], number)


def test_older_rollouts_come_with_each_new_one_none_twice_and_the_oldest_go(make_network):
    network, seen = make_network(), collections.Counter()
    replay = replay_of(network, replay=2, replay_size=2)
    for number in range(3):
        batches, _ = replay.batches([marked(network, number)], 0)
        assert numbers(batches)[0] == number
        assert len(set(numbers(batches))) == len(batches) == min(number, 2) + 1
    for _ in range(20):
        batches, _ = replay.batches([marked(network, 2)], 0)
        seen.update(numbers(batches[1:]))
    assert seen.keys() == {1, 2}  # 0 has gone at once, 1 with the second
    assert seen[1] == 1


def test_the_oldest_weights_in_a_batch_are_its_version_and_those_of_before_a_roll_back_are_not_drawn(make_network):
    network = make_network()
    replay = replay_of(network)
    assert replay.batches([marked(network, 0, 5)], 0)[1] == 5
    assert replay.batches([marked(network, 1, 7)], 0)[1] == 5
    batches, version = replay.batches([marked(network, 2, 9)], 7)
    assert (numbers(batches), version) == ([2, 1], 7)
    batches, version = replay.batches([marked(network, 0, 12)], 12)
    assert (numbers(batches), version) == ([0], 12)


def test_batches_of_several_rollouts_get_older_ones_of_the_same_size(make_network):
    network = make_network()
    replay = replay_of(network, replay=2)
    sizes = [[batch.games for batch in replay.batches([marked(network, 0)] * count, 0)[0]] for count in (1, 2, 2, 1)]
    assert sizes == [[B], [2 * B], [2 * B, 2 * B], [B, B, B]]  # two batches of two want four rollouts that are kept


@pytest.mark.parametrize("by_advantage", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_by_advantage_rollouts_are_drawn_in_proportion_to_what_they_teach(make_network, core, by_advantage):
    network, draws, seen = decided(make_network(core=core)), 400, collections.Counter()
    kept = [marked(network, 0), marked(network, 1)]
    kept[1] = kept[1]._replace(rollout=kept[1].rollout._replace(rewards=20 * kept[1].rollout.rewards))
    for index in range(draws):
        replay = replay_of(network, index, replay_by_advantage=by_advantage)
        replay.batches(kept, 0)
        seen.update(numbers(replay.batches([marked(network, 2)], 0)[0][1:]))
    sizes = [np.abs(corrected_by_hand(network, one.rollout, 1.0, 1.0)[0]).mean() for one in kept]
    chance = sizes[1] / sum(sizes) if by_advantage else 0.5
    assert not by_advantage or 0.6 < chance < 0.99
    assert seen[0] + seen[1] == draws
    assert abs(seen[1] / draws - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def test_a_rollout_with_what_is_no_number_spoils_one_update_alone(make_network):
    network = make_network()
    replay = replay_of(network, replay_by_advantage=True)
    replay.batches([marked(network, 0)], 0)
    replay.batches([played(network, rewards=np.full((T, B), np.nan, np.float32))], 0)
    for _ in range(8):
        batches, _ = replay.batches([marked(network, 1)], 0)
        assert all(np.isfinite(batch.basis[0]).all() for batch in batches)


def test_draws_are_the_seeds_and_the_learners_own(make_network):
    network = make_network()

    def draws(seed, index):
        replay = replay_of(network, index, seed=seed)
        return [numbers(replay.batches([marked(network, number % 3)], 0)[0][1:]) for number in range(12)]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0) != draws(1, 1) != draws(2, 1) != draws(1, 0)
