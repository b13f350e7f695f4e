"""The log of one learning thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.learner import Update
from doom_a3c.agent.player import Episode
from doom_a3c.engines.train_metrics import summarize_updates
from doom_a3c.record.metrics.loggers import Logger
from doom_a3c.record.metrics.rate_limiter import log_limiter


class EpisodeMetrics(NamedTuple):
    """Means over finished episodes; None if there are none."""

    reward: float | None  # score
    shaped_reward: float | None  # score plus shaping rewards; None if there are none
    length: float | None  # steps
    value: float | None  # value estimate of the network, in scaled rewards


class StepMetrics(NamedTuple):
    """The policy change by the updates from a rollout, and the step size factor; None if there is a single update."""

    kl: float | None  # KL(mu || pi) in nats, mu the acting policy and pi the one before the last update
    step_factor: float | None


class UpdateLog:
    """Logs the updates of one learning thread. Owns the episodes finished since its last log entry."""

    def __init__(self, logger: Logger) -> None:
        self._logger, self._limiter = logger, log_limiter()
        self._episodes: list[Episode] = []
        self._actions: Actions | None = None  # of the newest rollout

    def add(self, episodes: Sequence[Episode], actions: Actions | None) -> None:
        self._episodes.extend(episodes)
        self._actions = actions

    def write(self, update: Update, step_factor: float | None, frames: int) -> None:
        """Writes a log entry, unless the last one is too recent."""
        logger = self._logger
        if not self._limiter.allow():
            return
        last = update.made[-1]
        logger.metrics(last.metrics, frames)
        logger.metrics(StepMetrics(last.change.kl, step_factor) if update.clips else StepMetrics(None, None), frames)
        logger.metrics({"train": summarize_updates(update)}, frames)
        logger.metrics(average_episodes(self._episodes), frames)
        if self._actions is not None:
            columns = self._actions.reshape(self._actions.shape[0] * self._actions.shape[1], -1).T
            for index, column in enumerate(columns):
                logger.histogram(f"actions.{index}" if len(columns) > 1 else "actions", column.tolist(), frames)
        self._episodes.clear()


def average_episodes(episodes: Sequence[Episode]) -> EpisodeMetrics:
    """Returns the means over finished episodes with a finite score."""
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
