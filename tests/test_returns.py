"""Targets against their definitions, written out as loops, and against closed forms."""

import numpy as np
import pytest
from cases import GAMMA, SHAPES, Case, constant

from doom_a3c.algorithm.returns import discounted_sums, generalized_advantages


def brute_sums(terms, ends, decay):
    """Sums x_k decay^(k-t) for k from t to the episode's end, term by term."""
    sums = np.zeros(terms.shape)
    for column in range(terms.shape[1]):
        for t in range(len(terms)):
            for k in range(t, len(terms)):
                sums[t, column] += decay ** (k - t) * float(terms[k, column])
                if ends[k, column]:
                    break
    return sums


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_equal_brute_force(shape, seed):
    case = Case(seed, *shape)
    sums = discounted_sums(case.rewards, case.ends, 0.7)
    assert sums.dtype == np.float32
    np.testing.assert_allclose(sums, brute_sums(case.rewards, case.ends, 0.7), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_advantages_equal_brute_force(shape, seed, gae_lambda):
    case = Case(seed, *shape)
    # A value after a termination must not matter, however large.
    next_values = np.where(case.terminated, 1e6, case.next_values).astype(np.float32)
    deltas = case.rewards + np.where(case.terminated, 0, GAMMA * case.next_values) - case.values
    expected = brute_sums(deltas, case.ends, GAMMA * gae_lambda)
    returns, advantages = case.targets(gae_lambda, next_values=next_values)
    np.testing.assert_allclose(advantages, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(returns, expected + case.values, rtol=1e-4, atol=1e-5)


def test_lambda_0_is_the_one_step_error():
    case = Case(1, 12, 5)
    expected = case.rewards + np.where(case.terminated, 0, GAMMA * case.next_values) - case.values
    np.testing.assert_allclose(case.targets(0.0).advantages, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_lambda_1_is_the_n_step_return(seed):
    case = Case(seed, 12, 5)
    expected = np.zeros(case.rewards.shape)
    for column in range(5):
        for t in range(12):
            end = next((k for k in range(t, 12) if case.ends[k, column]), 11)
            steps = np.arange(t, end + 1)
            expected[t, column] = np.sum(GAMMA ** (steps - t) * case.rewards[steps, column])
            if not case.terminated[end, column]:
                expected[t, column] += GAMMA ** (end + 1 - t) * case.next_values[end, column]
    returns, advantages = case.targets(1.0)
    np.testing.assert_allclose(returns, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, expected - case.values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("terminated", "expected"), [(False, 2 + 0.9 * 7), (True, 2.0)])
def test_one_step_rollout(terminated, expected):
    discounts = np.float32([[0.0 if terminated else GAMMA]])
    returns, advantages = generalized_advantages(
        np.float32([[2]]), discounts, np.array([[terminated]]), np.float32([[3]]), np.float32([[7]]), 1.0, GAMMA
    )
    np.testing.assert_allclose([returns, advantages], [[[expected]], [[expected - 3]]], rtol=1e-6)


@pytest.mark.parametrize("terminates", [True, False])
def test_nothing_leaks_across_an_episode_end(terminates):
    rewards, discounts, ends, values, next_values = constant(6, ends=[2], terminations=[2] if terminates else [])
    rewards, values = rewards.copy(), values.copy()
    rewards[3:], values[3:] = np.nan, np.nan  # poison: any use of it before the end would show
    next_values = np.float32([[1], [1], [5], [np.nan], [np.nan], [np.nan]])
    returns, _ = generalized_advantages(rewards, discounts, ends, values, next_values, 0.95, GAMMA)
    assert np.isfinite(returns[:3]).all()
    assert np.isnan(returns[3:]).all()
    # The step that ends the episode keeps its reward, and bootstraps from its own next value or from nothing.
    np.testing.assert_allclose(returns[2], 1.0 if terminates else 1 + GAMMA * 5, rtol=1e-6)


def test_games_do_not_mix():
    case = Case(3, 10, 4)
    changed = case.rewards.copy()
    changed[:, 1] += 100
    before, after = case.targets(0.95).advantages, case.targets(0.95, rewards=changed).advantages
    np.testing.assert_array_equal(np.delete(before, 1, axis=1), np.delete(after, 1, axis=1))
    assert (before[:, 1] != after[:, 1]).all()


@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_exact_values_give_no_advantage_across_truncations(gae_lambda):
    arguments = constant(20, ends=[4, 9, 10], value=1 / (1 - GAMMA))
    returns, advantages = generalized_advantages(*arguments, gae_lambda, GAMMA)
    np.testing.assert_allclose(advantages, 0, atol=1e-4)
    np.testing.assert_allclose(returns, 1 / (1 - GAMMA), rtol=1e-5)


@pytest.mark.parametrize("terminates", [False, True])
def test_time_limits_do_not_bound_the_value_but_deaths_do(terminates):
    ends = [4, 9, 14, 19]
    value = 0.0
    for _ in range(100):
        arguments = constant(20, ends, terminations=ends if terminates else [], value=value)
        value = float(generalized_advantages(*arguments, 1.0, GAMMA).returns.mean())
    lifetimes = np.arange(1, 6)  # steps left, equally often
    mortal = np.mean((1 - GAMMA**lifetimes) / (1 - GAMMA))
    assert value == pytest.approx(mortal if terminates else 1 / (1 - GAMMA), rel=1e-4)


def test_returns_are_right_on_both_sides_of_an_episode_end():
    rewards, discounts, ends, values, next_values = constant(10, ends=[2], terminations=[2], value=4.0, reward=0.0)
    rewards = rewards.copy()
    rewards[2] = 8.0
    returns, _ = generalized_advantages(rewards, discounts, ends, values, next_values, 1.0, GAMMA)
    np.testing.assert_allclose(returns[:3, 0], [8 * GAMMA**2, 8 * GAMMA, 8], rtol=1e-6)
    np.testing.assert_allclose(returns[3, 0], 4 * GAMMA**7, rtol=1e-6)


def test_integer_rewards_are_not_truncated():
    rewards = np.array([[1], [1], [1]])
    ends = np.zeros((3, 1), np.bool_)
    np.testing.assert_allclose(discounted_sums(rewards, ends, 0.5)[:, 0], [1.75, 1.5, 1.0])
    zeros, halves = np.zeros((3, 1), np.float32), np.full((3, 1), 0.5, np.float32)
    returns, _ = generalized_advantages(rewards, halves, ends, zeros, zeros, 1.0, 0.5)
    np.testing.assert_allclose(returns[:, 0], [1.75, 1.5, 1.0])


def test_inputs_are_not_modified():
    case = Case(0, 8, 3)
    arrays = [case.rewards, case.discounts, case.ends, case.values, case.next_values]
    copies = [array.copy() for array in arrays]
    case.targets(0.95)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", ["discounts", "ends", "values", "next_values"])
def test_a_mismatched_shape_raises(name):
    case = Case(0, 4, 3)
    with pytest.raises(ValueError, match=name):
        case.targets(1.0, **{name: getattr(case, name)[:3]})  # would broadcast or misalign
    with pytest.raises(ValueError, match=name):
        case.targets(1.0, **{name: getattr(case, name)[:, :1]})  # would broadcast


@pytest.mark.parametrize(("terms", "ends"), [((4, 3), (4, 2)), ((4, 1), (4, 3)), ((4,), (4,))])
def test_sums_of_mismatched_shapes_raise(terms, ends):
    with pytest.raises(ValueError, match=r"\[T, B\]"):
        discounted_sums(np.zeros(terms, np.float32), np.zeros(ends, np.bool_), 0.9)
