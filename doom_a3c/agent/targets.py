"""Learning targets of a rollout: returns and advantages.

An estimator works in two parts. `prepare` runs once per rollout, before the first update from it. `compute_targets` runs
for every gradient, inside the graph, with the outputs of the network being trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import tensorflow as tf

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.networks import ACNetwork, NetworkOutput
from doom_a3c.agent.player import Bools
from doom_a3c.agent.rollouts import Rollout
from doom_a3c.algorithm.losses import importance_ratios
from doom_a3c.algorithm.returns import Targets, generalized_advantages, n_step_returns
from doom_a3c.algorithm.vtrace import WeightedTargets, vtrace

if TYPE_CHECKING:
    from doom_a3c.settings.config import Config


class TraceInputs(NamedTuple):
    """The part of a rollout that V-trace reads, [T, B] each."""

    rewards: Array
    discounts: Array
    ends: Bools
    next_values: Array


Basis = Targets | TraceInputs


def evaluate_actions(
    network: ACNetwork, observations: Observations, resets: tf.Tensor, core_state: CoreState, actions: tf.Tensor
) -> tuple[NetworkOutput, NetworkOutput, tf.Tensor]:
    """Evaluates a network on a rollout, with its last observation (T + 1 rows) or without it (T rows).

    Returns:
        The outputs of all rows, the outputs of the first T rows, and log pi of their actions, [T * B].
    """
    output, _ = network.unroll(observations, resets, core_state)
    flat_actions = tf.reshape(actions, (-1, *actions.shape[2:]))
    steps = tf.shape(flat_actions)[0]
    whole = resets.shape[0] == actions.shape[0]
    taken = output if whole else NetworkOutput(output.logits[:steps], output.values[:steps])
    return output, taken, network.distribution.log_prob(taken.logits, flat_actions)


class Estimator(Protocol):
    """A way to estimate returns and advantages."""

    needs_last_value: bool
    """Whether the targets need the value after the last step; such rollouts are never cut into sequences."""

    clip_range: float | None
    """PPO's clip range of the ratio pi / mu; None if each rollout makes a single update."""

    def prepare(self, rollout: Rollout) -> Basis:
        """Returns the basis of the targets."""

    def compute_targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> WeightedTargets:
        """Returns the targets, [T, B] each; no gradient flows through them.

        Args:
            basis: from `prepare`.
            log_ratios: log(pi / mu) of the actions taken, pi the learning and mu the acting policy, [T, B].
            values: of the network being trained, [T, B], or [T+1, B] if the last one is needed.
        """


class PlayedTargets:
    """Targets from the values of the acting network: GAE or n-step returns. They are the same for all updates."""

    needs_last_value = False

    def __init__(self, config: Config, clip_range: float | None) -> None:
        self._config, self.clip_range = config, clip_range

    def prepare(self, rollout: Rollout) -> Targets:
        """Computes the targets themselves."""
        config = self._config
        played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
        if config.advantage == "n_step":
            return n_step_returns(*played, config.n_step, config.n_step_tail)
        return generalized_advantages(*played, config.gae_lambda, config.discount)

    def compute_targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> WeightedTargets:
        """Returns the prepared targets, weighted by PPO's ratio if a rollout makes several updates."""
        assert isinstance(basis, Targets)
        weights = 1.0 if self.clip_range is None else importance_ratios(log_ratios)
        return WeightedTargets(*basis, weights, errors=basis.advantages)


class VTraceTargets:
    """V-trace targets: off-policy corrections with the values and ratios of the network being trained."""

    needs_last_value = True

    def __init__(self, config: Config, clip_range: float | None) -> None:
        self._config, self.clip_range = config, clip_range

    def prepare(self, rollout: Rollout) -> TraceInputs:
        return TraceInputs(rollout.rewards, rollout.discounts, rollout.ends, rollout.next_values)

    def compute_targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> WeightedTargets:
        """Computes the V-trace targets, weighted by the clipped ratio."""
        assert isinstance(basis, TraceInputs)
        return vtrace(
            log_ratios,
            basis.rewards,
            basis.discounts,
            tf.cast(basis.ends, tf.float32),
            values[:-1],
            tf.where(basis.ends, basis.next_values, values[1:]),  # an episode's final observation is not in the rollout
            trace_decay=self._config.gae_lambda,
            rho_clip=self._config.rho_clip,
            c_clip=self._config.c_clip,
        )


def make_estimator(config: Config) -> Estimator:
    """Makes the estimator chosen by the settings."""
    clip_range = None if config.updates_per_rollout == 1 else config.clip_range
    return VTraceTargets(config, clip_range) if config.uses_vtrace else PlayedTargets(config, clip_range)
