"""Actors as the settings want them, with their games filmed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from doom_a3c.cli.build import Builder
from doom_a3c.config import Config, corrects, rows_kept, worker_count
from doom_a3c.progress import Progress
from doom_a3c.recording import Film, FilmedVectorEnv, Gate
from doom_a3c.rollouts import Actor, Decide


class ActorFactory:
    """Makes the actors of one process. Owns the gate of their films."""

    def __init__(
        self,
        config: Config,
        builder: Builder,
        progress: Progress,
        filmed: Callable[[Film], None],
        *,
        restarts: int,
        host: int = 0,
    ) -> None:
        """Finished films go to `filmed`. Sessions of a run and hosts of a cluster play games of their own."""
        self._config, self._builder, self._progress = config, builder, progress
        self._filmed, self._restarts, self._host = filmed, restarts, host
        self._gate = Gate()

    def __call__(self, index: int, policy: Decide) -> Actor:
        """Returns the actor of worker `index`, with its own games, random stream and share of the exploration."""
        config, games = self._config, self._config.games
        vector = self._builder.training_env(games, rows_kept(config))
        env = FilmedVectorEnv(vector, index, config.gif_every, self._gate, self._filmed)
        places = np.arange(index * games, (index + 1) * games) / max(1, worker_count(config) * games - 1)
        powers = 1.0 + config.epsilon_spread * places
        return Actor(
            env,
            policy,
            rollout_length=config.rollout_length,
            discount=config.discount,
            reward_scale=config.reward_scale,
            reward_clip=config.reward_clip,
            epsilons=lambda: (config.epsilon.at(self._progress.frames, config.frames) ** powers).astype(np.float32),
            history=getattr(vector, "history", None) if rows_kept(config) > 1 else None,
            bootstrap=not corrects(config),
            seed=np.random.SeedSequence([config.seed, self._restarts, index, self._host]),
        )
