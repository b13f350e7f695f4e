"""V-trace against the sum in the paper, written out as loops, and against the targets it generalises."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.algorithm.returns import generalized_advantages, n_step_returns
from doom_a3c.algorithm.vtrace import vtrace

GAMMA = 0.9
CLIPS = [(1.0, 1.0), (0.5, 2.0), (2.0, 0.7), (1e9, 1e9)]  # of rho and c
FREE = {"trace_decay": 1.0, "rho_clip": 1e9, "c_clip": 1e9}


class Case(NamedTuple):
    """A random rollout, its values chained from row to row; the value after a termination must not matter."""

    log_ratios: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    ends: np.ndarray
    values: np.ndarray
    next_values: np.ndarray


def random_case(seed, length, batch, end_probability=0.15):
    random = np.random.default_rng(seed)
    kind = random.random((length, batch))
    terminated, truncated = kind < end_probability, kind > 1 - end_probability
    values = random.normal(size=(length + 1, batch))
    finals = random.normal(size=(length, batch))
    case = Case(
        log_ratios=random.normal(size=(length, batch)),
        rewards=random.normal(size=(length, batch)),
        discounts=np.where(terminated, 0, random.choice([GAMMA, 0.5], size=(length, batch))),
        ends=terminated | truncated,
        values=values[:-1],
        next_values=np.where(terminated, 1e3, np.where(truncated, finals, values[1:])),
    )
    return Case(*(array.astype(np.float32) for array in case))


def targets(case, *, trace_decay, rho_clip, c_clip):
    tensors = (tf.convert_to_tensor(array) for array in case)
    *found, errors = (
        target.numpy() for target in vtrace(*tensors, trace_decay=trace_decay, rho_clip=rho_clip, c_clip=c_clip)
    )
    np.testing.assert_allclose(errors, found[0] - case.values, atol=1e-4)
    return found


def brute_force(case, trace_decay, rho_clip, c_clip):
    """Sums equation 1 of arXiv:1802.01561 for every s, term by term, with a discount for every step."""
    ratios, rewards, discounts, ends, values, next_values = (np.float64(array) for array in case)
    ratios = np.exp(ratios)
    length, batch = rewards.shape
    returns, advantages = values.copy(), np.zeros((length, batch))
    weights = np.minimum(rho_clip, ratios)
    for b in range(batch):
        for s, t in itertools.combinations_with_replacement(range(length), 2):
            if not ends[s:t, b].any():
                traces = [trace_decay * min(c_clip, ratio) for ratio in ratios[s:t, b]]
                delta = weights[t, b] * (rewards[t, b] + discounts[t, b] * next_values[t, b] - values[t, b])
                returns[s, b] += np.prod(discounts[s:t, b]) * np.prod(traces) * delta
        for s in range(length):
            goes_on = s + 1 < length and not ends[s, b]
            later = returns[s + 1, b] - values[s + 1, b] if goes_on else 0.0
            target = rewards[s, b] + discounts[s, b] * (next_values[s, b] + trace_decay * later)
            advantages[s, b] = target - values[s, b]
    return returns, advantages, weights


@pytest.mark.parametrize("clips", CLIPS)
@pytest.mark.parametrize("trace_decay", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 3), (7, 4), (20, 5)])
def test_targets_equal_brute_force(shape, trace_decay, clips):
    for seed in range(3):
        case = random_case(seed, *shape)
        arguments = dict(zip(("trace_decay", "rho_clip", "c_clip"), (trace_decay, *clips), strict=True))
        for array, expected in zip(targets(case, **arguments), brute_force(case, **arguments), strict=True):
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5 * max(1, np.abs(expected).max()))


def test_two_steps_match_values_by_hand():
    case = Case(*(np.float32(row)[:, None] for row in ([0, 0], [1, 2], [0.5, 0.5], [0, 0], [3, 4], [4, 8])))
    case = case._replace(log_ratios=np.log(np.float32([[2], [0.5]])))
    returns, advantages, weights = targets(case, trace_decay=0.5, rho_clip=1.5, c_clip=1.0)
    # rho = 1.5, 0.5; c = 0.5, 0.25; differences 1 + 4/2 - 3 = 0 and 2 + 8/2 - 4 = 2, weighed 0 and 1
    np.testing.assert_allclose(returns[:, 0], [3 + 0 + 0.5 * 0.5 * 1, 4 + 1], rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], [1 + 0.5 * (4 + 0.5 * 1) - 3, 2], rtol=1e-6)
    np.testing.assert_allclose(weights[:, 0], [1.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 3.0), (1e9, 1e9)])
@pytest.mark.parametrize("trace_decay", [0.0, 0.5, 0.95, 1.0])
def test_on_policy_targets_are_generalised_advantages(trace_decay, clips):
    case = random_case(0, 20, 6)
    case = case._replace(log_ratios=np.zeros_like(case.rewards), discounts=np.float32(GAMMA) * (case.discounts > 0))
    _, rewards, discounts, ends, values, next_values = case
    expected = generalized_advantages(rewards, discounts, ends > 0, values, next_values, trace_decay, GAMMA)
    returns, advantages, weights = targets(case, trace_decay=trace_decay, rho_clip=clips[0], c_clip=clips[1])
    np.testing.assert_array_equal(weights, 1)
    np.testing.assert_allclose(returns, expected.returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, expected.advantages, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [20, 50])
def test_on_policy_targets_of_lambda_1_are_n_step_returns(n):
    case = random_case(1, 20, 6)
    case = case._replace(log_ratios=np.zeros_like(case.rewards))
    _, rewards, discounts, ends, values, next_values = case
    expected = n_step_returns(rewards, discounts, ends > 0, values, next_values, n, "bootstrap")
    returns, advantages, _ = targets(case, trace_decay=1.0, rho_clip=1.0, c_clip=1.0)
    np.testing.assert_allclose(returns, expected.returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, expected.advantages, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("log_ratio", [20.0, 1e3])  # the second is infinite as a float32 ratio
def test_clips_bound_huge_ratios(log_ratio):
    case = random_case(2, 12, 4)
    huge = case._replace(log_ratios=np.full_like(case.rewards, log_ratio))
    for rho_clip, c_clip in itertools.product((0.5, 1.0, 3.0), repeat=2):
        clips = {"rho_clip": rho_clip, "c_clip": c_clip}
        expected = brute_force(huge._replace(log_ratios=np.full_like(case.rewards, 5.0)), 0.9, **clips)
        for array, other in zip(targets(huge, trace_decay=0.9, **clips), expected, strict=True):
            np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-4)


def test_a_clip_of_a_billion_does_not_clip():
    case = random_case(3, 8, 4)
    case = case._replace(log_ratios=2 * case.log_ratios)
    free, clipped = targets(case, **FREE), targets(case, trace_decay=1.0, rho_clip=1.0, c_clip=1.0)
    for array, other, expected in zip(free, clipped, brute_force(case, 1.0, np.inf, np.inf), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        assert np.abs(array - other).max() > 1


def test_actions_of_zero_probability_teach_nothing():
    case = random_case(4, 8, 4)
    returns, advantages, weights = targets(case._replace(log_ratios=np.full_like(case.rewards, -np.inf)), **FREE)
    np.testing.assert_array_equal(returns, case.values)
    np.testing.assert_array_equal(weights, 0)
    assert np.isfinite(advantages).all()
    # One such action in the middle cuts off what comes after it.
    case.log_ratios[3] = -np.inf
    changed = case._replace(rewards=case.rewards + 100 * (np.arange(8) > 3)[:, None].astype(np.float32))
    for before, after in zip(targets(case, **FREE)[:1], targets(changed, **FREE)[:1], strict=True):
        np.testing.assert_array_equal(before[:4], after[:4])
        assert (before[4:] != after[4:]).all()


@pytest.mark.parametrize("discount", [0.0, GAMMA])
def test_nothing_leaks_across_an_episode_end(discount):
    case = random_case(5, 6, 2, end_probability=0)
    case.ends[2], case.discounts[2] = 1, discount
    poisoned = Case(*(array.copy() for array in case))
    poisoned.rewards[3:], poisoned.values[3:], poisoned.next_values[3:], poisoned.log_ratios[3:] = 1e6, -1e6, 1e6, 3
    pairs = list(zip(targets(case, **FREE), targets(poisoned, **FREE), strict=True))
    for before, after in pairs:
        np.testing.assert_array_equal(before[:3], after[:3])
    for _, after in pairs[:2]:
        assert (np.abs(after[3:]) > 1e5).all()


def test_no_gradient_flows_through_the_targets():
    tensors = [tf.convert_to_tensor(array) for array in random_case(6, 5, 2)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(tensors)
        result = vtrace(*tensors, **FREE)
    for target in result:
        assert tape.gradient(target, tensors) == [None] * len(tensors)


def test_a_batch_of_unknown_size_gives_the_same_targets():
    case = random_case(7, 6, 3)
    unknown = tf.TensorSpec((6, None), tf.float32)
    compiled = tf.function(lambda *tensors: vtrace(*tensors, **FREE), input_signature=[unknown] * len(case))
    for array, expected in zip(compiled(*case)[:3], targets(case, **FREE), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["log_ratios", "discounts", "ends", "values", "next_values"])
def test_a_mismatched_shape_raises(name):
    case = random_case(0, 4, 3)
    array = getattr(case, name)
    for wrong in (array[:3], array[:1], array[:, :1], array[:, 0], array[..., None]):  # most would broadcast
        with pytest.raises(ValueError, match=name):
            targets(case._replace(**{name: wrong}), **FREE)


def test_a_wrong_rank_raises():
    case = random_case(0, 4, 3)
    for index in (np.s_[:, 0], np.s_[..., None]):
        with pytest.raises(ValueError, match=r"\[T, B\]"):
            targets(Case(*(array[index] for array in case)), **FREE)
    with pytest.raises(ValueError, match="log_ratios"):
        targets(case._replace(rewards=case.rewards[:, :1]), **FREE)
