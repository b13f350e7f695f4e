"""The threads engine, A3C itself: worker threads that each play, compute gradients and apply them to the global network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from doom_a3c.config import Config, spent
from doom_a3c.engines.crew import Crew
from doom_a3c.learner import Gradients, Learner
from doom_a3c.model import SharedNetwork
from doom_a3c.networks import ACNetwork
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Actor, Decide, Episode, Policy, Rollout, blank_rollout


class Updates(Protocol):
    """Where a worker's gradients go."""

    def count(self, steps: int, episodes: Sequence[Episode], faults: Sequence[str]) -> None:
        """Counts what has been played and is about to be learned from."""

    def apply(self, gradients: Gradients) -> None:
        """Applies gradients to the global model, or sees to it that they are."""


class Worker:
    """One worker: its own local network, games and recurrent state. It names them by its index."""

    def __init__(
        self,
        index: int,
        *,
        config: Config,
        model: SharedNetwork,
        network: ACNetwork,
        make_actor: Callable[[int, Decide], Actor],
        progress: Progress,
        updates: Updates,
        stop: threading.Event,
        example: Any = None,
    ) -> None:
        """`example` are observations of all its games, from which it can compile ahead of their start."""
        self.index, self._example = index, example
        self._config, self._model, self._network, self._make_actor = config, model, network, make_actor
        self._progress, self._updates, self._stop_event = progress, updates, stop

    def run(self) -> None:
        """Trains until a budget is used up or it is told to stop."""
        policy, learner = Policy(self._network), Learner(self._network, self._config)
        if self._example is not None:
            self._compile(policy, learner, self._example)
        actor = self._make_actor(self.index, policy)
        try:
            while not self._stop_event.is_set() and not spent(self._config, self._progress):
                self._update(actor, learner)
        finally:
            actor.close()

    def _compile(self, policy: Policy, learner: Learner, observations: Any) -> None:
        """Has TensorFlow compile what acting and learning take, which needs seconds, while the games are starting."""
        blank = blank_rollout(observations, self._config.rollout_length, policy.initial_state(self._config.games))
        policy(observations, blank.resets[0], blank.core_state)
        learner.gradients([blank], 0, 0)

    def _update(self, actor: Actor, learner: Learner) -> None:
        """Pull, play, learn, apply: one update of A3C."""
        version = self._model.pull(self._network)
        rollouts: list[Rollout] = []
        for _ in range(self._config.accumulate):
            rollouts.append(actor.rollout())
            if self._stop_event.is_set():  # what ended the run is what it reports: a rollout under way then is dropped
                return
            self._updates.count(rollouts[-1].actions.size, *actor.take())
        self._updates.apply(learner.gradients(rollouts, version, self._progress.frames))


class ThreadsEngine(Crew):
    """Runs the workers, each on a thread of its own."""

    def __init__(self, workers: Sequence[Worker], stop: threading.Event, unblock: Callable[[], None]) -> None:
        super().__init__({f"worker_{worker.index}": worker.run for worker in workers}, stop.set, unblock)
