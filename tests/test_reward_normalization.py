"""Rewards divided by the spread of their discounted sums: the statistics of known numbers, and the scaled rewards."""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from commands import call
from counting import GAMMA, CountingEnv, session
from fakes import actor, changed, network
from gymnasium import RewardWrapper

from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rewards import RewardScale, RewardScaler, RewardStats
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments, compute_moments
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.run_record import begin_run, continue_run
from doom_a3c.run.play.page import compute_returns
from doom_a3c.settings import catalog
from doom_a3c.settings.checks import check_combinations
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError

STREAM = np.random.default_rng(1).normal(1000.0, 0.01, size=(50, 3))  # so large a mean would drown a sum of squares


def as_numbers(moments):
    return pytest.approx((moments.size, moments.mean, moments.m2), rel=1e-6)


@pytest.mark.parametrize("cuts", [(), (1,), (7, 8, 30), (0, 50)])
def test_moments_of_parts_merge_to_those_of_the_whole(cuts):
    merged = RunningMoments()
    for part in np.split(STREAM, cuts):
        merged = merged.merge(compute_moments(part))
    assert tuple(merged) == as_numbers(compute_moments(STREAM))
    assert merged.size == 150
    assert merged.mean == pytest.approx(STREAM.mean())
    assert merged.spread == pytest.approx(STREAM.std(), rel=1e-6)


def test_the_spread_of_nothing_or_a_constant_is_one():
    for numbers in ((), np.zeros(5), np.full(3, 7.0), np.full(480, 0.1)):  # 0.1 is not exact
        assert compute_moments(np.asarray(numbers)).spread == 1.0
    assert NO_MOMENTS.merge(NO_MOMENTS) == NO_MOMENTS


def by_hand(paid, ends):
    """Returns the discounted sum of each game's rewards in its episode up to each step."""
    sums = np.zeros(paid.shape)
    for game, t in itertools.product(range(paid.shape[1]), range(len(paid))):
        start = max((s + 1 for s in range(t) if ends[s, game]), default=0)
        sums[t, game] = sum(GAMMA ** (t - s) * paid[s, game] for s in range(start, t + 1))
    return sums


@pytest.fixture
def play_on(make_network):
    """Plays consecutive rollouts with shared statistics; closes what it opened."""
    actors = []

    def play(paid=lambda reward: reward, rollouts=4, clip=None, endings=("terminated",), losses=()):
        stats = RewardStats()
        kinds = {"endings": endings, "losses": losses}
        games = [RewardWrapper(CountingEnv(i, length, **kinds)) for i, length in enumerate((3, 4, 50))]
        for game in games:
            game.reward = paid
        known = {"stats": stats, "scale": RewardScale(limit=clip, normalized=True)}
        played = session(make_network(), games, rollouts=0, **known)
        actors.append(played.actor)
        pairs = []
        for _ in range(rollouts):
            one = played.actor.play_rollout()
            stats.add(one.stats.reward_sums)
            pairs.append((one.rollout, stats.now))
        return pairs

    yield play
    for one in actors:
        one.close()


@pytest.mark.parametrize("ends", [{}, {"endings": ("truncated",)}, {"losses": (2, 9)}])
def test_rewards_are_divided_by_the_spread_of_all_sums_so_far(play_on, ends):
    pairs = play_on(**ends)
    paid = np.tile(np.arange(1.0, 29.0)[:, None], (1, 3))  # the game pays 1, 2, 3, ...
    sums = by_hand(paid, np.concatenate([rollout.ends for rollout, _ in pairs]))
    for number, (rollout, known) in enumerate(pairs):
        rows = slice(7 * number, 7 * number + 7)
        assert tuple(known) == as_numbers(compute_moments(sums[: rows.stop]))
        np.testing.assert_allclose(rollout.rewards, paid[rows] / sums[: rows.stop].std(), rtol=1e-5)


def test_the_scale_of_rewards_does_not_matter(play_on):
    plain = play_on()
    for factor in (1e-6, 1e4):
        for (rollout, _), (other, _) in zip(plain, play_on(partial(np.multiply, factor)), strict=True):
            np.testing.assert_allclose(other.rewards, rollout.rewards, rtol=1e-4)


def test_shaping_is_added_to_normalized_rewards_as_it_is():
    rewards, bonuses = np.full((7, 3), 5.0), np.linspace(0.0, 0.3, 21).reshape(7, 3)
    nothing, usable = np.zeros((7, 3), bool), np.ones((7, 3), bool)
    scaler = RewardScaler(RewardScale(normalized=True), RewardStats(), GAMMA, 3)
    scaled, sums = scaler.scale(rewards, bonuses, nothing, usable)
    assert tuple(sums) == as_numbers(compute_moments(by_hand(rewards, nothing)))  # of rewards alone
    np.testing.assert_allclose(scaled, rewards / sums.spread + bonuses, rtol=1e-6)
    clipped = RewardScaler(RewardScale(limit=1.0, normalized=True), RewardStats(), GAMMA, 3)
    assert np.isnan(clipped.scale(rewards, np.full((7, 3), np.inf), nothing, ~usable)[0]).all()  # clipping does not hide it
    plain, _ = RewardScaler(RewardScale(0.1), RewardStats(), GAMMA, 3).scale(rewards, bonuses, nothing, usable)
    np.testing.assert_allclose(plain, 0.1 * (rewards + bonuses), rtol=1e-6)


def test_clipping_comes_after_normalization(play_on):
    (plain, _), (clipped, _) = play_on(rollouts=1)[0], play_on(rollouts=1, clip=0.5)[0]
    np.testing.assert_allclose(clipped.rewards, np.clip(plain.rewards, -0.5, 0.5), rtol=1e-5)
    assert (clipped.rewards == 0.5).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e300])
def test_an_unusable_reward_counts_as_zero_in_the_statistics(play_on, bad):
    def without(reward):
        return 0.0 if reward == 4.0 else reward

    [(_, expected)] = play_on(without, rollouts=1)
    [(rollout, sums)] = play_on(lambda reward: without(reward) or bad, rollouts=1)
    assert sums == expected
    np.testing.assert_array_equal(
        ~np.isfinite(rollout.rewards), np.arange(1, 8)[:, None] == np.full(3, 4)
    )  # not finite, so that the update is skipped


def test_without_normalization_nothing_is_measured():
    player = actor(0, Policy(network("player")), length=4)
    assert player.play_rollout().stats.reward_sums == NO_MOMENTS
    player.close()


def test_normalized_rewards_are_clipped_but_not_scaled():
    normalized = Config(normalize_rewards=True, reward_scale=0.01)
    assert RewardScale.from_config(normalized).limit == 10.0
    assert RewardScale.from_config(changed(normalized, reward_clip=1.0)).limit == 1.0
    assert RewardScale.from_config(Config()).limit is None
    with pytest.raises(UserError, match="--reward-scale has no effect here"):
        check_combinations(normalized, {"reward_scale"})


@pytest.mark.process
def test_a_run_measures_all_workers_and_resumes_the_statistics(tmp_path):
    small = (
        "--workers",
        2,
        "--envs-per-worker",
        2,
        "--rollout-length",
        4,
        "--evaluate-every",
        0,
        "--evaluation-episodes",
        1,
    )
    flags = ("--scenario", "cartpole", "--normalize-rewards", *small)
    result = call("train", *flags, "--frames", 400, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    before = load(tmp_path / "models" / "last.ckpt").record.counters
    assert before.reward_sums.size == before.steps >= 400
    assert before.reward_sums.spread > 1  # each step pays 1
    result = call("train", "--resume", "--frames", 800, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    after = load(tmp_path / "models" / "last.ckpt").record.counters
    assert after.reward_sums.size == after.steps >= 800


def test_changing_the_game_or_discount_resets_the_statistics():
    record = begin_run(catalog.find("cartpole"), Config(normalize_rewards=True))
    record = record._replace(counters=record.counters._replace(steps=5, reward_sums=RunningMoments(5, 1.0, 2.0)))
    assert continue_run(record, record.scenario, record.config).counters.reward_sums.size == 5
    assert continue_run(record, catalog.find("basic"), record.config).counters.reward_sums == NO_MOMENTS
    assert continue_run(record, record.scenario, changed(record.config, discount=0.5)).counters.reward_sums == NO_MOMENTS


def test_the_page_computes_returns_from_normalized_rewards():
    record = begin_run(catalog.find("cartpole"), Config(normalize_rewards=True, discount=0.5, reward_scale=0.1))
    record = record._replace(counters=record.counters._replace(reward_sums=RunningMoments(2, 0.0, 8.0)))
    played = SimpleNamespace(rewards=[1.0, 2.0, 200.0], bonuses=[1.0, 0.0, 0.0], lives_lost=[])
    assert compute_returns(played, record).tolist() == [1.5 + 0.5 * (1.0 + 0.5 * 10.0), 1.0 + 0.5 * 10.0, 10.0]


def test_the_page_computes_returns_up_to_a_lost_life_and_with_the_weight_of_shaping():
    config = changed(Config(discount=0.5, frames=1000), shaping_weight=1.0, final_shaping_weight=0.0)
    record = begin_run(catalog.find("cartpole"), config)
    record = record._replace(counters=record.counters._replace(frames=750))
    played = SimpleNamespace(rewards=[1.0, 2.0, 4.0, 8.0], bonuses=[4.0, 0.0, 0.0, 0.0], lives_lost=[1])
    assert compute_returns(played, record).tolist() == [1.0 + 0.25 * 4.0 + 0.5 * 2.0, 2.0, 4.0 + 0.5 * 8.0, 8.0]
