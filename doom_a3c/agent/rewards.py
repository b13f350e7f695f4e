"""Rewards as they are learned from."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Array
from doom_a3c.agent.player import Bools, Rewards
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments, moments_of

if TYPE_CHECKING:
    from doom_a3c.settings.config import Config


class RewardScale(NamedTuple):
    """How large rewards are learned from: times a factor or normalized, and then within a limit."""

    factor: float = 1.0
    limit: float | None = None  # of either sign, none where it is None
    normalized: bool = False  # then the factor has no part in it

    @classmethod
    def of(cls, config: Config) -> RewardScale:
        """Returns the scale that the settings name."""
        return cls(config.reward_scale, config.reward_limit, config.normalize_rewards)

    def scale(self, paid: Rewards, sums: RunningMoments) -> Array:
        """Returns the games' rewards, of any shape, as they are learned from.

        Normalized rewards are divided by the spread of `sums`, discounted sums of all that the run's games have paid so far
        (reward scaling; Engstrom et al. 2020, arXiv:2005.12729, section 3).
        """
        with np.errstate(over="ignore"):
            scaled = paid * (1.0 / sums.spread if self.normalized else self.factor)
            return (scaled if self.limit is None else np.clip(scaled, -self.limit, self.limit)).astype(np.float32)


IDENTITY = RewardScale()


class RewardStats:
    """Statistics of the discounted reward sums of all games of a run. Any thread may call every method."""

    def __init__(self) -> None:
        self._lock, self.now = threading.Lock(), NO_MOMENTS

    def add(self, sums: RunningMoments) -> None:
        """Adds the sums of a rollout."""
        with self._lock:
            self.now = self.now.merged(sums)

    def replace(self, sums: RunningMoments) -> None:
        """Takes over the statistics of a checkpoint, or of a whole cluster."""
        with self._lock:
            self.now = sums


class RewardScaler:
    """Scales the rewards of an actor's games. Owns the discounted sum of each game's running episode."""

    def __init__(self, scale: RewardScale, stats: RewardStats, discount: float, games: int) -> None:
        """`stats` are the whole run's; rollouts are added to them where they are counted."""
        self._scale, self._stats, self._discount = scale, stats, discount
        self._running = np.zeros(games)

    def scale(self, paid: Rewards, ends: Bools, usable: Bools) -> tuple[Array, RunningMoments]:
        """Returns the rewards [T, B] of a rollout as they are learned from, and the statistics of its own sums.

        Only `usable` rewards count in the statistics; one that is not finite is NaN, of which no limit makes a number.
        """
        sums = NO_MOMENTS
        if self._scale.normalized:
            sums = moments_of(self._discounted_sums(np.where(usable, paid, 0.0), ends))
        finite = np.where(np.isfinite(paid), paid, np.nan)
        return self._scale.scale(finite, self._stats.now.merged(sums)), sums

    def _discounted_sums(self, paid: Rewards, ends: Bools) -> Rewards:
        """Returns the discounted sums [T, B] of each game's rewards in its episode up to each step.

        Their spread is about that of the returns to come, and known at once: no step waits for its future, and no value of
        the network has a part in it.
        """
        sums = np.empty(paid.shape)
        for t, now in enumerate(paid):
            sums[t] = self._running = self._discount * self._running + now
            self._running = np.where(ends[t], 0.0, self._running)
        return sums
