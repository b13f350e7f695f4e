"""Older rollouts that are learned from again: which are drawn, their targets, and what the updates hold on to."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from by_hand import (
    SETTINGS,
    B,
    T,
    assert_close,
    corrected_by_hand,
    decided,
    differ,
    gae_by_hand,
    own_rollout,
    played_by,
    ppo_by_hand,
    random_rollout,
)
from fakes import actor, changed, model, network

from doom_a3c.agent.learner import Learner
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.replay import Replay
from doom_a3c.agent.rollouts import Played, RolloutStats
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.engines.trainer import Trainer
from doom_a3c.engines.updates import StepFactor, Updater
from doom_a3c.record.progress import Progress
from doom_a3c.settings.config import Config

REPLAYING = {"replay": 1, "passes": 2}


def played(network, seed=0, version=0, **changes):
    rollout = random_rollout(network, seed)._replace(**changes)
    return Played(rollout, version, RolloutStats(T * B, T * B, [], []))


# Targets and gradients


@pytest.mark.parametrize("engine", ["threads", "queue"])
@pytest.mark.parametrize("core", ["lstm", "skip_lstm", "none"])
def test_of_its_own_rollout_a_network_learns_as_without_a_replay(make_network, core, engine):
    network = decided(make_network(core=core))
    rollout = own_rollout(network)
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


def batch_of(replay, *new, since=0):
    """Returns the rollouts in the batch of some new ones, by their numbers, and their version."""
    (batch,), version = replay.batches([new], since)
    return members(batch), version


def members(batch):
    games = batch.actions.reshape(T, -1)[0]
    assert (batch.actions.reshape(T, -1) == games).all()
    return games[::B].tolist()


def test_without_a_replay_nothing_but_the_new_is_learned_from(make_network):
    replay = replay_of(make_network(), replay=0)
    for number in range(3):
        assert batch_of(replay, marked(make_network(), number, number)) == ([number], number)


def test_older_rollouts_come_with_each_new_one_none_twice_and_the_oldest_go(make_network):
    network = make_network()
    replay = replay_of(network, replay=2, replay_size=2)
    assert batch_of(replay, marked(network, 0))[0] == [0]
    assert batch_of(replay, marked(network, 1))[0] == [1]  # one is kept, two are wanted
    for new, older in ((2, [0, 1]), (0, [1, 2]), (1, [0, 2])):
        first, *others = batch_of(replay, marked(network, new))[0]
        assert (first, sorted(others)) == (new, older)


def test_all_groups_of_an_update_draw_from_what_was_there_before_it_and_nothing_twice(make_network):
    network = make_network()
    for index in range(8):
        replay = replay_of(network, index)
        replay.batches([[marked(network, 0)], [marked(network, 1)]], 0)
        batches, _ = replay.batches([[marked(network, 2)], [marked(network, 2)]], 0)
        assert sorted(map(members, batches)) == [[2, 0], [2, 1]]


def test_the_oldest_weights_are_a_batchs_version_and_those_of_before_a_roll_back_are_not_drawn(make_network):
    network = make_network()
    replay = replay_of(network)
    assert batch_of(replay, marked(network, 0, 5)) == ([0], 5)
    assert batch_of(replay, marked(network, 1, 7)) == ([1, 0], 5)
    assert batch_of(replay, marked(network, 2, 9), since=7) == ([2, 1], 7)
    assert batch_of(replay, marked(network, 0, 12), since=12) == ([0], 12)


def test_each_new_rollout_of_a_batch_brings_as_many_older_ones(make_network):
    network = make_network()
    replay = replay_of(network)
    sizes = [len(batch_of(replay, *[marked(network, 0)] * count)[0]) for count in (1, 2, 2, 1)]
    assert sizes == [1, 2, 4, 2]  # the second time one is kept, and two would be wanted


@pytest.mark.parametrize("by_advantage", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_by_advantage_rollouts_are_drawn_in_proportion_to_what_they_teach(make_network, core, by_advantage):
    network, draws, seen = decided(make_network(core=core)), 120, collections.Counter()
    kept = [marked(network, 0), marked(network, 1)]
    kept[1] = kept[1]._replace(rollout=kept[1].rollout._replace(rewards=60 * kept[1].rollout.rewards))
    for index in range(draws):
        replay = replay_of(network, index, replay_by_advantage=by_advantage)
        replay.batches([kept], 0)
        seen.update(batch_of(replay, marked(network, 2))[0][1:])
    sizes = sizes_by_hand(network, kept)
    chance = sizes[1] / sum(sizes) if by_advantage else 0.5
    assert not by_advantage or chance > 0.8
    assert seen[0] + seen[1] == draws
    assert abs(seen[1] / draws - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def sizes_by_hand(network, rollouts):
    return [np.abs(corrected_by_hand(network, one.rollout, 1.0, 1.0)[0]).mean() for one in rollouts]


def test_how_much_a_rollout_teaches_is_what_it_taught_the_last_time(make_network):
    network = decided(make_network())
    replay, first, second = replay_of(network, replay_size=2), marked(network, 0), marked(network, 1)
    replay.batches([[first]], 0)
    before = [one.weight for one in replay._kept]
    assert before == pytest.approx(sizes_by_hand(network, [first]), rel=1e-3)
    decided(network, 0.1)
    network.refresh()
    assert batch_of(replay, second)[0] == [1, 0]
    after = [one.weight for one in replay._kept]
    assert after == pytest.approx(sizes_by_hand(network, [first, second]), rel=1e-3)
    assert after[0] != pytest.approx(before[0], rel=0.01)


def test_rollouts_that_teach_nothing_can_be_drawn(make_network):
    network, nothing = make_network(), np.zeros((T, B), np.float32)
    for parameter in network.parameters:
        parameter.assign(tf.zeros_like(parameter))
    replay = replay_of(network, replay_by_advantage=True)
    dull = played(network, rewards=nothing, next_values=nothing)
    assert [one.weight for one in replay._kept] == []
    replay.batches([[dull]], 0)
    assert [one.weight for one in replay._kept] == [0.0]
    assert replay.batches([[dull]], 0)[0][0].games == 2 * B


def test_a_rollout_with_what_is_no_number_spoils_one_update_alone(make_network):
    network = make_network()
    replay = replay_of(network, replay_by_advantage=True)
    replay.batches([[marked(network, 0)]], 0)
    replay.batches([[played(network, rewards=np.full((T, B), np.nan, np.float32))]], 0)
    for _ in range(8):
        (batch,), _ = replay.batches([[marked(network, 1)]], 0)
        assert np.isfinite(batch.basis[0]).all()


def test_without_a_memory_single_steps_of_new_and_old_are_dealt_out(make_network):
    network = make_network(core="none")
    config = changed(SETTINGS, **REPLAYING, minibatches=3)
    learner = Learner(network, config, 0)
    replay = Replay(learner, config, 0)
    replay.batches([[marked(network, 0)]], 0)
    batches, _ = replay.batches([[marked(network, 1)]], 0)
    parts = [part.actions for (part,), _ in learner.minibatches(batches)]
    assert [part.shape for part in parts] == [(1, 2 * T * B // 3)] * 6
    assert all(0 < part.mean() < 1 for part in parts)


def test_draws_are_the_seeds_and_the_learners_own(make_network):
    network = make_network()

    def draws(seed, index):
        replay = replay_of(network, index, seed=seed)
        return [batch_of(replay, marked(network, number % 3))[0][1:] for number in range(12)]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0) != draws(1, 1) != draws(2, 1) != draws(1, 0)


# In a trainer


class Taking:
    """A channel of rollouts that are there already; `before` is called when one is taken."""

    closed = False

    def __init__(self, rollouts, before):
        self._rollouts, self._before = iter(rollouts), before

    def take(self, low, high):
        self._before()
        return [next(self._rollouts)]


def trained(rollouts, before=lambda shared, progress: None, **changes):
    """Has a trainer learn from rollouts of tiny games; `before` may change the model whenever one is taken."""
    config = Config(engine="queue", workers=1, games=2, rollout_length=4, max_batch=8, frames=8 * len(rollouts), **changes)
    shared, progress = model(), Progress()
    updater = Updater(config, shared, progress, StepFactor.of(config), None)
    channel = Taking(rollouts, lambda: before(shared, progress))
    Trainer(config, shared, network("trainer"), progress, updater, channel, 0).run()
    return shared, progress


def tiny_rollouts(count, version=0):
    player = actor(0, Policy(network("player")), frame_skip=1)
    return [player.rollout()._replace(version=version) for _ in range(count)]


def test_a_trainer_prepares_with_the_newest_weights(monkeypatch):
    versions, prepare = [], Learner.prepare

    def prepared(learner, rollout):
        versions.append(learner._network.version)
        return prepare(learner, rollout)

    def updated(shared, progress):  # as another trainer would
        shared.apply([tf.ones_like(each) for each in shared.network.parameters], 1e-3)

    monkeypatch.setattr(Learner, "prepare", prepared)
    trained(tiny_rollouts(3), updated, replay=1, passes=2)
    assert versions == [1, 4, 7]


def test_a_trainer_learns_on_at_once_after_a_roll_back():
    def rolled_back(shared, progress):
        if progress.updates == 3 and not shared.since:
            shared.roll_back(shared.snapshot())

    shared, progress = trained([*tiny_rollouts(3), *tiny_rollouts(3, 4)], rolled_back, replay=1)
    assert shared.since == 4
    assert progress.updates == 6


def test_a_trainer_counts_what_it_has_taken_before_it_learns_from_it():
    counted = []
    trained(tiny_rollouts(4), lambda shared, progress: counted.append(progress.steps), accumulate=2)
    assert counted == [0, 8, 16, 24]
