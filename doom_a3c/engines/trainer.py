"""Learning from rollouts that others have played."""

from __future__ import annotations

from typing import NamedTuple

from doom_a3c.config import Config, batch_limits, spent
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.updates import Updater
from doom_a3c.learner import Learner
from doom_a3c.model import GlobalModel
from doom_a3c.networks import ACNetwork
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Episode, Rollout, concatenated


class Played(NamedTuple):
    """A whole rollout with the episodes that ended in it."""

    rollout: Rollout
    version: int  # of the oldest weights that played in it
    episodes: list[Episode]
    faults: list[str]


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
    ) -> None:
        self._config, self._model, self._network = config, model, network
        self._progress, self._updater, self._rollouts = progress, updater, rollouts
        self.batch = 0  # decisions in the newest update

    def run(self) -> None:
        """Learns until a budget is used up; raises ClosedError when the channel of rollouts is closed before."""
        config, learner = self._config, Learner(self._network, self._config)
        low, high = batch_limits(config)
        while not spent(config, self._progress):
            batches, versions = [], []
            for _ in range(config.accumulate):
                played = self._rollouts.take(low, high)
                for rollout in played:
                    self._updater.count(rollout.rollout.actions.size, rollout.episodes, rollout.faults)
                batches.append(concatenated([one.rollout for one in played]))
                versions.append(min(one.version for one in played))
            self.batch = sum(batch.actions.size for batch in batches)
            self._model.pull(self._network)
            self._updater.apply(learner.gradients(batches, min(versions), self._progress.frames))
