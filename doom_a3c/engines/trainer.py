"""Learning from rollouts that others have played."""

from __future__ import annotations

from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rollouts import Played, concatenated
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.updates import Updater, learn
from doom_a3c.record.progress import Progress
from doom_a3c.settings.config import Config
from doom_a3c.settings.derived import batch_limits, spent


class Trainer:
    """Learns from whole rollouts, as many as wait, within the limits of a batch. Owns its network."""

    def __init__(
        self,
        config: Config,
        model: GlobalModel,
        network: ACNetwork,
        progress: Progress,
        updater: Updater,
        rollouts: Channel[Played],
        index: int,
    ) -> None:
        self._index, self._config, self._model, self._network = index, config, model, network
        self._progress, self._updater, self._rollouts = progress, updater, rollouts
        self.batch = 0  # steps taken at once the last time

    def run(self) -> None:
        """Learns until a budget is used up; raises ClosedError when the channel of rollouts is closed before."""
        config, learner = self._config, Learner(self._network, self._config, self._index)
        low, high = batch_limits(config)
        while not spent(config, self._progress):
            rollouts = []
            for _ in range(config.accumulate):
                taken = self._rollouts.take(low, high)
                rollouts.append(taken)
                for played in taken:
                    self._updater.count(played.stats, played.rollout.actions)
            self.batch = sum(played.stats.steps for taken in rollouts for played in taken)
            self._model.pull(self._network)
            batches = [learner.prepare(concatenated([played.rollout for played in taken])) for taken in rollouts]
            version = min(played.version for taken in rollouts for played in taken)
            for _ in learn(batches, version, learner, self._network, self._model, self._updater, self._progress):
                if self._rollouts.closed and not spent(config, self._progress):  # at its budget a run learns from all
                    return
