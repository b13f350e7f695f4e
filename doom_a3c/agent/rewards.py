"""What games pay, as it is learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Array
from doom_a3c.agent.player import Rewards
from doom_a3c.algorithm.running_moments import RunningMoments

if TYPE_CHECKING:
    from doom_a3c.settings.config import Config


class RewardScale(NamedTuple):
    """How large rewards are learned from: times a factor or normalized, and then within a limit."""

    factor: float = 1.0
    limit: float | None = None  # of either sign, none where it is None
    normalized: bool = False  # then the factor has no part in it

    @classmethod
    def of(cls, config: Config) -> RewardScale:
        """Returns the one that the settings want."""
        return cls(config.reward_scale, config.reward_limit, config.normalize_rewards)

    def learned(self, paid: Rewards, sums: RunningMoments) -> Array:
        """Returns what games have paid, of any shape, as it is learned from.

        Normalized is what is divided by the spread of `sums`, discounted sums of all that the run's games have paid so far
        (reward scaling; Engstrom et al. 2020, arXiv:2005.12729, section 3).
        """
        with np.errstate(over="ignore"):
            scaled = paid * (1.0 / sums.spread if self.normalized else self.factor)
            return (scaled if self.limit is None else np.clip(scaled, -self.limit, self.limit)).astype(np.float32)


AS_PAID = RewardScale()
