"""The actor-critic loss, as pure functions of tensors."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

MAX_LOG_RATIO = 20.0  # whose exponential is finite; a step as far off that should be less likely takes up a whole update


class Loss(NamedTuple):
    """The terms of the loss, each a scalar mean over the T * B steps of a minibatch."""

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

    The last term is not the paper's. The gradient of the entropy vanishes with the probability of an action, so an action
    that a few bad updates have driven out never comes back; that of KL(u || pi), u the uniform policy, is pi - 1/A.
    Every term is a mean over steps, so a learning rate keeps its meaning when the rollout length or the number of
    games changes. The reference A3C-Doom agent sums over its 30 steps instead: its clipping norm of 40 is a norm
    of 40 / 30 here. Gradients flow into the first four arguments; weights and returns are constants.

    Args:
        log_probs: log pi(action) of the actions taken, [N].
        entropies: H(pi) in nats, [N].
        uniform_kls: KL(u || pi) in nats, [N].
        values: V, [N].
        weights: w, advantages times their importance weights, or what `proximal` makes of those, [N].
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


def proximal(weighted: tf.Tensor, advantages: tf.Tensor, log_ratios: tf.Tensor, clip: float) -> tf.Tensor:
    """Returns weights of log pi that hold the policy near the one that played, however often a step is learned from.

    A weight is 0 where the probability of the action has moved beyond 1 - clip to 1 + clip already, in the direction that
    its advantage asks for, and w A elsewhere. With w = r, w A times the gradient of log pi is the gradient of PPO's clipped
    objective, min(r A, clip(r, 1 - clip, 1 + clip) A) (Schulman et al. 2017, arXiv:1707.06347, equation 7).

    Args:
        weighted: w A, the advantages times their importance weights, of any shape.
        advantages: A, of that shape.
        log_ratios: log r = log(pi / mu) of the actions taken, pi the learning and mu the acting policy, of that shape.
        clip: how far a ratio may move from 1.
    """
    ratios = importance_ratios(log_ratios)
    return tf.where(tf.where(advantages > 0, ratios > 1 + clip, ratios < 1 - clip), 0.0, weighted)


def normalized(advantages: tf.Tensor, floor: float = 0.1) -> tf.Tensor:
    """Centres advantages and divides them by their standard deviation, or by `floor` where that is larger.

    The floor keeps a policy that has nothing left to learn (all advantages near 0) from being driven by noise blown
    up to unit size, which is how long runs collapse.
    """
    return (advantages - tf.reduce_mean(advantages)) / tf.maximum(tf.math.reduce_std(advantages), floor)
