"""Deciding: from observations to the parameters of a distribution over actions, and values."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array, Distribution
from doom_a3c.agent.networks import ACNetwork, Observations


class Decision(NamedTuple):
    """What a network says about the observations of B games."""

    logits: Array  # [B, P], parameters of the distribution over actions
    values: Array  # [B]
    core_state: CoreState  # after the decision, arrays [B, size]
    version: int  # of the weights


class Decider(Protocol):
    """What a player needs to decide: a `Policy`, or something that asks one elsewhere."""

    distribution: Distribution

    def initial_state(self, batch_size: int, /) -> CoreState:
        """Returns the recurrent state at the start of an episode."""

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> Decision:
        """Returns the decision about observations [B, ...] with resets [B]."""


class Policy:
    """Turns a network into decisions: one compiled call per step of B games, and one copy of its results to the host.

    Works on the network it is given, whose weights may be changed between calls. Holds no state of any game.
    """

    def __init__(self, network: ACNetwork) -> None:
        self.network, self.distribution = network, network.distribution
        self.initial_state = network.initial_state
        sizes = [network.distribution.size, 1, *(state.shape[1] for state in network.initial_state(1))]
        self._bounds = np.cumsum(sizes)[:-1]
        self._compiled = network.compiled("decision", self._step)

    def _step(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tf.Tensor:
        output, core_state = self.network.step(observations, resets, core_state)
        return tf.concat([output.logits, output.values[:, None], *core_state], axis=1)

    def graph(self, observations: Observations) -> Any:
        """Returns the graph of a decision about `observations`."""
        batch = len(tf.nest.flatten(observations)[0])
        return self._compiled.concrete(observations, tf.ones(batch), self.initial_state(batch)).graph

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> Decision:
        """Returns the decision about observations [B, ...] with resets [B]."""
        outputs = self._compiled(observations, resets, core_state).numpy()
        logits, values, *state = np.split(outputs, self._bounds, axis=1)
        return Decision(logits, values[:, 0], tuple(state), self.network.version)
