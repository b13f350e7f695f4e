"""The actor-critic loss, as pure functions of tensors."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

MAX_LOG_RATIO = 20.0  # exp(20) is finite; one such step with a negative advantage would dominate an update


class Loss(NamedTuple):
    """The terms of the loss, each a scalar mean over the N steps of a minibatch."""

    total: tf.Tensor  # policy + value_cost * value - entropy_cost * entropy + uniform_cost * uniform_kl
    policy: tf.Tensor  # -weight * log pi(action)
    value: tf.Tensor  # 0.5 * (return - value)^2
    entropy: tf.Tensor  # nats
    uniform_kl: tf.Tensor  # nats


def actor_critic_loss(
    log_probs: tf.Tensor,
    entropies: tf.Tensor,
    uniform_kls: tf.Tensor,
    values: tf.Tensor,
    weights: tf.Tensor,
    returns: tf.Tensor,
    *,
    entropy_cost: tf.Tensor | float,
    uniform_cost: float,
    value_cost: float,
) -> Loss:
    """Computes the loss of A3C (Mnih et al. 2016, arXiv:1602.01783, section 4, "Asynchronous advantage actor-critic").

        total = mean(-w log pi(a)) + value_cost * mean(0.5 (R - V)^2) - entropy_cost * mean(H(pi))
                + uniform_cost * mean(KL(u || pi))

    The last term is not in the paper. The entropy's gradient vanishes with the probability of an action, so an action that
    a few bad updates have driven out never comes back. The gradient of KL(u || pi), u the uniform policy, is pi - 1/A and
    does not vanish. Every term is a mean over steps, so a learning rate keeps its meaning when the rollout length or the
    number of games changes. A3C-Doom (docs/algorithm.md) sums over its 30 steps: its clipping norm of 40 corresponds to
    40 / 30 here. Gradients flow into the first four arguments; weights and returns are constants.

    Args:
        log_probs: log pi(action) of the actions taken, [N].
        entropies: H(pi) in nats, [N].
        uniform_kls: KL(u || pi) in nats, [N].
        values: V, [N].
        weights: w, advantages times importance weights, clipped by `clip_weights` or not, [N].
        returns: R, [N].

    Raises:
        ValueError: if an argument is not of rank 1.
    """
    for name, tensor in (
        ("log_probs", log_probs),
        ("entropies", entropies),
        ("uniform_kls", uniform_kls),
        ("values", values),
        ("weights", weights),
        ("returns", returns),
    ):
        if len(tensor.shape) != 1:
            raise ValueError(f"{name} must have rank 1, not shape {tensor.shape}")
    policy = tf.reduce_mean(-tf.stop_gradient(weights) * log_probs)
    value = 0.5 * tf.reduce_mean(tf.square(tf.stop_gradient(returns) - values))
    entropy, uniform_kl = tf.reduce_mean(entropies), tf.reduce_mean(uniform_kls)
    total = policy + value_cost * value - entropy_cost * entropy + uniform_cost * uniform_kl
    return Loss(total, policy, value, entropy, uniform_kl)


def importance_ratios(log_ratios: tf.Tensor) -> tf.Tensor:
    """Returns r = pi / mu from log r, capped so that it stays finite."""
    return tf.exp(tf.minimum(log_ratios, MAX_LOG_RATIO))


def clip_weights(weighted: tf.Tensor, advantages: tf.Tensor, log_ratios: tf.Tensor, clip: float) -> tf.Tensor:
    """Clips the weights of log pi as PPO does, which keeps the policy near the one that played over several updates.

    A weight becomes 0 where the ratio r has left the range 1 - clip to 1 + clip in the direction that the advantage pushes
    it, and stays w A elsewhere. With w = r, w A times the gradient of log pi is the gradient of PPO's clipped objective,
    min(r A, clip(r, 1 - clip, 1 + clip) A) (Schulman et al. 2017, arXiv:1707.06347, equation 7).

    Args:
        weighted: w A, the advantages times their importance weights, of any shape.
        advantages: A, of the same shape.
        log_ratios: log r = log(pi / mu) of the actions taken, pi the learning and mu the acting policy, same shape.
        clip: the largest distance of a ratio from 1.

    Returns:
        The clipped weights, of the same shape.
    """
    ratios = importance_ratios(log_ratios)
    return tf.where(tf.where(advantages > 0, ratios > 1 + clip, ratios < 1 - clip), 0.0, weighted)


def normalize(advantages: tf.Tensor, floor: float = 0.1) -> tf.Tensor:
    """Centres advantages of any shape and divides them by max(standard deviation, `floor`).

    Once a policy has converged, all advantages are near 0. Without the floor, their noise would be scaled up to unit
    size and drive the policy, which is how long runs collapse.
    """
    return (advantages - tf.reduce_mean(advantages)) / tf.maximum(tf.math.reduce_std(advantages), floor)
