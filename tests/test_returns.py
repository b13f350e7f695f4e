"""Targets against their definitions, written out as loops, and against closed forms."""

import itertools

import numpy as np
import pytest

from doom_a3c.returns import discounted_sums, generalized_advantages, n_step_returns

GAMMA = 0.9
SHAPES = [(1, 1), (1, 5), (2, 3), (7, 4), (30, 6)]


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


class Case:
    """A random rollout with terminations and truncations inside, its values chained from row to row."""

    def __init__(self, seed, length, batch, end_probability=0.2):
        random = np.random.default_rng(seed)
        kind = random.random((length, batch))
        self.terminated = kind < end_probability
        self.truncated = (kind > 1 - end_probability) & ~self.terminated
        self.ends = self.terminated | self.truncated
        self.rewards = random.normal(size=(length, batch)).astype(np.float32)
        values = random.normal(size=(length + 1, batch)).astype(np.float32)
        finals = random.normal(size=(length, batch)).astype(np.float32)
        self.values = values[:-1]
        self.next_values = np.where(self.truncated, finals, values[1:])
        self.discounts = np.where(self.terminated, 0, GAMMA).astype(np.float32)

    def targets(self, gae_lambda, **changes):
        arrays = {name: getattr(self, name) for name in ("rewards", "discounts", "ends", "values", "next_values")}
        return generalized_advantages(**{**arrays, **changes}, gae_lambda=gae_lambda, discount=GAMMA)

    def n_step(self, n, tail, **changes):
        arrays = {name: getattr(self, name) for name in ("rewards", "discounts", "ends", "values", "next_values")}
        return n_step_returns(**{**arrays, **changes}, n=n, tail=tail)


def constant(length, ends=(), terminations=(), value=0.0, reward=1.0):
    """Returns the arguments of one game with constant reward and value; `ends` includes the terminations."""
    ended = np.zeros((length, 1), np.bool_)
    ended[list(ends)] = True
    discounts = np.full((length, 1), GAMMA, np.float32)
    discounts[list(terminations)] = 0
    values = np.full((length, 1), value, np.float32)
    return np.full((length, 1), reward, np.float32), discounts, ended, values, values


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
    # A value behind a termination must not matter, however large.
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
def test_nothing_leaks_across_an_end(terminates):
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
def test_right_values_have_no_advantage_across_truncations(gae_lambda):
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
    lifetimes = np.arange(1, 6)  # steps left, as often each
    mortal = np.mean((1 - GAMMA**lifetimes) / (1 - GAMMA))
    assert value == pytest.approx(mortal if terminates else 1 / (1 - GAMMA), rel=1e-4)


def test_a_rollout_longer_than_the_episode_keeps_rewards_and_powers():
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


def test_inputs_are_left_alone():
    case = Case(0, 8, 3)
    arrays = [case.rewards, case.discounts, case.ends, case.values, case.next_values]
    copies = [array.copy() for array in arrays]
    case.targets(0.95)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", ["discounts", "ends", "values", "next_values"])
def test_another_shape_raises(name):
    case = Case(0, 4, 3)
    with pytest.raises(ValueError, match=name):
        case.targets(1.0, **{name: getattr(case, name)[:3]})  # would broadcast or misalign
    with pytest.raises(ValueError, match=name):
        case.targets(1.0, **{name: getattr(case, name)[:, :1]})  # would broadcast


@pytest.mark.parametrize(("terms", "ends"), [((4, 3), (4, 2)), ((4, 1), (4, 3)), ((4,), (4,))])
def test_sums_of_another_shape_raise(terms, ends):
    with pytest.raises(ValueError, match=r"\[T, B\]"):
        discounted_sums(np.zeros(terms, np.float32), np.zeros(ends, np.bool_), 0.9)


# n-step returns

LENGTHS = (1, 2, 5, 50)  # the last is longer than any rollout here


def brute_n_step(case, n, tail):
    """Sums up to n discounted rewards and a value for every start, term by term."""
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
    # A value behind a termination must not matter, however large.
    next_values = np.where(case.terminated, 1e6, case.next_values).astype(np.float32)
    expected = brute_n_step(case, n, tail)
    returns, advantages = case.n_step(n, tail, next_values=next_values)
    assert returns.dtype == advantages.dtype == np.float32
    np.testing.assert_allclose(returns, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(advantages, expected - case.values, rtol=1e-5, atol=1e-5)


# Rewards 1, 2, 3, 4 and values 10, 20, 30, 40 behind them, discounted by 1/2; nothing ends but the rollout.
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
def test_n_step_returns_by_hand_keep_every_reward_to_the_end(n, tail, expected):
    rewards, next_values = np.float32([[1], [2], [3], [4]]), np.float32([[10], [20], [30], [40]])
    halves, ends, values = np.full((4, 1), 0.5, np.float32), np.zeros((4, 1), np.bool_), np.float32([[7], [8], [9], [6]])
    returns, advantages = n_step_returns(rewards, halves, ends, values, next_values, n, tail)
    np.testing.assert_allclose(returns[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], np.subtract(expected, [7, 8, 9, 6]), rtol=1e-6)


# The same, where an episode of two decisions ends in the middle: its last value is 20, or 0 after a termination.
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
def test_n_step_returns_by_hand_of_an_episode_shorter_than_n(terminates, n, tail, expected):
    rewards, next_values = np.float32([[1], [2], [3], [4]]), np.float32([[10], [20], [30], [40]])
    ends, discounts = np.array([[False], [True], [False], [False]]), np.full((4, 1), 0.5, np.float32)
    discounts[1] = 0.0 if terminates else 0.5
    returns, _ = n_step_returns(rewards, discounts, ends, np.zeros_like(rewards), next_values, n, tail)
    np.testing.assert_allclose(returns[:2, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [12, 13, 50])
def test_n_steps_to_the_rollouts_end_are_lambda_1(n, seed):
    case = Case(seed, 12, 5)
    for n_step, gae in zip(case.n_step(n, "bootstrap"), case.targets(1.0), strict=True):
        np.testing.assert_allclose(n_step, gae, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
def test_one_step_is_lambda_0(tail):
    case = Case(2, 12, 5)
    for n_step, gae in zip(case.n_step(1, tail), case.targets(0.0), strict=True):
        np.testing.assert_allclose(n_step, gae, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", LENGTHS)
def test_integer_rewards_of_n_step_returns_are_not_truncated(n, tail):
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
def test_a_truncation_of_n_step_returns_bootstraps_from_its_own_next_value(n):
    rewards, discounts, ends, values, next_values = constant(6, ends=[2], value=3.0)
    next_values = next_values.copy()
    next_values[2] = 5.0  # of the final observation; 3 is the next episode's first
    returns, _ = n_step_returns(rewards, discounts, ends, values, next_values, n, "bootstrap")
    np.testing.assert_allclose(returns[1:3, 0], [1 + GAMMA + GAMMA**2 * 5, 1 + GAMMA * 5], rtol=1e-6)


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("terminates", [True, False])
def test_nothing_leaks_across_an_end_into_n_step_returns(terminates, n, tail):
    arguments = constant(6, ends=[2], terminations=[2] if terminates else [], value=2.0)
    before = n_step_returns(*arguments, n, tail).returns
    rewards, discounts, ends, values, next_values = (array.copy() for array in arguments)
    rewards[3:], values[3:], next_values[3:] = 1e30, 1e30, 1e30  # poison: any use of it before the end would show
    after = n_step_returns(rewards, discounts, ends, values, next_values, n, tail).returns
    np.testing.assert_array_equal(after[:3], before[:3])
    assert (after[3:] > 1e29).all()


def test_n_step_inputs_are_left_alone():
    case = Case(0, 8, 3)
    arrays = [case.rewards, case.discounts, case.ends, case.values, case.next_values]
    copies = [array.copy() for array in arrays]
    case.n_step(3, "bootstrap")
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(("n", "tail"), [(0, "bootstrap"), (-1, "zero"), (3, "nothing"), (3, "")])
def test_n_step_returns_of_a_bad_length_or_tail_raise(n, tail):
    with pytest.raises(ValueError, match=rf"not {n} and '{tail}'"):
        Case(0, 4, 3).n_step(n, tail)


@pytest.mark.parametrize("name", ["discounts", "ends", "values", "next_values"])
def test_n_step_returns_of_another_shape_raise(name):
    case = Case(0, 4, 3)
    with pytest.raises(ValueError, match=name):
        case.n_step(2, "zero", **{name: getattr(case, name)[:3]})  # would misalign
    with pytest.raises(ValueError, match=name):
        case.n_step(2, "zero", **{name: getattr(case, name)[:, :1]})  # would broadcast
