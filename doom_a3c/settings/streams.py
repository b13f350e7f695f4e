"""Random streams: the seed of a run or an episode gives each purpose its own stream."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """The purposes of random numbers."""

    WEIGHTS = 1  # the initial weights
    TRAINING = 2  # the games and actions of a worker
    EVALUATION = 3  # the games and actions of an evaluator
    MINIBATCHES = 4  # 5 was another purpose in an earlier version: numbers are never given a new meaning
    PLAY = 6  # actions of played episodes
    RANDOM_PLAY = 7
    RESTARTS = 8  # seeds of restarted episodes


def make_seed(seed: int, stream: Stream, *keys: int) -> np.random.SeedSequence:
    """Returns the seed of a stream; different `keys` give independent streams for the same purpose.

    Nothing here may draw from `default_rng(seed)` itself: a Gymnasium game draws from that stream after `reset(seed=seed)`.
    Plain lists of numbers do not separate streams: `SeedSequence([seed, 0])` is `SeedSequence(seed)`.
    """
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *keys))


def split(seed: np.random.SeedSequence, parts: int) -> list[np.random.SeedSequence]:
    """Returns seeds of independent streams, the same ones at every call, unlike `SeedSequence.spawn`."""
    return [np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, part)) for part in range(parts)]
