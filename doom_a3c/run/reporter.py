"""Telling how a run goes: the live line, the log of the whole run, and what is said of evaluations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from doom_a3c.agent.model import State
from doom_a3c.engines.engine import Engine
from doom_a3c.record.loggers import Logger
from doom_a3c.record.progress import WINDOW, Progress, shown
from doom_a3c.record.rate_limiter import log_limiter
from doom_a3c.run.evaluation import Evaluation
from doom_a3c.settings.config import Config

_RATE_SECONDS = 2.0  # that frames per second are the mean of, at least


class Status(NamedTuple):
    """What the live line shows."""

    frames: int
    frame_budget: int
    frames_per_second: float
    episodes: int
    mean_score: float | None
    best_evaluation: float | None
    entropy: float
    seconds_left: float
    engine: str  # what it says of itself
    faults: Mapping[str, int]  # survived so far, by kind


class View(Protocol):
    """Where people look."""

    def show(self, status: Status) -> None:
        """Shows the newest status; called several times a second."""

    def log(self, message: str) -> None:
        """Shows a message, for good."""


class RunMetrics(NamedTuple):
    """How the whole run goes."""

    frames_per_second: float
    episodes: int
    updates: int
    learning_rate: float
    entropy_cost: float
    epsilon: float
    policy_lag: int
    entropy: float
    reward: float | None  # mean of the last 100 episodes, None before there are as many
    maximum_reward: float | None  # of those
    faults: Mapping[str, int]  # survived so far, by kind


class EpisodeCurve(NamedTuple):
    """What `RunMetrics` has of the same names, counted by episodes."""

    reward_by_episode: float
    maximum_reward_by_episode: float


class Reporter:
    """Reports a run's progress to a view and a log. Owns the rate of frames."""

    def __init__(self, config: Config, progress: Progress, engine: Engine, logger: Logger, view: View) -> None:
        self._config, self._progress, self._engine = config, progress, engine
        self._logger, self._view, self._limiter = logger, view, log_limiter()
        self._rate = 0.0
        self._rate_since: tuple[float, int] | None = None  # time and frames

    def report(self, seconds: float, best_evaluation: float | None) -> None:
        """Reports how far the run has come, after so many seconds of this session."""
        self._measure_rate()
        if self._progress.updates > 0 and self._limiter.allow():
            self._write_point()
        self._view.show(self._status(seconds, best_evaluation))

    def _measure_rate(self) -> None:
        now, frames = time.monotonic(), self._progress.frames
        since, before = self._rate_since = self._rate_since or (now, frames)
        if now - since >= _RATE_SECONDS:
            self._rate = (frames - before) / (now - since)
            self._rate_since = (now, frames)

    def _status(self, seconds: float, best_evaluation: float | None) -> Status:
        progress, config = self._progress, self._config
        left = (config.frames - progress.frames) / self._rate if self._rate else float("inf")
        if config.minutes is not None:
            left = min(left, 60 * config.minutes - seconds)
        return Status(
            progress.frames,
            config.frames,
            self._rate,
            progress.episodes,
            progress.mean_score,
            best_evaluation,
            progress.entropy,
            max(0.0, left),
            self._engine.describe(),
            dict(progress.faults),
        )

    def _write_point(self) -> None:
        progress, config = self._progress, self._config
        scores = progress.newest_scores()
        mean, best = (sum(scores) / WINDOW, max(scores)) if len(scores) == WINDOW else (None, None)
        if mean is not None and best is not None:
            self._logger.metrics(EpisodeCurve(mean, best), progress.episodes)
        metrics = RunMetrics(
            self._rate,
            progress.episodes,
            progress.updates,
            config.learning_rate.at(progress.frames, config.frames),
            config.entropy_cost.at(progress.frames, config.frames),
            config.epsilon.at(progress.frames, config.frames),
            progress.lag,
            progress.entropy,
            mean,
            best,
            dict(progress.faults),
        )
        self._logger.metrics(metrics, progress.frames)
        self._logger.metrics(self._engine.metrics(), progress.frames)

    def evaluated(self, evaluation: Evaluation, state: State, is_best: bool) -> None:
        """Reports an evaluation."""
        frames = state.counters.frames
        self._logger.metrics(evaluation, frames)
        greedy, sampled = evaluation
        self._view.log(
            f"evaluation at {frames:,} frames: greedy {shown(greedy.mean)} +- {shown(greedy.std)}, "
            f"sampled {shown(sampled.mean)} +- {shown(sampled.std)}, {greedy.episodes} episodes each"
            + (", the best so far" if is_best else "")
        )
