"""Metrics of the updates from a rollout, as stable-baselines3 defines and names them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Array
from doom_a3c.agent.learner import Update


class TrainMetrics(NamedTuple):
    """The metrics that stable-baselines3's PPO and A2C log as `train/...`."""

    policy_gradient_loss: float  # A2C calls it policy_loss
    value_loss: float  # mean squared error
    entropy_loss: float  # -entropy
    approx_kl: float | None  # over the last epoch; this and the next are None if there is a single update
    clip_fraction: float | None
    explained_variance: float | None  # None if all returns are equal


def summarize_updates(update: Update) -> TrainMetrics:
    """Averages all updates from a rollout."""
    losses, changes = [each.metrics for each in update.made], [each.change for each in update.made]
    fits = [fit.numpy() for each in update.made for fit in each.fits]
    return TrainMetrics(
        policy_gradient_loss=float(np.mean([change.surrogate_loss for change in changes])),
        value_loss=2 * float(np.mean([loss.value_loss for loss in losses])),
        entropy_loss=-float(np.mean([loss.entropy for loss in losses])),
        approx_kl=float(np.mean([change.kl for change in changes[-update.minibatches :]])) if update.clips else None,
        clip_fraction=float(np.mean([change.clip_fraction for change in changes])) if update.clips else None,
        explained_variance=_explain_variance(*np.concatenate(fits, axis=1)),
    )


def _explain_variance(returns: Array, errors: Array) -> float | None:
    """Returns 1 - Var(returns - values) / Var(returns): 1 for perfect values, 0 or less for useless ones."""
    spread, rest = (float(np.var(each, dtype=np.float64)) for each in (returns, errors))
    return 1 - rest / spread if spread > 0 else None
