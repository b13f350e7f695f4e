"""Learning: the shared `GlobalModel`, and a `Learner` per worker that turns rollouts into gradients for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.config import Config
from doom_a3c.losses import actor_critic_loss
from doom_a3c.networks import ACNetwork, CoreState, variable_name
from doom_a3c.optimizers import OPTIMIZERS
from doom_a3c.returns import generalized_advantages, normalized
from doom_a3c.rollouts import Rollout

Snapshot = dict[str, NDArray[Any]]


class Gradients(NamedTuple):
    """Clipped gradients of a rollout's loss, in the order of the network's parameters, and what they tell."""

    gradients: Sequence[tf.Tensor]
    metrics: Mapping[str, float]  # by TensorBoard tag; the norm is the one before clipping
    finite: bool  # whether loss and gradients are all finite; if not they must not be applied
    version: int  # of the global weights they were computed with


class GlobalModel:
    """The network `global` and its optimizer, shared by all workers. Owns the lock that orders their access.

    Applies are serialised: one worker's update (weights and optimizer slots) is complete before the next begins, and a
    pull never sees half of one. Hogwild updates without a lock would save a wait of some milliseconds a rollout and cost
    torn weights, lost slot updates and runs that cannot be repeated even with one worker.
    """

    def __init__(self, network: ACNetwork, optimizer: str) -> None:
        self.network = network
        self._optimizer = OPTIMIZERS[optimizer](network.parameters)
        self._variables = {variable_name(v): v for v in (*network.parameters, *self._optimizer.slots)}
        self._lock = threading.Lock()
        self._compiled_apply = tf.function(self._optimizer.apply, autograph=False)
        self.version = 0  # applied updates

    def apply(self, gradients: Sequence[tf.Tensor], learning_rate: float) -> int:
        """Applies one update; returns the number of updates before it."""
        with self._lock:
            self._compiled_apply(list(gradients), tf.constant(learning_rate, tf.float32))
            self.version += 1
            return self.version - 1

    def pull(self, network: ACNetwork) -> int:
        """Copies the global weights into `network`; returns their version."""
        with self._lock:
            for local, shared in zip(network.parameters, self.network.parameters, strict=True):
                local.assign(shared)
            return self.version

    def snapshot(self) -> Snapshot:
        """Returns a consistent copy of weights and optimizer slots by name."""
        with self._lock:
            return {name: variable.numpy().copy() for name, variable in self._variables.items()}

    def restore(self, snapshot: Snapshot, version: int) -> None:
        """Takes over a snapshot.

        Raises:
            ValueError: if a name or a shape is not this model's.
        """
        if snapshot.keys() != self._variables.keys():
            raise ValueError(f"variables differ: {sorted(snapshot.keys() ^ self._variables.keys())}")
        for name, value in snapshot.items():
            if tuple(self._variables[name].shape) != value.shape:
                raise ValueError(f"{name} is {value.shape}, not {tuple(self._variables[name].shape)}")
        with self._lock:
            for name, value in snapshot.items():
                self._variables[name].assign(value)
            self.version = version


class Learner:
    """Computes gradients of one worker's rollouts on its local copy of the network. Owns the compiled graph alone."""

    def __init__(self, network: ACNetwork, config: Config) -> None:
        self._network, self._config = network, config
        self._compiled = tf.function(self._gradients, autograph=False)

    def gradients(self, rollout: Rollout, version: int) -> Gradients:
        """Returns the gradients of the loss of `rollout`, which the local weights must have played."""
        config = self._config
        targets = generalized_advantages(
            rollout.rewards,
            rollout.discounts,
            rollout.ends,
            rollout.values,
            rollout.next_values,
            config.gae_lambda,
            config.discount,
        )
        advantages = normalized(targets.advantages) if config.normalize_advantages else targets.advantages
        length = len(rollout.actions)
        gradients, metrics = self._compiled(
            tf.nest.map_structure(lambda array: tf.convert_to_tensor(array[:length]), rollout.observations),
            tf.convert_to_tensor(rollout.resets[:length]),
            rollout.core_state,
            tf.convert_to_tensor(rollout.actions),
            tf.convert_to_tensor(advantages),
            tf.convert_to_tensor(targets.returns),
        )
        total, *numbers = metrics.numpy().tolist()
        tags = ("Losses/Policy Loss", "Losses/Value Loss", "Losses/Entropy", "Losses/Grad Norm", "Losses/Var Norm")
        named = dict(zip(tags, numbers, strict=True))
        finite = bool(np.isfinite([total, named["Losses/Grad Norm"]]).all())
        return Gradients(gradients, named, finite, version)

    def _gradients(
        self,
        observations: Any,
        resets: tf.Tensor,
        core_state: CoreState,
        actions: tf.Tensor,
        advantages: tf.Tensor,
        returns: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        parameters = self._network.parameters
        with tf.GradientTape() as tape:
            output, _ = self._network.unroll(observations, resets, core_state)
            loss = actor_critic_loss(
                output.logits,
                output.values,
                tf.reshape(actions, [-1]),
                tf.reshape(advantages, [-1]),
                tf.reshape(returns, [-1]),
                entropy_cost=self._config.entropy_cost,
                value_cost=self._config.value_cost,
            )
        gradients = tape.gradient(loss.total, parameters)
        clipped, norm = tf.clip_by_global_norm(gradients, self._config.max_grad_norm)
        numbers = [loss.total, loss.policy, loss.value, loss.entropy, norm, tf.linalg.global_norm(parameters)]
        return clipped, tf.stack(numbers)
