"""What a rollout is learned towards: returns and advantages, apart from the gradients that are computed from them.

An estimator works in two halves. `prepare` is called once for a rollout, before the first update from it; `targets` once
for every gradient of it, inside the graph, with what the network being trained says now.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array
from doom_a3c.agent.networks import ACNetwork, Output
from doom_a3c.agent.rollouts import Rollout
from doom_a3c.algorithm.losses import importance_ratios
from doom_a3c.algorithm.returns import generalized_advantages, n_step_returns
from doom_a3c.algorithm.vtrace import WeightedTargets, vtrace
from doom_a3c.settings.config import Config, updates_per_rollout, uses_vtrace

Basis = tuple[Any, ...]  # arrays [T, B]


class Prepared(NamedTuple):
    """What is known of a rollout before the first update from it."""

    log_probs: Array  # [T, B], of the actions, by the policy that played
    basis: Basis  # of the targets


def assessed(
    network: ACNetwork, observations: Any, resets: tf.Tensor, core_state: CoreState, actions: tf.Tensor
) -> tuple[Output, Output, tf.Tensor]:
    """Returns what a network says about a rollout, the part of it that actions followed, and log pi of these, [T * B].

    Arguments are those of a `Rollout`, with the last observation or without it.
    """
    output, _ = network.unroll(observations, resets, core_state)
    flat_actions = tf.reshape(actions, (-1, *actions.shape[2:]))
    steps = tf.shape(flat_actions)[0]
    whole = resets.shape[0] == actions.shape[0]
    taken = output if whole else Output(output.logits[:steps], output.values[:steps])
    return output, taken, network.distribution.log_prob(taken.logits, flat_actions)


class Estimator(Protocol):
    """A way to estimate returns and advantages."""

    recomputes: bool
    """Whether every gradient has targets of its own, from the network's values at that moment, including the value of the
    observation after the last step."""

    def prepare(self, rollout: Rollout) -> Prepared:
        """Returns what targets are made from."""

    def targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> WeightedTargets:
        """Returns the targets, [T, B] each; no gradient flows through them.

        Args:
            basis: that which `prepare` returned.
            log_ratios: log(pi / mu) of the actions taken, pi the network being trained, log mu that of `prepare`, [T, B].
            values: its values, [T, B], or [T+1, B] where the last observation is needed.
        """


class PlayedTargets:
    """Targets from the values computed while playing: GAE, or n-step returns. They stay the same for all updates."""

    recomputes = False

    def __init__(self, config: Config) -> None:
        self._config = config
        self._on_policy = updates_per_rollout(config) == 1

    def prepare(self, rollout: Rollout) -> Prepared:
        """Returns the targets themselves."""
        config = self._config
        played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
        if config.advantage == "n_step":
            return Prepared(rollout.log_probs, n_step_returns(*played, config.n_step, config.n_step_tail))
        return Prepared(rollout.log_probs, generalized_advantages(*played, config.gae_lambda, config.discount))

    def targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> WeightedTargets:
        """Returns the prepared targets, weighted by PPO's ratio where several updates are made from them."""
        returns, advantages = basis
        return WeightedTargets(returns, advantages, 1.0 if self._on_policy else importance_ratios(log_ratios))


class VTraceTargets:
    """Targets by V-trace, from what the network being trained says about a rollout that another policy played."""

    recomputes = True

    def __init__(self, config: Config) -> None:
        self._config = config

    def prepare(self, rollout: Rollout) -> Prepared:
        """Returns what was played."""
        return Prepared(rollout.log_probs, (rollout.rewards, rollout.discounts, rollout.ends, rollout.next_values))

    def targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> WeightedTargets:
        """Returns the targets of V-trace."""
        rewards, discounts, ends, next_values = basis
        return vtrace(
            log_ratios,
            rewards,
            discounts,
            tf.cast(ends, tf.float32),
            values[:-1],
            tf.where(ends, next_values, values[1:]),  # an episode's own final observation is not in the rollout
            trace_decay=self._config.gae_lambda,
            rho_clip=self._config.rho_clip,
            c_clip=self._config.c_clip,
        )


def estimator_of(config: Config) -> Estimator:
    """Returns the estimator for the targets that the settings name."""
    return VTraceTargets(config) if uses_vtrace(config) else PlayedTargets(config)
