"""Distributions over actions, parametrised by the policy head, for playing and learning.

Playing uses NumPy, learning uses TensorFlow in a graph. `joint_actions` covers spaces other than Discrete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Array = NDArray[np.float32]
Actions = NDArray[Any]  # [B, ...], in the shape and type of the distribution
FREE_START = math.log(0.5)  # a Gaussian's rho; at 0 most of CarRacing's actions would be at the ends of their ranges
MASKED = -1e30  # the logit of a forbidden action: below all others; exp(MASKED) is 0, and products with it are finite


class Distribution(Protocol):
    """A family of distributions. `logits` are its parameters, the outputs of the policy head. Compares by value."""

    @property
    def size(self) -> int:
        """P, the number of policy outputs per observation."""

    @property
    def free(self) -> int:
        """How many parameters, the last ones, do not depend on the observation; they start at `FREE_START`."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action."""

    @property
    def action_type(self) -> type[np.generic]:
        """The number type of actions."""

    @property
    def code_size(self) -> int:
        """E, the length of an action's code."""

    def bound(self, actions: Actions) -> Actions:
        """Returns actions, [B, ...], as games play them: numbers are clipped to [-1, 1]."""

    def encode(self, actions: Actions) -> Array:
        """Encodes actions, [B, ...], as numbers [B, E]: choices one-hot, numbers as games play them."""

    def sample(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws actions, [B, P] -> [B, ...]."""

    def mode(self, logits: Array) -> Actions:
        """Returns the greedy actions, [B, P] -> [B, ...]: the likeliest choices, and the means of numbers."""

    def mode_tensor(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the likeliest actions as games play them, in a graph, [N, P] -> [N, ...]."""

    def sample_uniform(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws actions uniformly among those that the logits allow, [B, P] -> [B, ...]."""

    def uniform_log_prob(self, logits: Array, actions: Actions) -> NDArray[np.float64]:
        """Returns the logarithm of the probability, or density, of actions in such a draw, [B]."""

    def log_prob_np(self, logits: Array, actions: Actions) -> Array:
        """Returns log pi(action) on the host, [B]."""

    def log_prob(self, logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns log pi(action), [N], for logits [N, P] and actions [N, ...]."""

    def entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, [N]."""

    def kl_from_uniform(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns KL(uniform || pi) in nats, [N], for logits [N, P]."""

    def is_valid(self, actions: Actions) -> bool:
        """Returns whether `log_prob` accepts actions, [..., *action_shape], that another program sent."""


@dataclass(frozen=True)
class Categorical:
    """One of A actions, with the probabilities softmax(logits); `masked` if the game sometimes forbids some of them."""

    size: int  # A
    masked: bool = False
    action_shape: tuple[int, ...] = ()
    action_type: type[np.generic] = np.int32
    free: int = 0

    @property
    def code_size(self) -> int:
        return self.size

    def bound(self, actions: Actions) -> Actions:
        return actions

    def encode(self, actions: Actions) -> Array:
        code = np.zeros((len(actions), self.size), np.float32)
        code[np.arange(len(actions)), actions] = 1.0
        return code

    def sample(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws action indices, [B, A] -> [B], by the Gumbel-max trick."""
        actions: Actions = np.argmax(logits + random.gumbel(size=logits.shape), axis=1).astype(np.int32)
        return actions

    def mode(self, logits: Array) -> Actions:
        """Returns the first of the likeliest actions, [B, A] -> [B]."""
        actions: Actions = logits.argmax(axis=1).astype(np.int32)
        return actions

    def mode_tensor(self, logits: tf.Tensor) -> tf.Tensor:
        return tf.argmax(logits, axis=1, output_type=tf.int32)

    def sample_uniform(self, logits: Array, random: np.random.Generator) -> Actions:
        if self.masked:
            return self.sample(np.where(logits > MASKED / 2, 0, MASKED), random)
        return random.integers(self.size, size=len(logits))

    def uniform_log_prob(self, logits: Array, actions: Actions) -> NDArray[np.float64]:
        allowed = (logits > MASKED / 2).sum(axis=1) if self.masked else np.full(len(logits), self.size)
        return np.asarray(-np.log(allowed))

    def log_prob_np(self, logits: Array, actions: Actions) -> Array:
        shifted = logits - logits.max(axis=1, keepdims=True)  # as SciPy's log_softmax does, in a third of its time
        chosen: Array = shifted[np.arange(len(actions)), actions] - np.log(np.exp(shifted).sum(axis=1))
        return chosen

    def log_prob(self, logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns log pi(action), [N], for logits [N, A] and int actions [N]; finite for any finite logits."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits)

    def entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, [N]; exact and with finite gradients where a probability is 0."""
        log_probs = tf.nn.log_softmax(logits)
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1)

    def kl_from_uniform(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns KL(uniform || pi) of the allowed actions in nats, [N]; where pi is 0, its gradient, pi - 1/A, is not."""
        log_probs = tf.nn.log_softmax(logits)
        if not self.masked:
            return -tf.reduce_mean(log_probs, axis=-1) - math.log(self.size)
        allowed = tf.cast(logits > MASKED / 2, tf.float32)
        count = tf.reduce_sum(allowed, axis=-1)
        return -tf.reduce_sum(allowed * log_probs, axis=-1) / count - tf.math.log(count)

    def is_valid(self, actions: Actions) -> bool:
        return bool(((actions >= 0) & (actions < self.size) & (actions % 1 == 0)).all())


def explore(
    distribution: Distribution,
    logits: Array,
    epsilons: Array,
    random: np.random.Generator,
    greedy: bool | NDArray[np.bool_] = False,
) -> tuple[Actions, Array]:
    """Chooses actions from the policy, or uniformly with probability epsilon.

    Args:
        distribution: the family of the policy.
        logits: its parameters, [B, P].
        epsilons: probability of a uniform draw in each game, [B].
        random: generator of all draws.
        greedy: whether the policy takes its likeliest action instead of sampling, one bool or bools [B].

    Returns:
        Actions [B, ...], and the logarithms of their probabilities (1 - epsilon) pi(a) + epsilon u(a), [B], with u the
        uniform policy. Greedy actions get the probability that sampling would give them.
    """
    actions = distribution.sample(logits, random)
    likeliest = np.broadcast_to(greedy, len(logits))
    if likeliest.any():
        actions[likeliest] = distribution.mode(logits[likeliest])
    if epsilons.any():
        uniform = random.random(len(logits)) < epsilons
        actions[uniform] = distribution.sample_uniform(logits[uniform], random)
    chosen = distribution.log_prob_np(logits, actions)
    if epsilons.any():
        # In logarithms: the probability of many choices, or the density of many numbers, does not fit in a float.
        with np.errstate(divide="ignore"):  # of epsilons 0 and 1
            shares = np.log1p(-epsilons.astype(np.float64)), np.log(epsilons.astype(np.float64))
        chosen = np.logaddexp(shares[0] + chosen, shares[1] + distribution.uniform_log_prob(logits, actions))
    return actions, chosen.astype(np.float32)
