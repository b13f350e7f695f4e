"""Learning: a `Learner` per learning thread turns rollouts into gradients for the global model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from doom_a3c.config import Config, corrects
from doom_a3c.losses import Loss, actor_critic_loss, log_prob, normalized
from doom_a3c.networks import ACNetwork, CoreState, Output
from doom_a3c.returns import generalized_advantages, n_step_returns
from doom_a3c.rollouts import Rollout
from doom_a3c.vtrace import vtrace


class Gradients(NamedTuple):
    """Clipped gradients of a rollout's loss, in the order of the network's parameters, and what they tell."""

    gradients: Sequence[tf.Tensor]
    metrics: Mapping[str, float]  # by TensorBoard tag; the norm is the one before clipping
    finite: bool  # whether loss and gradients are all finite; if not they must not be applied
    version: int  # of the global weights they were computed with


class Learner:
    """Computes gradients of rollouts on one local copy of the network."""

    def __init__(self, network: ACNetwork, config: Config) -> None:
        self._network, self._config = network, config
        self._on_policy = network.compiled(("on_policy", config), self._on_policy_gradients)
        self._off_policy = network.compiled(("off_policy", config), self._off_policy_gradients)
        self._combined = network.compiled(("combined", config), self._combine)

    def gradients(self, rollouts: Sequence[Rollout], version: int, frames: int) -> Gradients:
        """Returns the clipped gradients of the mean loss over all decisions of `rollouts`, one after the other.

        `frames` says where the schedules are. Rollouts that the local weights may not have played are corrected by
        V-trace, as the settings say.
        """
        config = self._config
        compute = self._corrected if corrects(config) else self._uncorrected
        entropy_cost = tf.constant(config.entropy_cost.at(frames, config.frames), tf.float32)
        gradients, losses = zip(*(compute(rollout, entropy_cost) for rollout in rollouts), strict=True)
        sizes = np.array([rollout.actions.size for rollout in rollouts], np.float32)
        combined, metrics = self._combined(gradients, losses, tf.constant(sizes / sizes.sum()))
        total, *numbers = metrics.numpy().tolist()
        tags = ("Losses/Policy Loss", "Losses/Value Loss", "Losses/Entropy", "Losses/Grad Norm", "Losses/Var Norm")
        named = dict(zip(tags, numbers, strict=True))
        finite = bool(np.isfinite([total, named["Losses/Grad Norm"]]).all())
        return Gradients(combined, named, finite, version)

    def _uncorrected(self, rollout: Rollout, entropy_cost: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Targets from the values that were computed while playing; the unroll stops at the last decision."""
        config = self._config
        played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
        if config.advantage == "n_step":
            targets = n_step_returns(*played, config.n_step, config.n_step_tail)
        else:
            targets = generalized_advantages(*played, config.gae_lambda, config.discount)
        length = len(rollout.actions)
        observations = tf.nest.map_structure(lambda array: array[:length], rollout.observations)
        result: tuple[list[tf.Tensor], tf.Tensor] = self._on_policy(
            observations,
            rollout.resets[:length],
            rollout.core_state,
            rollout.actions,
            targets.advantages,
            targets.returns,
            entropy_cost,
        )
        return result

    def _corrected(self, rollout: Rollout, entropy_cost: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Targets by V-trace, from values and probabilities of the local weights; the last observation is unrolled too."""
        played = (rollout.actions, rollout.log_probs, rollout.rewards, rollout.discounts, rollout.ends, rollout.next_values)
        result: tuple[list[tf.Tensor], tf.Tensor] = self._off_policy(
            rollout.observations, rollout.resets, rollout.core_state, *played, entropy_cost
        )
        return result

    def _on_policy_gradients(
        self,
        observations: Any,
        resets: tf.Tensor,
        core_state: CoreState,
        actions: tf.Tensor,
        advantages: tf.Tensor,
        returns: tf.Tensor,
        entropy_cost: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        with tf.GradientTape() as tape:
            output, _ = self._network.unroll(observations, resets, core_state)
            loss = self._loss(output, actions, advantages, returns, entropy_cost)
        return tape.gradient(loss.total, self._network.parameters), tf.stack(loss)

    def _off_policy_gradients(
        self,
        observations: Any,
        resets: tf.Tensor,
        core_state: CoreState,
        actions: tf.Tensor,
        log_probs: tf.Tensor,
        rewards: tf.Tensor,
        discounts: tf.Tensor,
        ends: tf.Tensor,
        next_values: tf.Tensor,
        entropy_cost: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        config, length = self._config, actions.shape[0]
        with tf.GradientTape() as tape:
            output, _ = self._network.unroll(observations, resets, core_state)
            values = tf.reshape(output.values, (length + 1, -1))
            decisions = Output(output.logits[: tf.size(actions)], output.values[: tf.size(actions)])
            target_log_probs = tf.reshape(log_prob(decisions.logits, tf.reshape(actions, [-1])), (length, -1))
            targets = vtrace(
                target_log_probs - log_probs,
                rewards,
                discounts,
                tf.cast(ends, tf.float32),
                values[:-1],
                tf.where(ends, next_values, values[1:]),  # an episode's own final observation is not in the rollout
                trace_decay=config.gae_lambda,
                rho_clip=config.rho_clip,
                c_clip=config.c_clip,
            )
            loss = self._loss(decisions, actions, targets.advantages, targets.returns, entropy_cost)
        return tape.gradient(loss.total, self._network.parameters), tf.stack(loss)

    def _loss(
        self, output: Output, actions: tf.Tensor, advantages: tf.Tensor, returns: tf.Tensor, entropy_cost: tf.Tensor
    ) -> Loss:
        return actor_critic_loss(
            output.logits,
            output.values,
            tf.reshape(actions, [-1]),
            tf.reshape(normalized(advantages) if self._config.normalize_advantages else advantages, [-1]),
            tf.reshape(returns, [-1]),
            entropy_cost=entropy_cost,
            value_cost=self._config.value_cost,
        )

    def _combine(
        self, gradients: Sequence[Sequence[tf.Tensor]], losses: Sequence[tf.Tensor], weights: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Averages gradients and losses with weights that add up to 1, and clips the average."""
        shares = tf.unstack(weights, num=len(gradients))

        def average(parts: Sequence[tf.Tensor]) -> tf.Tensor:
            return parts[0] if len(parts) == 1 else tf.add_n([p * share for p, share in zip(parts, shares, strict=True)])

        averages = [average(parts) for parts in zip(*gradients, strict=True)]
        clipped, norm = tf.clip_by_global_norm(averages, self._config.max_grad_norm)
        loss = average(losses)
        return clipped, tf.concat([loss, tf.stack([norm, tf.linalg.global_norm(self._network.parameters)])], axis=0)
