"""What a rollout is learned towards: returns and advantages, apart from the gradients that are computed from them.

An estimator works in two halves. `prepare` is called once for a rollout, on the host; `targets` once for every gradient of
it, inside the graph, with what the network being trained says now.
"""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from doom_a3c.agent.rollouts import Rollout
from doom_a3c.algorithm.returns import Targets, generalized_advantages, n_step_returns
from doom_a3c.algorithm.vtrace import vtrace
from doom_a3c.settings.config import Config, corrects

Basis = tuple[Any, ...]  # arrays [T, B]


class Estimator(Protocol):
    """A way to estimate returns and advantages."""

    needs_last: bool  # whether the network is to run over the observation after the last step, too
    corrects: bool  # whether the advantages hold the ratios of the policies already

    def prepare(self, rollout: Rollout) -> Basis:
        """Returns what targets are made from."""

    def targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> Targets:
        """Returns the targets, [T, B] each; no gradient flows through them.

        Args:
            basis: what `prepare` returned.
            log_ratios: log(pi / mu) of the actions taken, pi the network being trained and mu what played, [T, B].
            values: its values, [T, B], or [T+1, B] where the last observation is needed.
        """


class PlayedTargets:
    """Targets from the values that were computed while playing: GAE, or n-step returns. They stay what they are."""

    needs_last = corrects = False

    def __init__(self, config: Config) -> None:
        self._config = config

    def prepare(self, rollout: Rollout) -> Basis:
        """Returns the targets themselves."""
        config = self._config
        played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
        if config.advantage == "n_step":
            return n_step_returns(*played, config.n_step, config.n_step_tail)
        return generalized_advantages(*played, config.gae_lambda, config.discount)

    def targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> Targets:
        """Returns them."""
        return Targets(*basis)


class VTraceTargets:
    """Targets by V-trace, from what the network being trained says about a rollout that another policy played."""

    needs_last = corrects = True

    def __init__(self, config: Config) -> None:
        self._config = config

    def prepare(self, rollout: Rollout) -> Basis:
        """Returns what was played."""
        return (rollout.rewards, rollout.discounts, rollout.ends, rollout.next_values)

    def targets(self, basis: Basis, log_ratios: tf.Tensor, values: tf.Tensor) -> Targets:
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
    """Returns the estimator that the settings want."""
    return VTraceTargets(config) if corrects(config) else PlayedTargets(config)
