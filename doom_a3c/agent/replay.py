"""Rollouts that are kept, to be learned from again."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from doom_a3c.agent.learner import Batch, Learner
from doom_a3c.agent.rollouts import Played, concatenated
from doom_a3c.settings.config import Config, replay_count
from doom_a3c.settings.streams import Stream, seed_of


class _Kept:
    """A rollout, and how likely it is to be drawn compared with others."""

    def __init__(self, played: Played) -> None:
        self.played, self.weight = played, 1.0


class Replay:
    """Makes batches of new rollouts and, where the settings say so, of older ones, which it keeps. Owns these."""

    def __init__(self, learner: Learner, config: Config, index: int) -> None:
        """`index` tells those of a run apart: each draws in its own way."""
        self._learner, self._count, self._by_advantage = learner, replay_count(config), config.replay_by_advantage
        self._kept: deque[_Kept] = deque(maxlen=config.replay_size)
        self._random = np.random.default_rng(seed_of(config.seed, Stream.REPLAY, index))

    def batches(self, groups: Sequence[Sequence[Played]], since: int) -> tuple[list[Batch], int]:
        """Returns a batch of each group of new rollouts, older ones behind them, and the version of the oldest weights.

        A group gets as many older ones for each of its own as the settings say, once so many are kept. No older one is
        drawn twice, and none that weights of before version `since` have played.
        """
        kept = [one for one in self._kept if one.played.version >= since]
        drawn = self._drawn(kept, self._count * sum(map(len, groups)))
        batches, played = [], []
        for group in groups:
            fresh = [_Kept(one) for one in group]
            members = [*fresh, *itertools.islice(drawn, self._count * len(group))]
            batches.append(self._prepared(members))
            played += members
            kept += fresh
        if self._count:
            # One with what is not finite spoils the update that it is in, and is not to spoil more.
            self._kept = deque((one for one in kept if np.isfinite(one.weight)), self._kept.maxlen)
        return batches, min(one.played.version for one in played)

    def _drawn(self, kept: Sequence[_Kept], count: int) -> Iterator[_Kept]:
        if not 0 < count <= len(kept):
            return iter(())
        weights = np.array([one.weight if self._by_advantage else 1.0 for one in kept]) + 1e-9  # none is impossible
        places = self._random.choice(len(kept), count, replace=False, p=weights / weights.sum())
        return iter([kept[place] for place in places])

    def _prepared(self, members: Sequence[_Kept]) -> Batch:
        """Returns the batch of some rollouts, and weighs each by the mean size of its advantages in it."""
        batch = self._learner.prepare(concatenated([one.played.rollout for one in members]))
        if self._count:
            length = len(members[0].played.rollout.actions)
            # [T, B], or cut into sequences [L, T / L * B]: read row by row, both are T times B, with rollouts side by side.
            _, advantages, rhos = batch.basis
            sizes = np.abs(rhos * advantages).reshape(length, len(members), -1).mean(axis=(0, 2))
            for one, size in zip(members, sizes, strict=True):
                one.weight = float(size)
        return batch
