"""Choosing actions: sampling from the policy, exploration on top of it, and the recorded probabilities."""

import numpy as np
import pytest
from scipy.special import log_softmax

from doom_a3c.agent.distributions import Categorical, explore

# Sampling


@pytest.mark.parametrize("probabilities", [[0.5, 0.3, 0.2], [0.25] * 4, [0.98, 0.01, 0.01], [1.0, 0.0]])
def test_samples_follow_softmax(probabilities):
    count = 40_000
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(probabilities), -1e3) + 7  # softmax is invariant to the 7
    policy = Categorical(len(probabilities))
    actions = policy.sample(np.tile(logits.astype(np.float32), (count, 1)), np.random.default_rng(0))
    assert actions.dtype == np.int32
    frequencies = np.bincount(actions, minlength=len(probabilities)) / count
    deviations = np.sqrt(np.multiply(probabilities, np.subtract(1, probabilities)) / count)
    assert (np.abs(frequencies - probabilities) <= 5 * deviations).all()


def test_each_row_samples_its_own_logits():
    logits = np.full((6, 3), -1e3, np.float32)
    chosen = np.array([2, 0, 1, 1, 0, 2])
    logits[np.arange(6), chosen] = 1e3
    np.testing.assert_array_equal(Categorical(3).sample(logits, np.random.default_rng(0)), chosen)


# Exploration

POLICY = Categorical(4)
EPSILONS = np.float32([0, 0.01, 0.1, 0.5, 0.9, 1])  # one for each game


def mixture(logits, epsilons):
    """Returns (1 - epsilon) softmax(logits) + epsilon / A in float64, [B, A]."""
    powers = np.exp(np.float64(logits) - logits.max(axis=1, keepdims=True))
    return (1 - epsilons[:, None]) * powers / powers.sum(axis=1, keepdims=True) + epsilons[:, None] / logits.shape[1]


def some_logits(actions=4, size=2.0):
    return np.random.default_rng(5).normal(scale=size, size=(len(EPSILONS), actions)).astype(np.float32)


def chosen_of(array, actions):
    return np.take_along_axis(array, actions[..., None], axis=-1)[..., 0]


def draws(logits, count, greedy=False):
    """Returns `count` actions and log-probabilities for every game, each [count, B], from one call."""
    repeated = np.tile(logits, (count, 1)), np.tile(EPSILONS, count)
    actions, log_probs = explore(POLICY, *repeated, np.random.default_rng(0), greedy)
    assert actions.dtype == np.int32
    assert log_probs.dtype == np.float32
    return actions.reshape(count, -1), log_probs.reshape(count, -1)


@pytest.mark.parametrize("size", [0.1, 2.0, 30.0])
def test_explored_log_probs_are_those_of_the_mixture(size):
    logits = some_logits(size=size)
    actions, log_probs = draws(logits, 500)
    probabilities = np.tile(mixture(logits, EPSILONS), (500, 1, 1))
    np.testing.assert_allclose(log_probs, np.log(chosen_of(probabilities, actions)), rtol=1e-4, atol=1e-6)
    assert len(np.unique(actions[:, 2])) == 4  # with epsilon 0.1 even the unlikely actions are drawn
    assert explore(POLICY, logits, EPSILONS.astype(np.float64), np.random.default_rng(0))[1].dtype == np.float32


@pytest.mark.parametrize("sure", [False, True])
def test_explored_actions_follow_the_mixture(sure):
    count, logits = 40_000, some_logits()
    probabilities = mixture(1e3 * logits if sure else logits, EPSILONS)
    actions, _ = draws(logits, count, greedy=sure)
    frequencies = np.stack([np.bincount(column, minlength=4) for column in actions.T]) / count
    deviations = np.sqrt(probabilities * (1 - probabilities) / count)
    assert (np.abs(frequencies - probabilities) <= 5 * deviations + 1e-12).all()


def test_games_explore_independently_of_neighbours_and_policy():
    # Exploring whenever the neighbour does, or repeating the policy's own choice, would fail here.
    logits = np.float32([[50, 0], [50, 0]])
    epsilons = np.full(80_000, 0.5, np.float32)
    actions, _ = explore(Categorical(2), np.tile(logits, (40_000, 1)), epsilons, np.random.default_rng(0))
    others = actions.reshape(-1, 2) == 1  # with probability 1/4 each, independently
    assert np.mean(others.all(axis=1)) == pytest.approx(1 / 16, abs=5 * np.sqrt(15 / 256 / 40_000))


def test_epsilon_0_draws_exactly_as_sample_does():
    logits = np.tile(some_logits(), (50, 1))
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(3):  # the streams stay in step
        actions, log_probs = explore(POLICY, logits, np.zeros(len(logits), np.float32), one)
        np.testing.assert_array_equal(actions, POLICY.sample(logits, other))
        np.testing.assert_array_equal(log_probs, chosen_of(log_softmax(logits, axis=1), actions))


def test_greedy_games_always_take_their_likeliest_action():
    logits = some_logits()
    best = logits.argmax(axis=1)
    for seed in range(100):
        actions, _ = explore(POLICY, logits, np.zeros(len(logits), np.float32), np.random.default_rng(seed), True)
        np.testing.assert_array_equal(actions, best)
    np.testing.assert_array_equal(logits, some_logits())


def test_greedy_games_leave_the_draws_of_others_unchanged():
    logits, none = np.tile(some_logits(), (50, 1)), np.zeros(50 * len(EPSILONS), np.float32)
    greedy = np.arange(len(logits)) % 3 == 0
    drawn, _ = explore(POLICY, logits, none, np.random.default_rng(3))
    actions, _ = explore(POLICY, logits, none, np.random.default_rng(3), greedy)
    np.testing.assert_array_equal(actions, np.where(greedy, logits.argmax(axis=1), drawn))
    assert (drawn != actions).any()


def test_greedy_takes_the_first_of_equal_actions():
    np.testing.assert_array_equal(Categorical(3).mode(np.float32([[3, 3, 1], [0, 0, 0], [0, 5, 5]])), [0, 0, 1])
