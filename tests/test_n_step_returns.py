"""n-step returns against their definition, written out as loops, and against values by hand."""

import itertools

import numpy as np
import pytest
from cases import GAMMA, SHAPES, Case, constant

from doom_a3c.algorithm.returns import n_step_returns

LENGTHS = (1, 2, 5, 50)  # the last is longer than any rollout here


def brute_n_step(case, n, tail):
    """Sums up to n discounted rewards and a bootstrap value for every start, term by term."""
    length, batch = case.rewards.shape
    returns = np.zeros((length, batch))
    for t, b in itertools.product(range(length), range(batch)):
        last = next((k for k in range(t, min(t + n, length)) if case.ends[k, b]), min(t + n, length) - 1)
        for k in range(t, last + 1):
            returns[t, b] += GAMMA ** (k - t) * float(case.rewards[k, b])
        if not case.terminated[last, b] and (last == t + n - 1 or tail == "bootstrap"):
            returns[t, b] += GAMMA ** (last + 1 - t) * float(case.next_values[last, b])
    return returns


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES)
def test_n_step_returns_equal_brute_force(shape, seed, n, tail):
    case = Case(seed, *shape)
    # A value after a termination must not matter, however large.
    next_values = np.where(case.terminated, 1e6, case.next_values).astype(np.float32)
    expected = brute_n_step(case, n, tail)
    returns, advantages = case.n_step(n, tail, next_values=next_values)
    assert returns.dtype == advantages.dtype == np.float32
    np.testing.assert_allclose(returns, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(advantages, expected - case.values, rtol=1e-5, atol=1e-5)


# Rewards 1, 2, 3, 4, each followed by the value 10, 20, 30, 40; discount 1/2; no episode ends within the rollout.
@pytest.mark.parametrize(
    ("n", "tail", "expected"),
    [
        (1, "bootstrap", [1 + 10 / 2, 2 + 20 / 2, 3 + 30 / 2, 4 + 40 / 2]),
        (1, "zero", [1 + 10 / 2, 2 + 20 / 2, 3 + 30 / 2, 4 + 40 / 2]),
        (2, "bootstrap", [1 + 2 / 2 + 20 / 4, 2 + 3 / 2 + 30 / 4, 3 + 4 / 2 + 40 / 4, 4 + 40 / 2]),
        (2, "zero", [1 + 2 / 2 + 20 / 4, 2 + 3 / 2 + 30 / 4, 3 + 4 / 2 + 40 / 4, 4]),
        (4, "zero", [1 + 2 / 2 + 3 / 4 + 4 / 8 + 40 / 16, 2 + 3 / 2 + 4 / 4, 3 + 4 / 2, 4]),
        (9, "bootstrap", [1 + 2 / 2 + 3 / 4 + 4 / 8 + 40 / 16, 2 + 3 / 2 + 4 / 4 + 40 / 8, 3 + 4 / 2 + 40 / 4, 4 + 40 / 2]),
        (9, "zero", [1 + 2 / 2 + 3 / 4 + 4 / 8, 2 + 3 / 2 + 4 / 4, 3 + 4 / 2, 4]),
    ],
)
def test_n_step_returns_match_values_by_hand(n, tail, expected):
    rewards, next_values = np.float32([[1], [2], [3], [4]]), np.float32([[10], [20], [30], [40]])
    halves, ends, values = np.full((4, 1), 0.5, np.float32), np.zeros((4, 1), np.bool_), np.float32([[7], [8], [9], [6]])
    returns, advantages = n_step_returns(rewards, halves, ends, values, next_values, n, tail)
    np.testing.assert_allclose(returns[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], np.subtract(expected, [7, 8, 9, 6]), rtol=1e-6)


# The same, with an episode of two steps that ends in the middle: its last value is 20, or 0 after a termination.
@pytest.mark.parametrize(
    ("terminates", "n", "tail", "expected"),
    [
        (True, 1, "zero", [1 + 10 / 2, 2]),
        (True, 2, "bootstrap", [1 + 2 / 2, 2]),
        (True, 9, "bootstrap", [1 + 2 / 2, 2]),
        (True, 9, "zero", [1 + 2 / 2, 2]),
        (False, 2, "bootstrap", [1 + 2 / 2 + 20 / 4, 2 + 20 / 2]),
        (False, 2, "zero", [1 + 2 / 2 + 20 / 4, 2]),
        (False, 9, "bootstrap", [1 + 2 / 2 + 20 / 4, 2 + 20 / 2]),
        (False, 9, "zero", [1 + 2 / 2, 2]),
    ],
)
def test_returns_of_an_episode_shorter_than_n_match_by_hand(terminates, n, tail, expected):
    rewards, next_values = np.float32([[1], [2], [3], [4]]), np.float32([[10], [20], [30], [40]])
    ends, discounts = np.array([[False], [True], [False], [False]]), np.full((4, 1), 0.5, np.float32)
    discounts[1] = 0.0 if terminates else 0.5
    returns, _ = n_step_returns(rewards, discounts, ends, np.zeros_like(rewards), next_values, n, tail)
    np.testing.assert_allclose(returns[:2, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [12, 13, 50])
def test_n_past_the_rollouts_end_equals_gae_with_lambda_1(n, seed):
    case = Case(seed, 12, 5)
    for n_step, gae in zip(case.n_step(n, "bootstrap"), case.targets(1.0), strict=True):
        np.testing.assert_allclose(n_step, gae, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
def test_one_step_returns_equal_gae_with_lambda_0(tail):
    case = Case(2, 12, 5)
    for n_step, gae in zip(case.n_step(1, tail), case.targets(0.0), strict=True):
        np.testing.assert_allclose(n_step, gae, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", LENGTHS)
def test_integer_rewards_do_not_truncate_the_returns(n, tail):
    case = Case(0, 12, 3)
    rewards = np.random.default_rng(0).integers(-9, 10, case.rewards.shape).astype(np.int32)
    returns, advantages = case.n_step(n, tail, rewards=rewards)
    case.rewards = rewards.astype(np.float32)
    expected = brute_n_step(case, n, tail)
    assert (expected != np.round(expected)).any()
    assert returns.dtype == advantages.dtype == np.float32
    np.testing.assert_allclose(returns, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(advantages, expected - case.values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 50])
def test_a_truncation_bootstraps_from_its_own_next_value(n):
    rewards, discounts, ends, values, next_values = constant(6, ends=[2], value=3.0)
    next_values = next_values.copy()
    next_values[2] = 5.0  # the value of the final observation; 3 is the value of the next episode's first one
    returns, _ = n_step_returns(rewards, discounts, ends, values, next_values, n, "bootstrap")
    np.testing.assert_allclose(returns[1:3, 0], [1 + GAMMA + GAMMA**2 * 5, 1 + GAMMA * 5], rtol=1e-6)


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("terminates", [True, False])
def test_nothing_leaks_across_an_episode_end(terminates, n, tail):
    arguments = constant(6, ends=[2], terminations=[2] if terminates else [], value=2.0)
    before = n_step_returns(*arguments, n, tail).returns
    rewards, discounts, ends, values, next_values = (array.copy() for array in arguments)
    rewards[3:], values[3:], next_values[3:] = 1e30, 1e30, 1e30  # poison: any use of it before the end would show
    after = n_step_returns(rewards, discounts, ends, values, next_values, n, tail).returns
    np.testing.assert_array_equal(after[:3], before[:3])
    assert (after[3:] > 1e29).all()


def test_inputs_are_not_modified():
    case = Case(0, 8, 3)
    arrays = [case.rewards, case.discounts, case.ends, case.values, case.next_values]
    copies = [array.copy() for array in arrays]
    case.n_step(3, "bootstrap")
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(("n", "tail"), [(0, "bootstrap"), (-1, "zero"), (3, "nothing"), (3, "")])
def test_a_bad_n_or_tail_raises(n, tail):
    with pytest.raises(ValueError, match=rf"not {n} and '{tail}'"):
        Case(0, 4, 3).n_step(n, tail)


@pytest.mark.parametrize("name", ["discounts", "ends", "values", "next_values"])
def test_arrays_of_different_shapes_raise(name):
    case = Case(0, 4, 3)
    with pytest.raises(ValueError, match=name):
        case.n_step(2, "zero", **{name: getattr(case, name)[:3]})  # would misalign
    with pytest.raises(ValueError, match=name):
        case.n_step(2, "zero", **{name: getattr(case, name)[:, :1]})  # would broadcast
