"""Scaling of rewards for learning."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Array
from doom_a3c.agent.player import Bools, Rewards
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments, compute_moments

if TYPE_CHECKING:
    from doom_a3c.settings.config import Config


class RewardScale(NamedTuple):
    """How rewards are scaled: multiplied by a factor, or normalized; then clipped."""

    factor: float = 1.0
    limit: float | None = None  # rewards are clipped to [-limit, limit]; None does not clip
    normalized: bool = False  # divided by a standard deviation instead of multiplied by the factor

    @classmethod
    def from_config(cls, config: Config) -> RewardScale:
        return cls(config.reward_scale, config.reward_limit, config.normalize_rewards)

    def scale(self, rewards: Rewards, bonuses: Rewards, sums: RunningMoments) -> Array:
        """Returns the scaled sum of a game's rewards and shaping rewards, of any shape.

        Normalized rewards are divided by the standard deviation of the run's discounted reward sums so far, from `sums`
        (reward scaling; Engstrom et al. 2020, arXiv:2005.12729, section 3); shaping, whose units are known, is not.
        """
        with np.errstate(over="ignore"):
            scaled = rewards / sums.spread + bonuses if self.normalized else (rewards + bonuses) * self.factor
            return (scaled if self.limit is None else np.clip(scaled, -self.limit, self.limit)).astype(np.float32)


IDENTITY = RewardScale()


class RewardStats:
    """Statistics of the discounted reward sums of all games of a run. Any thread may call every method."""

    def __init__(self) -> None:
        self._lock, self.now = threading.Lock(), NO_MOMENTS

    def add(self, sums: RunningMoments) -> None:
        with self._lock:
            self.now = self.now.merge(sums)

    def replace(self, sums: RunningMoments) -> None:
        """Replaces the statistics with those of a checkpoint or a whole cluster."""
        with self._lock:
            self.now = sums


class RewardScaler:
    """Scales the rewards of an actor's games. Owns the discounted sum of each game's running episode."""

    def __init__(self, scale: RewardScale, stats: RewardStats, discount: float, games: int) -> None:
        """`stats` belong to the whole run; rollouts are added to them when they are counted."""
        self._scale, self._stats, self._discount, self._running = scale, stats, discount, np.zeros(games)
        self.weigh_shaping: Callable[[], float] = lambda: 1.0  # the current factor on shaping rewards

    def scale(self, rewards: Rewards, bonuses: Rewards, ends: Bools, usable: Bools) -> tuple[Array, RunningMoments]:
        """Returns the scaled rewards of a rollout, [T, B], with the moments of its discounted sums without shaping.

        Only `usable` rewards count in the statistics. Infinite rewards become NaN, so that clipping does not hide them.
        """
        sums = NO_MOMENTS
        if self._scale.normalized:
            sums = compute_moments(self._discounted_sums(np.where(usable, rewards, 0.0), ends))
        finite = np.where(np.isfinite(rewards + bonuses), rewards, np.nan)
        return self._scale.scale(finite, self.weigh_shaping() * bonuses, self._stats.now.merge(sums)), sums

    def _discounted_sums(self, rewards: Rewards, ends: Bools) -> Rewards:
        """Returns the discounted sum of each game's rewards in its episode up to each step, [T, B].

        It varies about as much as the return, but is known at once and does not depend on the network's values.
        """
        sums = np.empty(rewards.shape)
        for t, now in enumerate(rewards):
            sums[t] = self._running = self._discount * self._running + now
            self._running = np.where(ends[t], 0.0, self._running)
        return sums
