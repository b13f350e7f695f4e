"""V-trace: off-policy learning targets, as a pure function of tensors."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class WeightedTargets(NamedTuple):
    """The targets of a rollout that another policy may have played."""

    returns: tf.Tensor  # [T, B], the targets of the values
    advantages: tf.Tensor  # [T, B], without their importance weights
    weights: tf.Tensor | float  # importance weights of the advantages, [T, B]; 1 on policy
    errors: tf.Tensor  # [T, B], returns minus the values that they correct


def vtrace(
    log_ratios: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    ends: tf.Tensor,
    values: tf.Tensor,
    next_values: tf.Tensor,
    *,
    trace_decay: float,
    rho_clip: float,
    c_clip: float,
) -> WeightedTargets:
    """Computes V-trace targets (Espeholt et al. 2018, arXiv:1802.01561, sections 4.1 and 4.2, remark 2).

        rho_t = min(rho_clip, pi / mu),  c_t = lambda * min(c_clip, pi / mu)
        delta_t = rho_t * (r_t + discount_t * V(s_{t+1}) - V(s_t))
        v_t - V(s_t) = delta_t + discount_t * c_t * (v_{t+1} - V(s_{t+1})),  the last term 0 after an end
        advantage_t = r_t + discount_t * (V(s_{t+1}) + lambda * (v_{t+1} - V(s_{t+1}))) - V(s_t),  weight_t = rho_t

    The policy gradient is the gradient of weight_t * advantage_t * log pi. The weight is separate because advantages must
    be centred without it: where rho is not clipped, a constant added to all advantages leaves the expected gradient
    unchanged, but a constant added to rho * advantage does not. With lambda 1 the advantage is the paper's,
    r_t + discount_t * v_{t+1} - V(s_t). Below 1, v_{t+1} enters with the share lambda, as in DeepMind's rlax: on policy
    (pi = mu, clips of 1 or more) the advantage is that of GAE(lambda) and v_t its return, and with lambda 1 the v_t are
    n-step returns that bootstrap at the rollout's end. No gradient flows through the result.

    Args:
        log_ratios: log(pi / mu) of the actions taken, pi the learning and mu the acting policy, [T, B].
        rewards: r, [T, B].
        discounts: gamma, or 0 where the step terminates the episode, [T, B].
        ends: 1 where the step terminates or truncates the episode, else 0, float [T, B].
        values: V(s_t) of the learning network, [T, B].
        next_values: V(s_{t+1}) before any reset, [T, B]; the last row is the bootstrap value.
        trace_decay: lambda, 0 to 1.
        rho_clip: limit of rho.
        c_clip: limit of pi / mu in c.

    Raises:
        ValueError: if an argument's shape differs from that of the rewards.
    """
    for name, tensor in (
        ("log_ratios", log_ratios),
        ("discounts", discounts),
        ("ends", ends),
        ("values", values),
        ("next_values", next_values),
    ):
        if not tensor.shape.is_compatible_with(rewards.shape) or len(tensor.shape) != 2:
            raise ValueError(f"{name} must be [T, B] like the rewards, not {tensor.shape} and {rewards.shape}")
    ratios = tf.exp(log_ratios)
    rhos, traces = tf.minimum(ratios, rho_clip), trace_decay * tf.minimum(ratios, c_clip)
    onward = discounts * (1.0 - ends)
    deltas = tf.unstack(rhos * (rewards + discounts * next_values - values))
    decays = tf.unstack(onward * traces)
    corrections = [tf.zeros_like(rewards[0])]  # v_t - V(s_t), from the rollout's end to its start
    for delta, decay in zip(reversed(deltas), reversed(decays), strict=True):
        corrections.append(delta + decay * corrections[-1])
    correction = tf.stack(corrections[:0:-1])
    later = tf.stack(corrections[-2::-1])  # v_{t+1} - V(s_{t+1}) for each t
    advantages = rewards + discounts * next_values + onward * trace_decay * later - values
    return WeightedTargets(*map(tf.stop_gradient, (values + correction, advantages, rhos, correction)))
