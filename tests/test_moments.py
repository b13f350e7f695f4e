"""Rewards divided by the spread of returns: the statistics on known numbers, and what becomes of rewards."""

import itertools
from functools import partial

import numpy as np
import pytest
from counting import GAMMA, CountingEnv, session
from fakes import actor, network
from gymnasium import RewardWrapper

from doom_a3c.agent.policy import Policy
from doom_a3c.algorithm.moments import Moments, moments_of
from doom_a3c.record.progress import Progress

STREAM = np.random.default_rng(1).normal(1000.0, 0.01, size=(50, 3))  # a mean that a sum of squares would drown in


def as_numbers(moments):
    return pytest.approx((moments.size, moments.mean, moments.squares), rel=1e-6)


@pytest.mark.parametrize("cuts", [(), (1,), (7, 8, 30), (0, 50)])
def test_moments_of_parts_are_those_of_the_whole_however_it_is_cut(cuts):
    merged = Moments()
    for part in np.split(STREAM, cuts):
        merged = merged.merged(moments_of(part))
    assert tuple(merged) == as_numbers(moments_of(STREAM))
    assert merged.size == 150
    assert merged.mean == pytest.approx(STREAM.mean())
    assert merged.spread == pytest.approx(STREAM.std(), rel=1e-6)


def test_what_nothing_is_known_of_is_divided_by_one():
    assert Moments().spread == moments_of(np.zeros(5)).spread == moments_of(np.full(3, 7.0)).spread == 1.0
    assert Moments().merged(Moments()) == Moments()


def by_hand(paid, ends):
    """Returns what each game has paid in its episode up to each step, earlier rewards discounted."""
    sums = np.zeros(paid.shape)
    for game, t in itertools.product(range(paid.shape[1]), range(len(paid))):
        start = max((s + 1 for s in range(t) if ends[s, game]), default=0)
        sums[t, game] = sum(GAMMA ** (t - s) * paid[s, game] for s in range(start, t + 1))
    return sums


@pytest.fixture
def play_on(make_network):
    """Plays rollouts one after the other with statistics that are kept between them; closes what it opened."""
    actors = []

    def play(factor=1.0, rollouts=4, scale=1.0, clip=None):
        progress = Progress()
        games = [RewardWrapper(CountingEnv(i, length)) for i, length in enumerate((3, 4, 50))]
        for game in games:
            game.reward = partial(np.multiply, factor)
        known = {"known_returns": lambda: progress.returns, "scale": scale, "clip": clip}
        played = session(make_network(), games, rollouts=0, **known)
        actors.append(played.actor)
        pairs = []
        for _ in range(rollouts):
            one = played.actor.rollout()
            progress.add_steps(one.stats.steps, 0, [], [], one.stats.returns)
            pairs.append((one.rollout, progress.returns))
        return pairs

    yield play
    for one in actors:
        one.close()


def test_rewards_are_divided_by_the_spread_of_all_returns_so_far_their_own_rollout_included(play_on):
    pairs = play_on()
    paid = np.tile(np.arange(1.0, 29.0)[:, None], (1, 3))  # that game pays 1, 2, 3, ...
    sums = by_hand(paid, np.concatenate([rollout.ends for rollout, _ in pairs]))
    for number, (rollout, returns) in enumerate(pairs):
        rows = slice(7 * number, 7 * number + 7)
        assert tuple(returns) == as_numbers(moments_of(sums[: rows.stop]))
        np.testing.assert_allclose(rollout.rewards, paid[rows] / sums[: rows.stop].std(), rtol=1e-5)


def test_rewards_of_any_size_are_learned_from_alike(play_on):
    plain = play_on()
    for factor in (1e-6, 1e4):
        for (rollout, _), (other, _) in zip(plain, play_on(factor), strict=True):
            np.testing.assert_allclose(other.rewards, rollout.rewards, rtol=1e-4)


def test_scale_and_clip_come_after(play_on):
    (plain, _), (changed, _) = play_on(rollouts=1)[0], play_on(rollouts=1, scale=3.0, clip=1.5)[0]
    np.testing.assert_allclose(changed.rewards, np.clip(3.0 * plain.rewards, -1.5, 1.5), rtol=1e-5)
    assert (changed.rewards == 1.5).any()


def test_rewards_that_are_not_finite_leave_the_statistics_whole(play_on):
    for factor in (np.nan, np.inf, 1e300):
        _, returns = play_on(factor, rollouts=1)[0]
        assert np.isfinite(returns).all()


def test_nothing_is_measured_where_nothing_is_divided():
    player = actor(0, Policy(network("player")), length=4)
    assert player.rollout().stats.returns == Moments()
    player.close()
