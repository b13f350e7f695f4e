"""Episodes in rollouts: scores, lives, faults and counters."""

import numpy as np
import pytest
from counting import FRAME_SKIP, GAMMA, CountingEnv, codes, session, unroll

from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rewards import RewardScale
from doom_a3c.settings.interface import FAULTS


@pytest.mark.parametrize(
    ("scale", "expected"), [(0.5, [0.5, 1, 1.5, 2, 2.2, 2.2, 2.2]), (-0.5, [-0.5, -1, -1.5, -2, -2.2, -2.2, -2.2])]
)
def test_rewards_are_scaled_then_clipped_but_scores_are_raw(play, scale, expected):
    played = play((3, 7), scale=RewardScale(scale, limit=2.2))
    np.testing.assert_allclose(played.rollouts[0].rewards, np.tile(expected, (2, 1)).T, rtol=1e-6)
    assert [(e.game, e.score) for e in played.episodes] == [(0, 1 + 2 + 3), (0, 4 + 5 + 6), (1, 28)]


# Episodes


def test_scores_are_unscaled_and_complete(play):
    played = play((3, 10), rollouts=3, endings=("terminated", "truncated"))
    episodes = played.episodes  # of all rollouts, each reported once
    assert played.faults == []
    first = [e for e in episodes if e.game == 0]
    assert [e.score for e in first] == [3 * (3 * i + 2) for i in range(7)]  # rewards 3i+1, 3i+2, 3i+3
    assert [e.length for e in first] == [3] * 7
    assert [(e.score, e.length) for e in episodes if e.game == 1] == [(55, 10), (155, 10)]  # across the borders of rollouts
    values = np.concatenate([rollout.values for rollout in played.rollouts])
    np.testing.assert_allclose([e.value for e in first], values[:, 0].reshape(7, 3).mean(axis=1), rtol=1e-4, atol=1e-6)
    for one in played.played:
        assert len(one.stats.episodes) == one.rollout.ends.sum()


def test_an_episode_cut_by_a_fault_has_no_score(play):
    played = play((3, 4), endings=("truncated",), fault="engine died", rollout_length=6)
    assert (played.episodes, played.faults) == ([], ["engine died"] * 3)


def test_faults_at_reset_count_in_the_first_rollout(make_network):
    class Troubled(CountingEnv):
        def reset(self, *, seed=None, options=None):
            observation, _ = super().reset(seed=seed)
            return observation, {FAULTS: ["engine died"]} if self.episode == 0 else {}

    played = session(make_network(), [Troubled(i) for i in range(2)], rollouts=2)
    played.actor.close()
    assert [list(one.stats.faults) for one in played.played] == [["engine died"] * 2, []]


def test_steps_and_frames_count_all_games(play):
    for one in play((3, 4, 5), rollouts=2, rollout_length=6).played:
        assert (one.stats.steps, one.stats.frames) == (3 * 6, 3 * 6 * FRAME_SKIP)


def test_a_rollouts_version_is_that_of_its_oldest_weights(make_network):
    network = make_network()
    policy, versions = Policy(network), iter((7, 5, 6, 9, 3, 8, 8, 4))  # one per step, and one for the bootstrap value

    class Ageing:
        distribution, initial_state = policy.distribution, policy.initial_state

        def __call__(self, *arguments):
            return policy(*arguments)._replace(version=next(versions))

    played = session(network, [CountingEnv()], rollouts=2, rollout_length=3, policy=Ageing())
    played.actor.close()
    assert [one.version for one in played.played] == [5, 3]


# Lives


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_a_lost_life_ends_only_the_return(play, core):
    played = play((4, 5, 7), rollouts=4, core=core, losses=(2, 3), endings=("terminated", "truncated"))
    for rollout in played.rollouts:
        _, episode, time, _ = codes(rollout)
        lost, over = np.isin(time[:-1], [1, 2]), time[:-1] == np.array([4, 5, 7]) - 1
        assert lost.any(axis=0).all()
        np.testing.assert_array_equal(rollout.ends, lost | over)
        np.testing.assert_array_equal(rollout.resets[1:], over)
        died = over & (episode[:-1] % 2 == 0)
        np.testing.assert_array_equal(rollout.discounts, np.where(lost | died, 0, np.float32(GAMMA)))
        # The core remembers across a lost life: the rollout matches an unroll without a reset there.
        values = unroll(played.network, rollout, 8)[1]
        np.testing.assert_allclose(rollout.values, values[:-1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(rollout.next_values[~over], values[1:][~over], rtol=1e-4, atol=1e-6)
        if core == "lstm":
            reset = rollout._replace(resets=np.concatenate([rollout.resets[:1], rollout.ends.astype(np.float32)]))
            assert np.abs(unroll(played.network, reset, 7)[1] - values[:-1]).max() > 1e-3
    assert played.faults == []
    for game, length in enumerate((4, 5, 7)):
        firsts = np.arange(0, 28 - length + 1, length)
        scores = [(e.score, e.length) for e in played.episodes if e.game == game]
        assert scores == [(sum(range(first + 1, first + length + 1)), length) for first in firsts]
