"""Updates of the global model: what a learning thread does with gradients, in every engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.learner import Batch, Gradients, Learner
from doom_a3c.agent.model import GlobalModel, SharedNetwork
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Episode
from doom_a3c.agent.rollouts import UNUSABLE, RolloutStats
from doom_a3c.record.loggers import Logger
from doom_a3c.record.progress import Progress
from doom_a3c.record.rate_limiter import log_limiter
from doom_a3c.settings.config import Config, updates_per_rollout
from doom_a3c.settings.derived import Counts
from doom_a3c.settings.fields import RunError

MAX_NON_FINITE = 20  # rollouts in a row, each with an update that was not finite
NON_FINITE = "non_finite_update"  # the kind of the fault


class DivergedError(RunError):
    """Loss or gradients were not finite in many rollouts in a row; no such update has been applied."""


class Updates(Protocol):
    """Where a worker's gradients go."""

    def count(self, stats: RolloutStats, actions: Actions) -> None:
        """Counts what has been played and is about to be learned from, and the actions in it."""

    def apply(self, gradients: Gradients, version: int, last: bool) -> None:
        """Applies gradients that come from rollouts of that version to the global model, or sees to it that they are.

        `last` says whether these are the last gradients of those rollouts.
        """


def learn(
    batches: Sequence[Batch],
    version: int,
    learner: Learner,
    network: ACNetwork,
    model: SharedNetwork,
    updates: Updates,
    counts: Counts,
) -> Iterator[None]:
    """Makes all updates from batches whose oldest weights are of that version; yields after each.

    The first is made at the weights that `network` has, each further one at the newest. After a roll-back those have not
    played this, and there are no more.
    """
    for minibatches, last in learner.minibatches(batches):
        if version < model.since:
            return
        updates.apply(learner.gradients(minibatches, counts.frames), version, last)
        yield
        if not last:
            model.pull(network)


class EpisodeMetrics(NamedTuple):
    """Means of some finished episodes, None where there are none."""

    reward: float | None  # their scores
    shaped_reward: float | None  # the same with what shaping has paid, None where it has paid nothing
    length: float | None  # steps
    value: float | None  # that the network gave the states in them, scaled


class StepMetrics(NamedTuple):
    """How far several updates from a rollout have taken the policy, and what that makes of the step size; None for one."""

    kl: float | None  # KL(mu || pi) in nats, mu the policy of `Batch.log_probs` and pi the one before the last update
    step_factor: float | None


class StepFactor:
    """What the step size is multiplied with, so that updates change the policy by about as much as is wanted.

    It falls where the KL divergence that the updates from a rollout come to is above twice the target, and rises, to 1
    at most, where it is below half of it: the rule of PPO's adaptive penalty (Schulman et al. 2017, arXiv:1707.06347,
    section 4), for the step size, and with its two numbers exchanged: there 1.5 is the band and 2 the change. It begins
    small, as an optimizer's first steps are of full size whatever the gradients: a few of ten times the step size spoil
    a network for good.

    The target is that of the largest step size that there is to be, and falls with the step size where a schedule or a
    roll-back makes that smaller. A fixed one makes up for those, by a factor that rises. Where the divergence goes with
    the square of the step, the factor still makes up for the square root; a target that falls with the square left short
    trainings unfinished.

    One serves all learning threads of a run. The divergence counts what the others have changed, too: of factors of their
    own one falls for what another has done, and what its worker plays is learned from no more. A change is spread over as
    many rollouts as there are threads, which all see the same divergence; but until it falls for the first time, each
    raises it in full.
    """

    FIRST, CHANGE, LEAST = 0.1, 1.5, 1e-4

    def __init__(self, target: float, threads: int = 1) -> None:
        """With a target of 0 it stays 1."""
        self._target, self._fall = target, self.CHANGE ** (1 / threads)
        self._lock = threading.Lock()
        self.restart()

    @classmethod
    def of(cls, config: Config, threads: int = 1) -> StepFactor:
        """Returns the one of a run with these settings: 1 where rollouts make a single update each."""
        return cls(config.target_kl if updates_per_rollout(config) > 1 else 0.0, threads)

    def restart(self) -> None:
        """Begins anew, for an optimizer whose slots are those of an earlier moment or of none."""
        with self._lock:
            self.value, self._rise = self.FIRST if self._target else 1.0, self.CHANGE

    def after(self, kl: float, share: float) -> None:
        """Takes notice of the divergence that the updates from a rollout have come to.

        `share` is the step size that schedule and roll-backs have left, as a share of the schedule's largest.
        """
        if not self._target:
            return
        target = self._target * share
        with self._lock:
            if not kl <= 2 * target:  # one that is no number, too
                self.value, self._rise = max(self.LEAST, self.value / self._fall), self._fall
            elif kl < target / 2:
                self.value = min(1.0, self.value * self._rise)


class Updater:
    """Applies one learning thread's gradients and logs what they were like. Owns what was played since its last point."""

    def __init__(
        self, config: Config, model: GlobalModel, progress: Progress, step_factor: StepFactor, logger: Logger | None
    ) -> None:
        self._config, self._model, self._progress, self._logger = config, model, progress, logger
        self._limiter = log_limiter()
        self._step_factor = step_factor
        self._episodes: list[Episode] = []
        self._actions: Actions | None = None  # of the newest rollout
        self._non_finite, self._spoilt = 0, False  # rollouts in a row; whether the newest one is to be counted among them

    def count(self, stats: RolloutStats, actions: Actions | None = None) -> None:
        """Counts what has been played and is about to be learned from, and the actions in it where they are known."""
        scores = [episode.score for episode in stats.episodes]
        self._progress.add_steps(stats.steps, stats.frames, scores, stats.faults, stats.reward_sums)
        if self._logger is not None:
            self._episodes.extend(stats.episodes)
            self._actions = actions

    def apply(self, gradients: Gradients, version: int, last: bool) -> None:
        """Applies gradients that come from rollouts of that version, if they are finite, and counts a fault if not.

        `last` says whether these are the last gradients of those rollouts.

        Raises:
            DivergedError: when there were some that are not finite in too many rollouts in a row.
        """
        if version < self._model.since:  # the newest roll-back has come between
            return
        frames, schedule = self._progress.frames, self._config.learning_rate
        if last:
            share = schedule.share(frames, self._config.frames) * self._model.rate_share
            self._step_factor.after(gradients.kl, share)
        if not gradients.finite:
            self._spoilt = True
            self._progress.add_fault(NON_FINITE)
        else:
            rate = schedule.at(frames, self._config.frames) * self._step_factor.value
            before = self._model.apply(gradients.gradients, rate, version)
            if before is not None:
                lag = max(0, before - version)  # a restarted server may be behind its hosts
                self._progress.add_update(gradients.metrics.entropy, lag)
        if last:
            self._close_rollout()
        if self._logger is not None and last and self._limiter.allow():
            self._logger.metrics(gradients.metrics, self._progress.frames)
            self._logger.metrics(self._step_metrics(gradients.kl), self._progress.frames)
            self._logger.metrics(episode_metrics(self._episodes), self._progress.frames)
            if self._actions is not None:
                self._logger.histogram("actions", self._actions.ravel().tolist(), self._progress.frames)
            self._episodes.clear()

    def _step_metrics(self, kl: float) -> StepMetrics:
        if updates_per_rollout(self._config) == 1:
            return StepMetrics(None, None)
        return StepMetrics(kl, self._step_factor.value if self._config.target_kl else None)

    def skip(self) -> None:
        """Counts a rollout whose only update was not finite; raises as `apply` does."""
        self._spoilt = True
        self._progress.add_fault(NON_FINITE)
        self._close_rollout()

    def _close_rollout(self) -> None:
        self._non_finite, self._spoilt = self._non_finite + 1 if self._spoilt else 0, False
        if self._non_finite >= MAX_NON_FINITE:
            why = cause(self._progress, self._config)
            raise DivergedError(
                f"in the last {MAX_NON_FINITE} rollouts losses or gradients were not finite; none of those was applied{why}"
            )


def cause(progress: Progress, config: Config) -> str:
    """Returns why updates are not finite, as the end of a sentence: what the game has given, or else what usually helps."""
    told = [words for kind, words in UNUSABLE.items() if progress.faults[kind]]
    if told:
        return f": {config.scenario} has given {' and '.join(told)}"
    smaller = "--learning-rate" if config.normalize_rewards else "--learning-rate or --reward-scale"
    return f"; a smaller {smaller} is the usual cure"


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
