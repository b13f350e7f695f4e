"""What the updates from a rollout did, by stable-baselines3's definitions and under its names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Array


class LearnerMetrics(NamedTuple):
    """Losses and norms of an update."""

    policy_loss: float
    value_loss: float
    entropy: float  # nats
    uniform_kl: float  # KL(u || pi) in nats, u the uniform policy
    grad_norm: float  # before clipping
    var_norm: float  # of all weights


class PolicyChange(NamedTuple):
    """How far the learning policy pi has moved from the acting policy mu, before an update."""

    kl: float  # KL(mu || pi) in nats
    surrogate_loss: float  # PPO's clipped objective, as a loss; the policy loss if there is nothing to clip
    clip_fraction: float  # share of steps with a ratio pi / mu beyond the clip range


class TrainMetrics(NamedTuple):
    """The metrics that stable-baselines3's PPO and A2C log as `train/...`."""

    policy_gradient_loss: float  # A2C calls it policy_loss
    value_loss: float  # mean squared error
    entropy_loss: float  # -entropy
    approx_kl: float | None  # over the last epoch; this and the next are None if there is a single update
    clip_fraction: float | None
    explained_variance: float | None  # None if all returns are equal


class UpdateMeasures(NamedTuple):
    """The measures of one update."""

    metrics: LearnerMetrics
    change: PolicyChange
    fit: Array  # [2, N], the returns, and their differences from the values


def summarize_updates(updates: Sequence[UpdateMeasures], minibatches: int, clips: bool) -> TrainMetrics:
    """Averages all updates from a rollout; `clips` is whether the loss is PPO's clipped one."""
    losses = [update.metrics for update in updates]
    changes = [update.change for update in updates]
    return TrainMetrics(
        policy_gradient_loss=float(np.mean([change.surrogate_loss for change in changes])),
        value_loss=2 * float(np.mean([loss.value_loss for loss in losses])),
        entropy_loss=-float(np.mean([loss.entropy for loss in losses])),
        approx_kl=float(np.mean([change.kl for change in changes[-minibatches:]])) if clips else None,
        clip_fraction=float(np.mean([change.clip_fraction for change in changes])) if clips else None,
        explained_variance=_explain_variance(*np.concatenate([update.fit for update in updates], axis=1)),
    )


def _explain_variance(returns: Array, errors: Array) -> float | None:
    """Returns 1 - Var(returns - values) / Var(returns): 1 for perfect values, 0 or less for useless ones."""
    spread = float(np.var(returns))
    return 1 - float(np.var(errors)) / spread if spread > 0 else None
