"""The log of one learning thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.learner import Update
from doom_a3c.agent.player import Episode
from doom_a3c.record.metrics.loggers import Logger
from doom_a3c.record.metrics.rate_limiter import log_limiter


class EpisodeMetrics(NamedTuple):
    """Means of some finished episodes, None where there are none."""

    reward: float | None  # their scores
    shaped_reward: float | None  # the scores with the pay of shaping, None where that is nothing
    length: float | None  # steps
    value: float | None  # the network's values of their states, scaled


class StepMetrics(NamedTuple):
    """How far several updates from a rollout moved the policy, and the factor of the step size; None for a single one."""

    kl: float | None  # KL(mu || pi) in nats, mu the policy that played and pi the one before the last update
    step_factor: float | None


class UpdateLog:
    """Logs the updates of one learning thread. Owns the episodes finished since its last point."""

    def __init__(self, logger: Logger) -> None:
        self._logger, self._limiter = logger, log_limiter()
        self._episodes: list[Episode] = []
        self._actions: Actions | None = None  # of the newest rollout

    def add(self, episodes: Sequence[Episode], actions: Actions | None) -> None:
        """Adds finished episodes, and the actions of a rollout."""
        self._episodes.extend(episodes)
        self._actions = actions

    def write(self, update: Update, step_factor: float | None, frames: int) -> None:
        """Writes a point, unless the last one is too new."""
        logger = self._logger
        if not self._limiter.allow():
            return
        logger.metrics(update.metrics, frames)
        logger.metrics(StepMetrics(update.kl, None if update.kl is None else step_factor), frames)
        logger.metrics(episode_metrics(self._episodes), frames)
        if self._actions is not None:
            logger.histogram("actions", self._actions.ravel().tolist(), frames)
        self._episodes.clear()


def episode_metrics(episodes: Sequence[Episode]) -> EpisodeMetrics:
    """Returns the means of finished episodes with a score that is a number."""
    episodes = [episode for episode in episodes if np.isfinite(episode.score)]
    if not episodes:
        return EpisodeMetrics(None, None, None, None)
    score, shaped = (float(np.mean([getattr(episode, name) for episode in episodes])) for name in ("score", "shaped"))
    return EpisodeMetrics(
        score,
        None if shaped == score else shaped,
        float(np.mean([episode.length for episode in episodes])),
        float(np.mean([episode.value for episode in episodes])),
    )
