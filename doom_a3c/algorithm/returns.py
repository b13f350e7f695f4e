"""Learning targets from rollouts: generalised advantages and n-step returns, as pure functions of NumPy arrays.

Time runs along the first axis. Reward r_t and the ends of step t follow the action chosen at observation t:

    observation_t, value_t -> action_t -> reward_t, end_t -> observation_{t+1}, value_{t+1}
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Array = NDArray[np.float32]


class Targets(NamedTuple):
    """The targets of a rollout played by the learning policy."""

    returns: Array  # [T, B], the targets of the values
    advantages: Array  # [T, B], the weights of the policy gradient


def discounted_sums(terms: Array, ends: NDArray[np.bool_], decay: float) -> Array:
    """Sums terms backwards in time with a decay, restarting at every episode end.

    Recursion: S_t = x_t + decay * (0 if end_t else S_{t+1}), with S_T = 0. The recursion is the linear filter
    1 / (1 - decay z^-1) run over reversed time; columns without an inner episode end are filtered in one call.

    Args:
        terms: x, [T, B].
        ends: whether an episode ends with step t, [T, B].
        decay: factor per step.

    Returns:
        S, float32 [T, B].

    Raises:
        ValueError: if the shapes differ or are not of rank 2.
    """
    if terms.ndim != 2 or terms.shape != ends.shape:
        raise ValueError(f"terms and ends must be [T, B] alike, not {terms.shape} and {ends.shape}")
    sums = np.empty(terms.shape, np.float64)
    broken = ends[:-1].any(axis=0)
    sums[:, ~broken] = _filter(terms[:, ~broken], decay)
    for column in np.flatnonzero(broken):
        starts = [0, *(np.flatnonzero(ends[:-1, column]) + 1), len(terms)]
        for start, stop in itertools.pairwise(starts):
            sums[start:stop, column] = _filter(terms[start:stop, column], decay)
    return sums.astype(np.float32)


def _filter(terms: Array, decay: float) -> NDArray[np.float64]:
    filtered: NDArray[np.float64] = lfilter([1.0], [1.0, -decay], terms[::-1].astype(np.float64), axis=0)[::-1]
    return filtered


def generalized_advantages(
    rewards: Array,
    discounts: Array,
    ends: NDArray[np.bool_],
    values: Array,
    next_values: Array,
    gae_lambda: float,
    discount: float,
) -> Targets:
    """Estimates advantages by GAE(lambda) and the returns that go with them.

    delta_t = r_t + discount_t * V(s_{t+1}) - V(s_t);  A_t = delta_t + discount * lambda * A_{t+1} up to the end of
    the episode or of the rollout;  R_t = A_t + V(s_t). Lambda 1 gives n-step returns that bootstrap from the last
    value; lambda 0 gives the one-step TD error. Schulman et al. 2016 (arXiv:1506.02438), equations 11 and 16.

    A termination has discount_t = 0. A truncation ends the sum too, but keeps discount_t = gamma, and its next value is
    the value of the episode's own final observation: a time-out must not be learned as a death.

    Args:
        rewards: r, [T, B].
        discounts: gamma, or 0 where the step terminates the episode, [T, B].
        ends: whether the step terminates or truncates the episode, [T, B].
        values: V(s_t) of the acting network, [T, B].
        next_values: V(s_{t+1}) before any reset, [T, B]; the last row is the bootstrap value.
        gae_lambda: lambda, 0 to 1.
        discount: gamma.

    Raises:
        ValueError: if a shape differs from that of the rewards.
    """
    _check_shapes(rewards, discounts=discounts, ends=ends, values=values, next_values=next_values)
    deltas = rewards + discounts * next_values - values
    advantages = discounted_sums(deltas, ends, discount * gae_lambda)
    return Targets(advantages + values, advantages)


def n_step_returns(
    rewards: Array,
    discounts: Array,
    ends: NDArray[np.bool_],
    values: Array,
    next_values: Array,
    n: int,
    tail: str,
) -> Targets:
    """Computes n-step returns and the advantages that go with them.

    R_t = r_t + discount_t * (r_{t+1} + discount_{t+1} * (... + discount_{t+n-1} * V(s_{t+n}))): Sutton & Barto 2018,
    equation 7.1. A_t = R_t - V(s_t). No term after a termination (discount 0) counts. If a truncation or the end of the
    rollout comes before n rewards, the tail 'bootstrap' sums the available rewards and bootstraps from the value of the
    next observation; the tail 'zero' counts the missing rewards and the value as 0.

    Args:
        rewards: r, [T, B], of any number type.
        discounts: gamma, or 0 where the step terminates the episode, [T, B].
        ends: whether the step terminates or truncates the episode, [T, B].
        values: V(s_t), [T, B].
        next_values: V(s_{t+1}) before any reset, [T, B].
        n: number of rewards, 1 or more; may exceed T.
        tail: 'bootstrap' or 'zero'.

    Raises:
        ValueError: if a shape differs from that of the rewards, n is below 1 or the tail unknown.
    """
    _check_shapes(rewards, discounts=discounts, ends=ends, values=values, next_values=next_values)
    if n < 1 or tail not in ("bootstrap", "zero"):
        raise ValueError(f"n must be 1 or more and the tail 'bootstrap' or 'zero', not {n} and {tail!r}")
    length = len(rewards)
    returns = np.zeros(rewards.shape, np.float64)
    weights = np.ones(rewards.shape, np.float64)  # product of the discounts so far, 0 once a return is complete
    for k in range(min(n, length)):
        rows = slice(0, length - k)  # the returns with a k-th reward, which lies in row t + k
        weight = weights[rows]
        returns[rows] += weight * rewards[k:]
        weight *= discounts[k:]
        last = ends[k:].copy()
        last[-1] = True
        complete = np.full(last.shape, k == n - 1)
        returns[rows] += np.where(complete | (last & (tail == "bootstrap")), weight * next_values[k:], 0.0)
        weight[last] = 0.0
    return Targets(returns.astype(np.float32), (returns - values).astype(np.float32))


def _check_shapes(rewards: Array, **arrays: NDArray[Any]) -> None:
    for name, array in arrays.items():
        if array.shape != rewards.shape:
            raise ValueError(f"{name} must be {rewards.shape} like the rewards, not {array.shape}")
