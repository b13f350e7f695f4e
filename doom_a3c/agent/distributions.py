"""Distributions over actions, parametrised by the policy head, for playing and learning.

Playing uses NumPy, learning TensorFlow in a graph. A new kind of action space is a class here, listed in `DISTRIBUTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from doom_a3c.settings.errors import UserError

Array = NDArray[np.float32]
Actions = NDArray[Any]  # [B, ...], in the shape and type of the distribution


class Distribution(Protocol):
    """A family of distributions. `logits` are its parameters, the outputs of the policy head. Compares by value."""

    @property
    def size(self) -> int:
        """P, the number of policy outputs per observation."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action."""

    @property
    def action_type(self) -> type[np.generic]:
        """The number type of actions."""

    @property
    def volume(self) -> float:
        """The number of actions, or the volume of their space: the inverse density of a uniform draw."""

    def sample(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws actions, [B, P] -> [B, ...]."""

    def mode(self, logits: Array) -> Actions:
        """Returns the likeliest actions, [B, P] -> [B, ...]."""

    def sample_uniform(self, count: int, random: np.random.Generator) -> Actions:
        """Draws `count` actions uniformly, [count, ...]."""

    def log_prob_np(self, logits: Array, actions: Actions) -> Array:
        """Returns log pi(action) on the host, [B]."""

    def log_prob(self, logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns log pi(action), [N], for logits [N, P] and actions [N, ...]."""

    def entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, [N]."""

    def kl_from_uniform(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns KL(uniform || pi) in nats, [N], for logits [N, P]."""


@dataclass(frozen=True)
class Categorical:
    """One of A actions, with the probabilities softmax(logits)."""

    size: int  # A
    action_shape: tuple[int, ...] = ()
    action_type: type[np.generic] = np.int32

    @property
    def volume(self) -> float:
        return self.size

    def sample(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws action indices, [B, A] -> [B], by the Gumbel-max trick."""
        actions: Actions = np.argmax(logits + random.gumbel(size=logits.shape), axis=1).astype(np.int32)
        return actions

    def mode(self, logits: Array) -> Actions:
        """Returns the first of the likeliest actions, [B, A] -> [B]."""
        actions: Actions = logits.argmax(axis=1).astype(np.int32)
        return actions

    def sample_uniform(self, count: int, random: np.random.Generator) -> Actions:
        return random.integers(self.size, size=count)

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
        """Returns KL(uniform || pi) in nats, [N]. Its gradient is pi - 1/A, which does not vanish where pi is 0."""
        return -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1) - math.log(self.size)


DISTRIBUTIONS: dict[type[Space[Any]], Callable[[Any], Distribution]] = {Discrete: lambda space: Categorical(int(space.n))}


def find_distribution(space: Space[Any]) -> Distribution:
    """Returns the distribution over the actions of a space.

    Raises:
        UserError: if no distribution supports this kind of space.
    """
    for kind, make in DISTRIBUTIONS.items():
        if isinstance(space, kind):
            return make(space)
    known = ", ".join(kind.__name__ for kind in DISTRIBUTIONS)
    cure = "; gymnasium.wrappers.DiscretizeAction makes some of them" if isinstance(space, Box) else ""
    raise UserError(f"its actions are {space}; the agent takes {known} ones{cure}")


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
        Actions [B, ...], and the logarithms of their probabilities (1 - epsilon) pi(a) + epsilon / volume, [B]; greedy
        actions have them as if they were sampled.
    """
    actions = distribution.sample(logits, random)
    rows = np.broadcast_to(greedy, len(logits))
    if rows.any():
        actions[rows] = distribution.mode(logits[rows])
    if epsilons.any():
        anyhow = random.random(len(logits)) < epsilons
        actions[anyhow] = distribution.sample_uniform(int(anyhow.sum()), random)
    chosen = distribution.log_prob_np(logits, actions)
    if epsilons.any():
        chosen = np.log((1.0 - epsilons) * np.exp(chosen) + epsilons / distribution.volume)
    return actions, chosen.astype(np.float32)
