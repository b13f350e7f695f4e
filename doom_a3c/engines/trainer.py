"""Learning from the rollouts of other threads or hosts."""

from __future__ import annotations

from functools import partial

from doom_a3c.agent.learner import Gradients, Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rollouts import VersionedRollout, concatenate
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.updates import Updater
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.config import Config


class Trainer:
    """Learns from waiting rollouts, within the limits of a batch. Owns its network."""

    def __init__(
        self,
        config: Config,
        model: GlobalModel,
        network: ACNetwork,
        progress: Progress,
        updater: Updater,
        rollouts: Channel[VersionedRollout],
        index: int,
    ) -> None:
        self._index, self._config, self._model, self._network = index, config, model, network
        self._progress, self._updater, self._rollouts = progress, updater, rollouts
        self.batch = 0  # steps in the newest batch

    def run(self) -> None:
        """Learns until a budget is used up; raises ClosedError if the channel of rollouts is closed earlier."""
        learner = Learner(self._network, self._config, self._index)
        while not self._config.exhausted_budget(self._progress):
            self._update(learner)

    def _update(self, learner: Learner) -> None:
        groups = [self._take() for _ in range(self._config.accumulate)]
        self.batch = sum(played.stats.steps for group in groups for played in group)
        version = min(played.version for group in groups for played in group)
        self._model.pull(self._network)
        batches = [learner.prepare(concatenate([played.rollout for played in group])) for group in groups]

        def apply(gradients: Gradients, last: bool) -> bool:
            continues = self._updater.apply(gradients, version, last)
            return continues and (last or not self._is_stopped())

        pull = partial(self._model.pull, self._network)
        if update := learner.learn(batches, lambda: self._progress.frames, apply, pull):
            self._updater.log(update)

    def _take(self) -> list[VersionedRollout]:
        """Takes waiting rollouts from the channel and counts them."""
        taken = self._rollouts.take(*self._config.batch_limits)
        for played in taken:
            self._updater.count(played.stats, played.rollout.actions)
        return taken

    def _is_stopped(self) -> bool:
        """Returns whether the run was stopped early; at the end of a budget the last rollouts still count fully."""
        return self._rollouts.closed and not self._config.exhausted_budget(self._progress)
