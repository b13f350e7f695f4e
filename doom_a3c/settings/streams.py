"""Random streams: from the one seed of a run or an episode, a stream of its own for every purpose."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """The purposes of random numbers."""

    WEIGHTS = 1  # initial ones
    TRAINING = 2  # the games and actions of a worker
    EVALUATION = 3  # those of an evaluator
    MINIBATCHES = 4  # 5 was taken once: numbers stay
    PLAY = 6  # actions of played episodes
    RANDOM_PLAY = 7
    RESTARTS = 8  # the seeds by which episodes begin again


def make_seed(seed: int, stream: Stream, *keys: int) -> np.random.SeedSequence:
    """Returns the seed of a stream; other `keys` give other streams for the same purpose.

    Nothing here may draw from `default_rng(seed)` itself: a Gymnasium game draws from that stream after `reset(seed=seed)`.
    Nor do plain lists of numbers tell streams apart: `SeedSequence([seed, 0])` is `SeedSequence(seed)`.
    """
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *keys))


def split(seed: np.random.SeedSequence, parts: int) -> list[np.random.SeedSequence]:
    """Returns seeds of independent streams, the same ones at every call, unlike `SeedSequence.spawn`."""
    return [np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, part)) for part in range(parts)]
