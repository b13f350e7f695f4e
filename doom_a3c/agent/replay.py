"""Rollouts that are kept, to be learned from again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from doom_a3c.agent.learner import Batch, Learner
from doom_a3c.agent.rollouts import Played, concatenated
from doom_a3c.settings.config import Config, replay_count


class _Kept:
    """A rollout, and how likely it is to be drawn compared with others."""

    def __init__(self, played: Played) -> None:
        self.played, self.weight = played, 0.0


class Replay:
    """Prepares new rollouts for a learner, and with them older ones where the settings say so. Owns these."""

    def __init__(self, learner: Learner, config: Config, index: int) -> None:
        """`index` tells those of a run apart: each draws in its own way."""
        self._learner, self._times, self._by_advantage = learner, replay_count(config), config.replay_by_advantage
        self._kept: deque[_Kept] = deque(maxlen=config.replay_size)
        self._random = np.random.default_rng(np.random.SeedSequence([config.seed, index], spawn_key=(2,)))

    def batches(self, new: Sequence[Played], since: int) -> tuple[list[Batch], int]:
        """Returns a batch of all games of new rollouts, then batches of as many older ones, and the version of them all.

        There are as many batches of older ones as the settings want, and as what is kept is enough for. No rollout is drawn
        twice, and none that weights of before version `since` have played. The version is that of the oldest weights that
        decided in any of the rollouts.
        """
        fresh = [_Kept(played) for played in new]
        if not self._times:
            return [self._prepared(fresh)], _version(fresh)
        kept = [one for one in self._kept if one.played.version >= since]
        drawn = self._drawn(kept, len(new) * min(self._times, len(kept) // len(new)))
        groups = [fresh, *(drawn[start : start + len(new)] for start in range(0, len(drawn), len(new)))]
        batches = [self._prepared(group) for group in groups]
        # One with what is not finite spoils the update that it is in, and is not to spoil more.
        self._kept = deque((one for one in [*kept, *fresh] if np.isfinite(one.weight)), self._kept.maxlen)
        return batches, _version(fresh + drawn)

    def _drawn(self, kept: Sequence[_Kept], count: int) -> list[_Kept]:
        if not count:
            return []
        weights = np.array([one.weight if self._by_advantage else 1.0 for one in kept]) + 1e-9  # none is impossible
        places = self._random.choice(len(kept), count, replace=False, p=weights / weights.sum())
        return [kept[place] for place in places]

    def _prepared(self, group: Sequence[_Kept]) -> Batch:
        batch = self._learner.prepare(concatenated([one.played.rollout for one in group]))
        if self._times:
            length = len(group[0].played.rollout.actions)
            _, advantages = batch.basis
            sizes = np.abs(advantages).reshape(length, len(group), -1).mean(axis=(0, 2))
            for one, size in zip(group, sizes, strict=True):
                one.weight = float(size)
        return batch


def _version(group: Sequence[_Kept]) -> int:
    return min(one.played.version for one in group)
