"""Rollouts of a game whose pictures encode game, episode, time and action, so that every alignment can be checked."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from by_hand import some_games
from counting import GAMMA, CountingEnv, codes, observation, picture, session, unroll
from scipy.special import log_softmax, softmax

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.rollouts import Rollout, concatenate


def row(observations, *index):
    return tf.nest.map_structure(lambda array: array[index], observations)


def chosen_of(array, actions):
    return np.take_along_axis(array, actions[..., None], axis=-1)[..., 0]


# Alignment


def test_observations_follow_actions(play):
    rollouts = play(endings=("terminated", "truncated"), rollouts=3).rollouts
    for rollout in rollouts:
        game, episode, time, action = codes(rollout)
        np.testing.assert_array_equal(game, np.tile([0, 1, 2], (8, 1)))
        continues = ~rollout.ends
        np.testing.assert_array_equal(action[1:][continues], rollout.actions[continues])
        np.testing.assert_array_equal((time[1:] - time[:-1])[continues], 1)
        np.testing.assert_array_equal((episode[1:] - episode[:-1]), rollout.ends)
        np.testing.assert_array_equal(time[1:][rollout.ends], 0)
        np.testing.assert_array_equal(time == 0, rollout.resets)
        for t, b in itertools.product(range(8), range(3)):
            expected = picture(b, episode[t, b], time[t, b], action[t, b])
            np.testing.assert_array_equal(rollout.observations[t, b], expected)
    assert len(np.unique(np.concatenate([rollout.actions for rollout in rollouts]))) == 3


def test_rewards_belong_to_their_actions_and_are_scaled(play):
    rollouts = play(rollouts=2).rollouts
    for index, rollout in enumerate(rollouts):
        numbers = np.arange(1, 8)[:, None] + 7 * index
        np.testing.assert_allclose(rollout.rewards, np.tile(0.5 * numbers, (1, 3)))


def test_ends_resets_and_discounts_agree(play):
    rollouts = play(endings=("terminated", "truncated", "both"), rollouts=4).rollouts
    seen = set()
    for rollout in rollouts:
        np.testing.assert_array_equal(rollout.resets[1:], rollout.ends)
        _, episode, time, _ = codes(rollout)
        for t, b in itertools.product(range(7), range(3)):
            ends = time[t, b] == [3, 4, 5][b] - 1
            ending = ("terminated", "truncated", "both")[episode[t, b] % 3] if ends else ""
            assert rollout.ends[t, b] == ends
            assert rollout.discounts[t, b] == np.float32(0 if ending in ("terminated", "both") else GAMMA)
            seen.add(ending)
    assert seen == {"", "terminated", "truncated", "both"}


def test_the_last_row_is_the_next_rollouts_first_row(play):
    # With rollout length 6, game 0's episodes end exactly at the seam, game 1's in the middle.
    rollouts = play((3, 4), rollouts=4, rollout_length=6).rollouts
    assert rollouts[0].resets[0].all()
    assert rollouts[1].resets[0].tolist() == [1, 0]
    for one, following in itertools.pairwise(rollouts):
        np.testing.assert_array_equal(one.observations[-1], following.observations[0])
        np.testing.assert_array_equal(one.resets[-1], following.resets[0])


def test_a_rollout_is_not_changed_by_the_next(play):
    played = play()
    (first,) = played.rollouts
    copies = tf.nest.map_structure(np.array, first)
    played.actor.play_rollout()
    tf.nest.map_structure(np.testing.assert_array_equal, first, copies)


@pytest.mark.parametrize("variables", [False, True])
@pytest.mark.parametrize("core", list_cores())
def test_the_core_state_is_the_one_at_the_start(play, core, variables):
    played = play(rollouts=3, core=core, variables=variables, endings=("terminated", "truncated"))
    network, rollouts = played.network, played.rollouts
    for rollout in rollouts:
        logits, values = unroll(network, rollout, 7)
        chosen = chosen_of(log_softmax(logits, axis=2), rollout.actions)
        np.testing.assert_allclose(chosen, rollout.log_probs, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(values, rollout.values, rtol=1e-4, atol=1e-6)
    if core != "none":  # otherwise the test could not tell the initial state from zeros
        zeros = rollouts[1]._replace(core_state=network.initial_state(3))
        assert np.abs(unroll(network, zeros, 1)[1] - rollouts[1].values[0]).max() > 1e-3


def test_next_values_are_those_of_the_next_row(play):
    played = play((3, 7, 20), endings=("terminated", "truncated"), rollouts=3)
    network, rollouts = played.network, played.rollouts
    for rollout in rollouts:
        values = unroll(network, rollout, 8)[1]  # with the row after the last decision: the bootstrap
        continues = ~rollout.ends
        np.testing.assert_allclose(rollout.next_values[continues], values[1:][continues], rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(rollout.next_values[:-1][continues[:-1]], rollout.values[1:][continues[:-1]])
        assert continues[-1, 2]


@pytest.mark.parametrize("variables", [False, True])
def test_a_truncation_is_valued_at_its_own_final_observation(play, variables):
    played = play(endings=("truncated", "terminated"), variables=variables, rollouts=3)
    network, rollouts = played.network, played.rollouts
    checked = []
    for rollout in rollouts:
        _, episode, time, _ = codes(rollout)
        for t, b in np.argwhere(rollout.ends & (rollout.discounts > 0)):
            history = tf.nest.map_structure(lambda array, t=t, b=b: array[: t + 1, b : b + 1], rollout.observations)
            start = tuple(part[b : b + 1] for part in rollout.core_state)
            _, core_state = network.unroll(history, tf.constant(rollout.resets[: t + 1, b : b + 1]), start)
            final = observation(variables, b, episode[t, b], time[t, b] + 1, rollout.actions[t, b])
            output, _ = network.step(row(final, None), tf.zeros(1), core_state)
            assert rollout.next_values[t, b] == pytest.approx(float(output.values[0]), rel=1e-4, abs=1e-6)
            checked.append((t, b))
    assert len(checked) >= 6
    assert any(t == 6 for t, _ in checked)  # one at the rollout's last decision
    assert {b for _, b in checked} == {0, 1, 2}


def test_simultaneous_truncations_keep_separate_values(play):
    # Five at a time: the valuation pads them to eight.
    (rollout,) = play((4,) * 5, endings=("truncated",), rollout_length=4).rollouts
    assert rollout.ends[3].all()
    assert len(np.unique(rollout.next_values[3])) == 5


# Exploration


def test_an_actor_records_the_probabilities_it_explores_with(play):
    asked = iter(np.float32([[0, 0.3, 1], [0.6, 0, 0.05]]))  # one answer for each rollout
    played = play(rollouts=0, epsilons=lambda: next(asked), rollout_length=20)
    network = played.network
    policy = next(p for p in network.parameters if "policy" in p.name)
    policy.assign(300 * policy)  # a policy far from uniform: exploring changes its probabilities
    for epsilons in np.float32([[0, 0.3, 1], [0.6, 0, 0.05]]):
        rollout = played.actor.play_rollout().rollout
        logits, _ = unroll(network, rollout, 20)
        probabilities = (1 - epsilons[:, None]) * softmax(logits, axis=2) + epsilons[:, None] / 3
        np.testing.assert_allclose(
            np.exp(rollout.log_probs), chosen_of(probabilities, rollout.actions), rtol=1e-4, atol=1e-6
        )
        unexplored = chosen_of(log_softmax(logits, axis=2), rollout.actions)
        apart = np.abs(rollout.log_probs - unexplored).max(axis=0)
        assert (apart[epsilons > 0.04] > 0.04).all()
        assert (apart[epsilons == 0] < 1e-4).all()


# Joining


@pytest.mark.parametrize("variables", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
@pytest.mark.parametrize("seams", [(1,), (3,), (1, 2)])
def test_joining_rollouts_of_some_games_gives_that_of_all(play, core, variables, seams):
    rollouts = play((3, 4, 5, 6), rollouts=2, core=core, variables=variables).rollouts
    whole = rollouts[1]  # its core state is not zero
    bounds = itertools.pairwise((0, *seams, 4))
    joined = concatenate([some_games(whole, slice(*bound)) for bound in bounds])
    assert isinstance(joined, Rollout)
    tf.nest.assert_same_structure(joined, whole)
    for array, expected in zip(tf.nest.flatten(joined), tf.nest.flatten(whole), strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_joining_a_single_rollout_returns_it(play):
    (rollout,) = play().rollouts
    assert concatenate([rollout]) is rollout


def test_rollouts_of_different_lengths_cannot_be_joined(play):
    (one,), (other,) = play().rollouts, play(rollout_length=6).rollouts
    with pytest.raises(ValueError, match="dimension"):
        concatenate([one, other])


def test_without_bootstrap_only_the_last_next_values_are_missing(play):
    lengths, endings = (3, 7, 5), ("truncated",)  # the second game's episode ends with the rollout
    (whole,), (bare,) = (play(lengths, endings=endings, bootstrap=bootstrap).rollouts for bootstrap in (True, False))
    continues = ~whole.ends[-1]
    assert continues.tolist() == [True, False, True]
    assert np.all(whole.next_values[-1])
    assert not bare.next_values[-1, continues].any()
    bare.next_values[-1, continues] = whole.next_values[-1, continues]
    for found, expected in zip(tf.nest.flatten(bare), tf.nest.flatten(whole), strict=True):
        np.testing.assert_array_equal(found, expected)


# Seeds


def test_workers_play_and_seed_differently(make_network):
    network = make_network()
    streams, seeds = set(), []
    for worker in range(16):
        games = [CountingEnv(i, 50) for i in range(2)]
        played = session(network, games, rollout_length=30, seed=[0, 0, worker])
        played.actor.close()
        actions = played.rollouts[0].actions
        streams |= {tuple(actions[:, game]) for game in range(2)}
        seeds += [game.seeds[0] for game in games]
    assert len(streams) == 32
    assert len(set(seeds)) == 32
    assert None not in seeds


def test_a_seed_repeats_the_rollout(play):
    (one,), (same,), (other,) = (play(seed=seed).rollouts for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.actions, same.actions)
    np.testing.assert_array_equal(one.observations, same.observations)
    assert (one.actions != other.actions).any()
