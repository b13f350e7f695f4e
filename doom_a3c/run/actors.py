"""Actors as the settings want them, with their games recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from doom_a3c.agent.policy import Decider
from doom_a3c.agent.rewards import RewardScale
from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.record.gifs import SECONDS_BETWEEN_GIFS
from doom_a3c.record.rate_limiter import RateLimiter
from doom_a3c.record.recording import RecordedVectorEnv, Recording
from doom_a3c.run.builder import Builder
from doom_a3c.run.step_view import Narration
from doom_a3c.settings.config import Config, ProgressCounts, uses_vtrace
from doom_a3c.settings.derived import rows_kept, worker_count
from doom_a3c.settings.streams import Stream, seed_of


class LearnedCounts(ProgressCounts, Protocol):
    """What a run has done so far, and been paid."""

    @property
    def reward_sums(self) -> RunningMoments:
        """As `RolloutStats` has them."""


class ActorFactory:
    """Makes the actors of one process. Owns the limit on their recordings."""

    def __init__(
        self,
        config: Config,
        builder: Builder,
        counts: LearnedCounts,
        recorded: Callable[[Recording], None],
        *,
        restarts: int,
        host: int = 0,
    ) -> None:
        """Recordings go to `recorded`. Sessions of a run and hosts of a cluster play games of their own."""
        self._config, self._builder, self._counts = config, builder, counts
        self._recorded, self._restarts, self._host = recorded, restarts, host
        self._limiter = RateLimiter(SECONDS_BETWEEN_GIFS)

    def __call__(self, index: int, policy: Decider) -> Actor:
        """Returns the actor of worker `index`, with its own games, random stream and share of the exploration."""
        config, games = self._config, self._config.games
        vector = self._builder.training_env(games, rows_kept(config))
        narration = Narration(policy, self._builder, config.gif_overlay == "saliency") if config.gif_overlay else None
        env = RecordedVectorEnv(
            vector,
            index,
            config.gif_every,
            self._limiter,
            self._recorded,
            replayed=self._builder.replayed,
            narrator=narration,
        )
        places = np.arange(index * games, (index + 1) * games) / max(1, worker_count(config) * games - 1)
        powers = 1.0 + config.epsilon_spread * places
        return Actor(
            env,
            narration or policy,
            rollout_length=config.rollout_length,
            frame_skip=self._builder.scenario.game.frame_skip,
            discount=config.discount,
            reward_scale=RewardScale.of(config),
            known_sums=lambda: self._counts.reward_sums,
            epsilons=lambda: (config.epsilon.at(self._counts.frames, config.frames) ** powers).astype(np.float32),
            history=getattr(vector, "history", None) if rows_kept(config) > 1 else None,
            bootstrap=not uses_vtrace(config),
            seed=seed_of(config.seed, Stream.TRAINING, self._restarts, index, self._host),
        )
