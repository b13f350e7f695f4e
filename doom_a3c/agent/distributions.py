"""Distributions over actions: what the policy head's numbers mean, in play and in learning.

Playing is NumPy on the host, learning is TensorFlow inside a graph. A new kind of action space is a class here and a line
in `DISTRIBUTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Discrete, Space
from numpy.typing import NDArray
from scipy.special import log_softmax

from doom_a3c.settings.errors import UserError

Array = NDArray[np.float32]
Actions = NDArray[Any]  # [B, ...], of the distribution's shape and type


class Distribution(Protocol):
    """A family of distributions; `logits` stands for its parameters, as the policy head gives them. Compares by value."""

    @property
    def size(self) -> int:
        """How many numbers the policy head gives for an observation, P."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action."""

    @property
    def action_type(self) -> type[np.generic]:
        """The number type of actions."""

    @property
    def volume(self) -> float:
        """The number of actions, or the volume of a space of them: one over the density of a uniform draw."""

    def sample(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws actions, [B, P] -> [B, ...]."""

    def mode(self, logits: Array) -> Actions:
        """Returns the likeliest actions, [B, P] -> [B, ...]."""

    def uniform(self, count: int, random: np.random.Generator) -> Actions:
        """Draws so many actions, each as likely as any other."""

    def played_log_prob(self, logits: Array, actions: Actions) -> Array:
        """Returns log pi(action) on the host, [B]."""

    def log_prob(self, logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns log pi(action), [N], for logits [N, P] and actions [N, ...]."""

    def entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, [N]."""

    def from_uniform(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the KL divergence from the uniform distribution to this one in nats, [N]."""


@dataclass(frozen=True)
class Categorical:
    """One of A actions, with the probabilities softmax(logits)."""

    size: int  # A
    action_shape: tuple[int, ...] = ()
    action_type: type[np.generic] = np.int32

    @property
    def volume(self) -> float:
        """The number of actions."""
        return self.size

    def sample(self, logits: Array, random: np.random.Generator) -> Actions:
        """Draws action indices, [B, A] -> [B], by the Gumbel-max trick: no probability is compared."""
        actions: Actions = np.argmax(logits + random.gumbel(size=logits.shape), axis=1).astype(np.int32)
        return actions

    def mode(self, logits: Array) -> Actions:
        """Returns the first of the likeliest actions, [B, A] -> [B]."""
        actions: Actions = logits.argmax(axis=1).astype(np.int32)
        return actions

    def uniform(self, count: int, random: np.random.Generator) -> Actions:
        """Draws so many action indices."""
        return random.integers(self.size, size=count)

    def played_log_prob(self, logits: Array, actions: Actions) -> Array:
        """Returns log pi(action) on the host, [B]."""
        chosen: Array = np.take_along_axis(log_softmax(logits, axis=1), actions[:, None], axis=1)[:, 0]
        return chosen

    def log_prob(self, logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns log pi(action), [N], for logits [N, A] and int actions [N]; finite for any finite logits."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits)

    def entropy(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, [N]; exact and with finite gradients where a probability is 0."""
        log_probs = tf.nn.log_softmax(logits)
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1)

    def from_uniform(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns KL(uniform || pi) in nats, [N]. Its gradient is pi - 1/A, which does not vanish where pi is 0."""
        return -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1) - math.log(self.size)


DISTRIBUTIONS: dict[type[Space[Any]], Callable[[Any], Distribution]] = {Discrete: lambda space: Categorical(int(space.n))}


def distribution_over(space: Space[Any]) -> Distribution:
    """Returns the distribution over the actions of a space.

    Raises:
        UserError: if there is none for that kind of space.
    """
    for kind, make in DISTRIBUTIONS.items():
        if isinstance(space, kind):
            return make(space)
    known = ", ".join(kind.__name__ for kind in DISTRIBUTIONS)
    raise UserError(f"its actions are {space}; the agent takes {known} ones")


def explore(
    distribution: Distribution,
    logits: Array,
    epsilons: Array,
    random: np.random.Generator,
    greedy: bool | NDArray[np.bool_] = False,
) -> tuple[Actions, Array]:
    """Chooses actions: as the policy says, or with probability epsilon uniformly (epsilon-greedy on top of the policy).

    Args:
        distribution: what the logits mean.
        logits: [B, P].
        epsilons: probability of a uniform draw, per game, [B].
        random: the stream to draw from.
        greedy: where the policy takes its likeliest action instead of a draw, bool or bools [B].

    Returns:
        Actions [B, ...], and the logarithms [B] of the probabilities (1 - epsilon) pi(a) + epsilon / volume that they were
        drawn with, where they are not greedy.
    """
    actions = distribution.sample(logits, random)
    rows = np.broadcast_to(greedy, len(logits))
    if rows.any():
        actions[rows] = distribution.mode(logits[rows])
    if epsilons.any():
        anyhow = random.random(len(logits)) < epsilons
        actions[anyhow] = distribution.uniform(int(anyhow.sum()), random)
    chosen = distribution.played_log_prob(logits, actions)
    if epsilons.any():
        chosen = np.log((1.0 - epsilons) * np.exp(chosen) + epsilons / distribution.volume)
    return actions, chosen.astype(np.float32)
