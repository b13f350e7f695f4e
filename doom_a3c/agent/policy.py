"""Policies: from observations to action distributions and values."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array, Distribution
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.networks import ACNetwork


class Decision(NamedTuple):
    """A network's outputs for the observations of B games, on the host."""

    logits: Array  # [B, P], parameters of the action distribution
    values: Array  # [B]
    core_state: CoreState  # after the decision, arrays [B, core_size]
    version: int  # of the weights


class Decider(Protocol):
    """Decides for a player: a `Policy`, or a proxy of one elsewhere."""

    distribution: Distribution

    def initial_state(self, batch_size: int, /) -> CoreState:
        """Returns the recurrent state at the start of an episode."""

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> Decision:
        """Returns the decision about observations [B, ...] with resets [B]."""


class Policy:
    """Makes decisions with a network: one compiled call, and one copy to the host, per step of B games.

    Uses the network's current weights at each call. Holds no state of any game.
    """

    def __init__(self, network: ACNetwork) -> None:
        self.network, self.distribution = network, network.distribution
        self.initial_state = network.initial_state
        sizes = [network.distribution.size, 1, *(state.shape[1] for state in network.initial_state(1))]
        self._bounds = np.cumsum(sizes)[:-1]
        self._compiled = network.compile("decision", self._step)

    def _step(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tf.Tensor:
        output, core_state = self.network.step(observations, resets, core_state)
        return tf.concat([output.logits, output.values[:, None], *core_state], axis=1)

    def get_graph(self, observations: Observations) -> tf.Graph:
        """Returns the TensorFlow graph of a decision about `observations` [B, ...]."""
        batch = len(tf.nest.flatten(observations)[0])
        graph: tf.Graph = self._compiled.get_concrete(observations, tf.ones(batch), self.initial_state(batch)).graph
        return graph

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> Decision:
        outputs = self._compiled(observations, resets, core_state).numpy()
        logits, values, *state = np.split(outputs, self._bounds, axis=1)
        return Decision(logits, values[:, 0], tuple(state), self.network.version)
