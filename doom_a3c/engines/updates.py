"""Counts, applies and logs the updates of the global model, for the learning threads of every engine."""

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

MAX_NON_FINITE = 20  # consecutive rollouts with an update that is not finite
NON_FINITE = "non_finite_update"  # kind of fault


class DivergedError(RunError):
    """Losses or gradients of many consecutive rollouts were not finite; none of these updates was applied."""


class Updates(Protocol):
    """Receives the rollouts and gradients of a worker."""

    def count(self, stats: RolloutStats, actions: Actions) -> None:
        """Counts a rollout and its actions, before it is learned from."""

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Applies gradients to the global model, or sends them there.

        Args:
            gradients: of a minibatch.
            version: of the oldest weights that played its rollouts.
            last: whether these are the last gradients from the rollouts.

        Returns:
            Whether learning from these rollouts may continue; False after a roll-back.
        """

    def log(self, update: Update) -> None:
        """Logs the last update from a set of rollouts."""


class SharedStepSize:
    """The step size factor of all learning threads of a run. Thread-safe."""

    def __init__(self, target: float, threads: int = 1) -> None:
        """With a `target` of 0 the factor stays 1."""
        self._lock, self._first = threading.Lock(), KLStepSize.begin(target, threads)
        self._now = self._first

    @classmethod
    def from_config(cls, config: Config, threads: int = 1) -> SharedStepSize:
        """Returns the step size for the settings; its factor stays 1 if each rollout makes a single update."""
        return cls(config.target_kl if config.updates_per_rollout > 1 else 0.0, threads)

    @property
    def value(self) -> float:
        """The factor of the next update."""
        return self._now.value

    def restart(self) -> None:
        """Restarts at the first factor, for an optimizer with restored or empty slots."""
        with self._lock:
            self._now = self._first

    def adapt(self, kl: float, share: float) -> None:
        """Adapts the factor to the KL divergence of the updates from a rollout; see `KLStepSize.adapt`."""
        with self._lock:
            self._now = self._now.adapt(kl, share)


class Updater:
    """Applies one learning thread's gradients to the global model. Owns its count of consecutive failed rollouts."""

    def __init__(
        self, config: Config, model: GlobalModel, progress: Progress, step_size: SharedStepSize, log: UpdateLog | None
    ) -> None:
        self._config, self._model, self._progress = config, model, progress
        self._step_size, self._log = step_size, log
        self._failed_rollouts, self._failed = 0, False  # consecutive ones; whether the current one has failed

    def count(self, stats: RolloutStats, actions: Actions | None = None) -> None:
        count_rollout(stats, self._progress, self._model.reward_stats)
        if self._log is not None:
            self._log.add(stats.counted, actions)

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Applies gradients, as in `Updates.apply`, if they are finite; counts a fault otherwise.

        Raises:
            DivergedError: if the gradients of too many consecutive rollouts were not finite.
        """
        if version < self._model.since:
            return False
        frames, schedule = self._progress.frames, self._config.learning_rate
        if last:
            self._step_size.adapt(gradients.change.kl, schedule.share(frames, self._config.frames) * self._model.rate_share)
        if not gradients.finite:
            self._note_failure()
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
        if self._log is not None:
            step_factor = self._step_size.value if self._config.target_kl else None
            self._log.write(update, step_factor, self._progress.frames)

    def skip(self) -> None:
        """Counts a rollout with a single update that was not finite; raises DivergedError as `apply` does."""
        self._note_failure()
        self._close_rollout()

    def _note_failure(self) -> None:
        self._failed = True
        self._progress.add_fault(NON_FINITE)

    def _close_rollout(self) -> None:
        self._failed_rollouts, self._failed = self._failed_rollouts + 1 if self._failed else 0, False
        if self._failed_rollouts >= MAX_NON_FINITE:
            hint = find_divergence_hint(self._progress, self._config)
            raise DivergedError(
                f"losses or gradients of the last {MAX_NON_FINITE} rollouts were not finite; none of them was applied{hint}"
            )


def count_rollout(stats: RolloutStats, progress: Progress, reward_stats: RewardStats) -> None:
    """Adds a rollout to the counters and reward statistics of the run."""
    scores, counted = ([episode.score for episode in episodes] for episodes in (stats.episodes, stats.counted))
    lengths = [episode.length for episode in stats.counted]
    progress.add_steps(stats.steps, stats.frames, scores, stats.faults, counted, lengths)
    reward_stats.add(stats.reward_sums)


def find_divergence_hint(progress: Progress, config: Config) -> str:
    """Returns the likely cause of updates that are not finite, or the usual cure, as the end of a sentence."""
    unusable = [words for kind, words in UNUSABLE.items() if progress.faults[kind]]
    if unusable:
        return f": {config.scenario} returned {' and '.join(unusable)}"
    smaller = "--learning-rate" if config.normalize_rewards else "--learning-rate or --reward-scale"
    return f"; try a smaller {smaller}"
