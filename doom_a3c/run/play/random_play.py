"""Random play, as a baseline."""

from __future__ import annotations

import itertools
import time
from contextlib import closing

import numpy as np

from doom_a3c.agent.player import Player, split_seed
from doom_a3c.agent.random_policy import RandomPolicy
from doom_a3c.run.builder import Builder
from doom_a3c.run.evaluator import play_first_episodes, split_episodes
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.streams import Stream, make_seed

GAMES = 10
MAX_SECONDS = 30.0  # for each agent of a game


def play_random_episodes(builder: Builder, episodes: int, seed: int, seconds: float | None = None) -> list[float]:
    """Plays random episodes and returns their scores.

    Raises:
        UserError: if not all `episodes` end within `seconds`, by default 30 for each agent of the game: the mean of the
            finished ones, which are shorter, is biased.
    """
    seconds = MAX_SECONDS * builder.agents if seconds is None else seconds
    games, end = min(GAMES, episodes), time.monotonic() + seconds
    epsilons = np.ones(games, np.float32)
    with closing(builder.make_evaluation_env(games)) as env:
        streams = split_seed(make_seed(seed, Stream.RANDOM_PLAY), games)
        player = Player(env, RandomPolicy(builder.distribution), *streams)
        quotas = split_episodes(episodes, games)
        finished = play_first_episodes(lambda: player.step(epsilons), quotas, lambda: time.monotonic() < end)
    scores = list(itertools.chain(*finished))
    if len(scores) < episodes:
        in_time = games * min(map(len, finished))
        fewer = f"try --random-episodes {in_time}" if in_time else "--random-episodes 0 leaves random play out"
        raise UserError(
            f"only {len(scores)} of {episodes} random episodes ended within {seconds:.0f} s, and the mean of these shorter "
            f"ones is biased; {fewer}"
        )
    return scores
