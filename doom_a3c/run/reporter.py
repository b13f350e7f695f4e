"""Reports a run: its status for the terminal, its metrics, and messages about evaluations."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from doom_a3c.engines.engine import Engine
from doom_a3c.engines.state import State
from doom_a3c.record.metrics.counters import WINDOW, EvaluationPoint
from doom_a3c.record.metrics.loggers import Logger
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.rate_limiter import log_limiter
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.run_record import Best, PolicyName
from doom_a3c.run.evaluator import Evaluation, Scores
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import Schedule
from doom_a3c.settings.scenarios import Scenario

# Frames arrive in batches, a rollout of all games at once; rates are measured from batch to batch.
_RATE_SECONDS = 30.0  # frames per second are a mean over at most this time, unless a batch takes longer
_LEFT_SECONDS = 300.0  # the same for the remaining time, which should fluctuate less
_STILL_SECONDS = 60.0  # without a batch, after which the rate counts as 0
_MARK_SECONDS = 2.0  # shortest time between two marked batches
_MEANS = 24  # points of the displayed curve


class Status(NamedTuple):
    """The status for the terminal; None for unknown values."""

    share: float  # used of the budget that will end first, 0 to 1
    seconds_left: float | None
    frames: int
    frame_budget: int
    frames_per_second: float | None
    episodes: int
    mean_score: float | None  # of the last 100 episodes
    mean_of: int  # how many finished episodes it counts: 100, or fewer before there is a mean
    mean_new: int  # of these, episodes of this session
    means: Sequence[float]  # a sample of earlier values of mean_score
    expected_mean: float | None  # of a trained agent, by the scenario's file
    random_mean: float | None  # of random play, by the scenario's file
    rated: bool  # whether evaluations are ratings in a league, and not scores
    evaluation: EvaluationPoint | None  # the newest
    evaluations: Sequence[EvaluationPoint]  # all, or every n-th of many
    best_evaluation: float | None
    confirmed: bool  # measured in games that selected neither weights nor policy; otherwise biased upwards
    entropy: float | None
    engine: str  # its own description, may be ''
    faults: Mapping[str, int]  # number of survived faults, by kind
    gif: Path | None  # the newest


class View(Protocol):
    """The display of a run."""

    def show(self, status: Status) -> None:
        """Shows the newest status; called several times a second."""

    def set_phase(self, describe: Callable[[], str]) -> None:
        """Sets the function that describes the current phase, '' for none; it is called repeatedly."""

    def log(self, message: str) -> None:
        """Shows a permanent message."""


class RunMetrics(NamedTuple):
    """Metrics of the whole run."""

    frames_per_second: float | None
    episodes: int
    updates: int
    learning_rate: float
    entropy_cost: float | None  # this and the next are None if constant
    epsilon: float | None
    policy_lag: int
    entropy: float
    training_score: float | None  # the same as `reward`, for its own chart
    reward: float | None  # mean of the last 100 episodes, None before there are 100
    maximum_reward: float | None  # of the last 100 episodes
    reward_spread: float | None  # divisor of normalized rewards, None for others
    faults: Mapping[str, int]  # number of survived faults, by kind


class RolloutMetrics(NamedTuple):
    """The metrics that stable-baselines3 logs as `rollout/...`: means of the last 100 episodes, None for fewer."""

    ep_rew_mean: float | None
    ep_len_mean: float | None  # steps


class EpisodeCurve(NamedTuple):
    """The metrics of the same names in `RunMetrics`, with episodes on the time axis."""

    reward_by_episode: float
    maximum_reward_by_episode: float


class EvaluationMetrics(NamedTuple):
    """Metrics of an evaluation."""

    score: float  # selects the best weights: the mean of the better policy
    greedy: Mapping[str, float]  # mean, std, min and max
    sampled: Mapping[str, float]


class LeagueMetrics(NamedTuple):
    """The rating of the newest weights, in a run with a league."""

    rating: float


class ConfirmedMetrics(NamedTuple):
    """The score of the best weights in games that selected neither weights nor policy."""

    confirmed_score: float


def _list_statistics(scores: Scores) -> dict[str, float]:
    return {name: value for name, value in scores._asdict().items() if name != "episodes"}


class Reporter:
    """Reports a run's progress to a view and a log. Owns the rate of frames, and the newest evaluation's score."""

    def __init__(
        self,
        config: Config,
        progress: Progress,
        engine: Engine,
        logger: Logger,
        view: View,
        newest_gif: Callable[[], Path | None] = lambda: None,
        scenario: Scenario | None = None,
        *,
        rated: bool = False,
    ) -> None:
        """Reports evaluations as ratings if they are `rated`."""
        self.rated = rated
        self._config, self._progress, self._engine = config, progress, engine
        self._logger, self._view, self._limiter = logger, view, log_limiter()
        self._newest_gif, self._scenario = newest_gif, scenario
        self._updates_before, self._steps_before = progress.updates, progress.steps
        self._episodes_before = progress.episodes
        self._counted_before = progress.counted
        # Times and frame counts, both increasing.
        self._marks: deque[tuple[float, int]] = deque(maxlen=int(_LEFT_SECONDS / _MARK_SECONDS) + 1)
        self._seen = -1  # frames at the last measurement
        self._rate: float | None = None
        self._evaluation: EvaluationPoint | None = None

    def set_phase(self, describe: Callable[[], str]) -> None:
        """Sets the function that describes the current phase, see `View`."""
        self._view.set_phase(describe)

    def report(self, seconds: float, best: Best) -> None:
        """Reports the progress after `seconds` of this session."""
        self._measure_rate()
        if self._progress.updates > 0 and self._limiter.allow():
            self._write_point(seconds)
        self._view.show(self._make_status(seconds, best))

    def log_end(self, seconds: float) -> None:
        """Logs the last point of a session of `seconds`; in a short session it is the first with a frame rate."""
        now = time.monotonic()
        if self._rate is None and self._marks and now > self._marks[-1][0] and self._progress.frames > self._marks[-1][1]:
            self._mark(now)
        if self._progress.updates > self._updates_before:
            self._write_point(seconds)

    def _measure_rate(self) -> None:
        now, frames = time.monotonic(), self._progress.frames
        if self._progress.updates == self._updates_before:  # compilation delays the first updates by seconds
            return
        gained, self._seen = frames - self._seen, frames
        if gained < 0:  # a restarted server of a cluster continues from an older state
            self._marks.clear()
        if self._marks:
            since = now - self._marks[-1][0]
            if since >= _STILL_SECONDS:
                self._rate = 0.0
            if not gained or since < _MARK_SECONDS:
                return
        self._mark(now)

    def _mark(self, now: float) -> None:
        self._marks.append((now, self._progress.frames))
        if len(self._marks) > 1:
            self._rate = self._measure_rate_over(_RATE_SECONDS)

    def _measure_rate_over(self, seconds: float) -> float:
        """Returns the mean frames per second over the marks of the last `seconds`, at least two marks."""
        *older, (now, frames) = self._marks
        since, before = next((mark for mark in older if now - mark[0] <= seconds), older[-1])
        return (frames - before) / (now - since)

    def _make_status(self, seconds: float, best: Best) -> Status:
        progress, config, evaluation = self._progress, self._config, self._evaluation
        shares, left = [progress.frames / config.frames], [self._estimate_seconds_until(config.frames)]
        if config.episodes is not None:
            shares.append(progress.episodes / config.episodes)
            left.append(self._estimate_seconds_until_episode(config.episodes, seconds))
        if config.minutes is not None:
            shares.append(seconds / (60 * config.minutes))
            left.append(max(0.0, 60 * config.minutes - seconds))
        known = [one for one in left if one is not None]
        return Status(
            share=min(1.0, max(shares)),
            seconds_left=min(known) if known else None,
            frames=progress.frames,
            frame_budget=config.frames,
            frames_per_second=self._rate,
            episodes=progress.episodes,
            mean_score=progress.mean_score,
            mean_of=len(progress.newest_scores()),
            mean_new=progress.count_new_scores(self._counted_before),
            means=progress.means(_MEANS),
            expected_mean=self._scenario.expected_mean if self._scenario else None,
            random_mean=self._scenario.random_mean if self._scenario else None,
            rated=self.rated,
            evaluation=evaluation,
            evaluations=best.evaluations,
            best_evaluation=best.score,
            confirmed=best.confirmed,
            entropy=None if math.isnan(progress.entropy) else progress.entropy,
            engine=self._engine.describe(),
            faults=dict(progress.faults),
            gif=self._newest_gif(),
        )

    def _estimate_seconds_until(self, frames: int) -> float | None:
        """Returns the seconds until the run has played `frames`; None in its first seconds."""
        if len(self._marks) < 3:
            return None
        return max(0.0, (frames - self._progress.frames) / self._measure_rate_over(_LEFT_SECONDS))

    def _estimate_seconds_until_episode(self, episodes: int, seconds: float) -> float | None:
        """Returns the seconds until the run has finished `episodes`, at the rate of this session; None before its first."""
        finished = self._progress.episodes
        rate = (finished - self._episodes_before) / seconds if seconds else 0.0
        return max(0.0, (episodes - finished) / rate) if rate > 0 else None

    def _write_point(self, seconds: float) -> None:
        progress, config = self._progress, self._config
        learning_rate = config.learning_rate.at(progress.frames, config.frames)
        scores, length = progress.newest_scores(), progress.mean_length
        mean, best = (sum(scores) / WINDOW, max(scores)) if len(scores) == WINDOW else (None, None)
        if not progress.count_new_scores(self._counted_before):  # all of them are from earlier sessions
            mean = best = length = None
        if mean is not None and best is not None:
            self._logger.metrics(EpisodeCurve(mean, best), progress.episodes)
        metrics = RunMetrics(
            self._rate,
            progress.episodes,
            progress.updates,
            learning_rate,
            self._read_schedule(config.entropy_cost),
            self._read_schedule(config.epsilon),
            progress.lag,
            progress.entropy,
            mean,
            mean,
            best,
            self._engine.reward_sums.spread if config.normalize_rewards else None,
            dict(progress.faults),
        )
        self._logger.metrics(metrics, progress.frames)
        shared = {  # with stable-baselines3; its frames per second are steps since the start of the session
            "rollout": RolloutMetrics(mean, length),
            "time": {"fps": (progress.steps - self._steps_before) // seconds if seconds else None},
            "train": {"learning_rate": learning_rate},
        }
        self._logger.metrics(shared, progress.frames)
        self._logger.metrics(self._engine.metrics(), progress.frames)

    def _read_schedule(self, schedule: Schedule) -> float | None:
        """Returns the current value of a schedule, None if it is constant."""
        return None if schedule.final is None else schedule.at(self._progress.frames, self._config.frames)

    def report_evaluation(self, evaluation: Evaluation, state: State, is_best: bool) -> None:
        frames = state.counters.frames
        self._evaluation = evaluation.point(frames)
        self._logger.metrics(EvaluationMetrics(evaluation.score, *map(_list_statistics, evaluation)), frames)
        if self.rated:
            self._logger.metrics(LeagueMetrics(evaluation.score), frames)
        highest = ", the highest so far" if is_best else ""  # not yet the best: earlier ones will play again
        kind = "rating" if self.rated else "evaluation"
        self._view.log(f"{kind} at {frames:,} frames: {_format_evaluation(evaluation)}{highest}")

    def report_reevaluation(self, evaluation: Evaluation, stays_best: bool) -> None:
        """Reports the second evaluation of the earlier best weights, and whether they are still the best."""
        verdict = "still better than the newest weights" if stays_best else "the newest weights are best"
        self._view.log(f"best weights evaluated again: {_format_evaluation(evaluation)}, {verdict}")

    def report_confirmation(self, scores: Scores, state: State, policy: PolicyName) -> None:
        frames = state.counters.frames
        self._logger.metrics(ConfirmedMetrics(scores.mean), frames)
        score = f"{policy} {format_score(scores.mean)} +- {format_score(scores.std)}"
        self._view.log(f"best weights, from {frames:,} frames, confirmed in {scores.episodes} new games: {score}")


def _format_evaluation(evaluation: Evaluation) -> str:
    greedy, sampled = (f"{format_score(part.mean)} +- {format_score(part.std)}" for part in evaluation)
    return f"greedy {greedy}, sampled {sampled}, {evaluation.greedy.episodes} episodes each"
