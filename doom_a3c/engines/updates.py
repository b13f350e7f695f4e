"""Updates of the global model: counting, applying and logging them, for the learning threads of every engine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.learner import Gradients, Update
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.rewards import RewardStats
from doom_a3c.agent.rollouts import UNUSABLE, RolloutStats
from doom_a3c.algorithm.step_size import KLStepSize
from doom_a3c.settings.errors import RunError

if TYPE_CHECKING:
    from doom_a3c.engines.update_log import UpdateLog
    from doom_a3c.record.metrics.progress import Progress
    from doom_a3c.settings.config import Config

MAX_NON_FINITE = 20  # rollouts in a row, each with an update that was not finite
NON_FINITE = "non_finite_update"  # the kind of the fault


class DivergedError(RunError):
    """Loss or gradients were not finite in many rollouts in a row; no such update has been applied."""


class Updates(Protocol):
    """Takes what a worker has played and computed."""

    def count(self, stats: RolloutStats, actions: Actions) -> None:
        """Counts a rollout that is about to be learned from, and the actions in it."""

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Applies gradients from rollouts of that version to the global model, or sends them there.

        `last` says whether these are the last gradients of those rollouts.

        Returns:
            Whether those rollouts may be learned from any further: not after a roll-back.
        """

    def log(self, update: Update) -> None:
        """Logs the last update from some rollouts."""


class SharedStepSize:
    """The step size of all learning threads of a run, as a factor. Any thread may call every method."""

    def __init__(self, target: float, threads: int = 1) -> None:
        """With a `target` of 0 the factor stays 1."""
        self._lock, self._first = threading.Lock(), KLStepSize.begin(target, threads)
        self._now = self._first

    @classmethod
    def of(cls, config: Config, threads: int = 1) -> SharedStepSize:
        """Returns the step size that the settings name: its factor is 1 where rollouts make a single update each."""
        return cls(config.target_kl if config.updates_per_rollout > 1 else 0.0, threads)

    @property
    def value(self) -> float:
        """The factor of the next update."""
        return self._now.value

    def restart(self) -> None:
        """Begins anew, for an optimizer whose slots are those of an earlier moment or of none."""
        with self._lock:
            self._now = self._first

    def after(self, kl: float, share: float) -> None:
        """Takes the divergence that the updates from a rollout came to into account; `share` as `KLStepSize` has it."""
        with self._lock:
            self._now = self._now.after(kl, share)


class Updater:
    """Applies one learning thread's gradients to the global model. Owns the count of rollouts in a row that went wrong."""

    def __init__(
        self, config: Config, model: GlobalModel, progress: Progress, step_size: SharedStepSize, log: UpdateLog | None
    ) -> None:
        self._config, self._model, self._progress = config, model, progress
        self._step_size, self._log = step_size, log
        self._non_finite, self._spoilt = 0, False  # rollouts in a row; whether the newest one is to be counted among them

    def count(self, stats: RolloutStats, actions: Actions | None = None) -> None:
        """Counts a rollout that is about to be learned from, and the actions in it where they are known."""
        count_rollout(stats, self._progress, self._model.reward_stats)
        if self._log is not None:
            self._log.add(stats.episodes, actions)

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Applies gradients from rollouts of that version if they are finite, and counts a fault if not.

        `last` says whether these are the last gradients of those rollouts.

        Returns:
            Whether those rollouts may be learned from any further: not after a roll-back.

        Raises:
            DivergedError: after too many rollouts in a row with gradients that are not finite.
        """
        if version < self._model.since:
            return False
        frames, schedule = self._progress.frames, self._config.learning_rate
        if last:
            self._step_size.after(gradients.kl, schedule.share(frames, self._config.frames) * self._model.rate_share)
        if not gradients.finite:
            self._spoilt = True
            self._progress.add_fault(NON_FINITE)
        else:
            rate = schedule.at(frames, self._config.frames) * self._step_size.value
            before = self._model.apply(gradients.gradients, rate, version)
            if before is not None:
                lag = max(0, before - version)  # a restarted server may be behind its hosts
                self._progress.add_update(gradients.metrics.entropy, lag)
        if last:
            self._close_rollout()
        return version >= self._model.since

    def log(self, update: Update) -> None:
        """Logs the last update from some rollouts."""
        if self._log is not None:
            step_factor = self._step_size.value if self._config.target_kl else None
            self._log.write(update, step_factor, self._progress.frames)

    def skip(self) -> None:
        """Counts a rollout whose only update was not finite; raises as `apply` does."""
        self._spoilt = True
        self._progress.add_fault(NON_FINITE)
        self._close_rollout()

    def _close_rollout(self) -> None:
        self._non_finite, self._spoilt = self._non_finite + 1 if self._spoilt else 0, False
        if self._non_finite >= MAX_NON_FINITE:
            why = divergence_hint(self._progress, self._config)
            raise DivergedError(
                f"in the last {MAX_NON_FINITE} rollouts losses or gradients were not finite; none of those was applied{why}"
            )


def count_rollout(stats: RolloutStats, progress: Progress, reward_stats: RewardStats) -> None:
    """Adds a rollout to the counters of the run, and to the statistics of its rewards."""
    scores = [episode.score for episode in stats.episodes]
    progress.add_steps(stats.steps, stats.frames, scores, stats.faults)
    reward_stats.add(stats.reward_sums)


def divergence_hint(progress: Progress, config: Config) -> str:
    """Returns why updates are not finite, as the end of a sentence: unusable numbers of the game, or the usual cure."""
    given = [words for kind, words in UNUSABLE.items() if progress.faults[kind]]
    if given:
        return f": {config.scenario} has given {' and '.join(given)}"
    smaller = "--learning-rate" if config.normalize_rewards else "--learning-rate or --reward-scale"
    return f"; a smaller {smaller} is the usual cure"
