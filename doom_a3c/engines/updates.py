"""Updates of the global model: what a learning thread does with gradients, in every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from doom_a3c.config import Config
from doom_a3c.learner import Gradients
from doom_a3c.model import GlobalModel
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Episode
from doom_a3c.summaries import Summaries

MAX_NON_FINITE = 20  # updates in a row


class DivergedError(Exception):
    """Loss or gradients were not finite many times in a row; no such update has been applied."""


class Updater:
    """Applies one learning thread's gradients and writes its TensorBoard run. Owns the episodes since its last point."""

    def __init__(self, config: Config, model: GlobalModel, progress: Progress, summaries: Summaries | None) -> None:
        self._config, self._model, self._progress, self._summaries = config, model, progress, summaries
        self._episodes: list[Episode] = []
        self._non_finite = 0

    def count(self, steps: int, episodes: Sequence[Episode], faults: Sequence[str]) -> None:
        """Counts what has been played and is about to be learned from."""
        scores = [episode.score for episode in episodes]
        self._progress.add_steps(steps, steps * self._config.frame_skip, scores, faults)
        self._episodes.extend(episodes)

    def apply(self, gradients: Gradients) -> None:
        """Applies finite gradients to the global model; raises DivergedError when too many in a row are not."""
        if gradients.finite:
            self._non_finite = 0
            rate = self._config.learning_rate.at(self._progress.frames, self._config.frames)
            before = self._model.apply(gradients.gradients, rate)
            lag = max(0, before - gradients.version)  # a restarted server may be behind its hosts
            self._progress.add_update(gradients.metrics["Losses/Entropy"], lag)
        else:
            self._skip()
        self._write(gradients)

    def _skip(self) -> None:
        self._non_finite += 1
        self._progress.add_steps(0, 0, (), ["non_finite_update"])
        if self._non_finite >= MAX_NON_FINITE:
            raise DivergedError(
                f"the last {MAX_NON_FINITE} losses or gradients were not finite and none was applied; "
                "a smaller --learning-rate or --reward-scale is the usual cure"
            )

    def _write(self, gradients: Gradients) -> None:
        if self._summaries is None:
            self._episodes.clear()
            return
        if not self._summaries.due():
            return
        self._summaries.scalars({**gradients.metrics, **played_scores(self._episodes)}, self._progress.frames)
        self._episodes.clear()


def played_scores(episodes: Sequence[Episode]) -> dict[str, float]:
    """Returns the means of finished episodes by TensorBoard tag, nothing where there are none."""
    if not episodes:
        return {}
    return {
        "Perf/Reward": float(np.mean([episode.score for episode in episodes])),
        "Perf/Length": float(np.mean([episode.length for episode in episodes])),
        "Perf/Value": float(np.mean([episode.value for episode in episodes])),
    }
