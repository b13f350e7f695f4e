"""The threads engine, A3C itself: worker threads that each play, compute gradients and apply them to the global network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel, SharedNetwork
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Decider, Policy
from doom_a3c.agent.rollouts import Actor, Played, blank_rollout
from doom_a3c.engines.engine import LocalEngine
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.updates import StepFactor, Updater, Updates, learn
from doom_a3c.record.loggers import Logger
from doom_a3c.record.progress import Progress
from doom_a3c.settings.config import Config, minibatch_count
from doom_a3c.settings.derived import Counts, spent

MakeActor = Callable[[int, Decider], Actor]  # of the worker with that index
MakeNetwork = Callable[[str], ACNetwork]  # of that name, with weights that do not matter


class Worker:
    """One worker: its own local network, games and recurrent state."""

    def __init__(
        self,
        index: int,
        *,
        config: Config,
        model: SharedNetwork,
        network: ACNetwork,
        make_actor: MakeActor,
        counts: Counts,
        updates: Updates,
        stop: threading.Event,
        example: Any = None,
        host: int = 0,
    ) -> None:
        """`counts` are the whole run's; `example` are observations of all its games, to compile ahead of their start."""
        self._index, self._host, self._example = index, host, example
        self._config, self._model, self._network, self._make_actor = config, model, network, make_actor
        self._counts, self._updates, self._stop_event = counts, updates, stop

    def run(self) -> None:
        """Trains until a budget is used up or it is told to stop."""
        policy, learner = Policy(self._network), Learner(self._network, self._config, self._index, self._host)
        if self._example is not None:
            self._compile(policy, learner, self._example)
        actor = self._make_actor(self._index, policy)
        try:
            while not self._stop_event.is_set() and not spent(self._config, self._counts):
                self._update(actor, learner)
        finally:
            actor.close()

    def _compile(self, policy: Policy, learner: Learner, observations: Any) -> None:
        """Has TensorFlow compile what acting and learning take, which needs seconds, while the games are starting."""
        start = policy.initial_state(self._config.games)
        blank = blank_rollout(observations, self._config.rollout_length, start, policy.distribution)
        policy(observations, blank.resets[0], blank.core_state)
        batch = learner.prepare(blank)
        dealt = np.array_split(np.arange(batch.games), minibatch_count(self._config))
        for size in {len(games) for games in dealt}:
            learner.gradients([batch.of(np.arange(size))], 0)

    def _update(self, actor: Actor, learner: Learner) -> None:
        """Pull, play, learn, apply: an update of A3C, or as many as are made from a rollout."""
        self._model.pull(self._network)
        rollouts: list[Played] = []
        for _ in range(self._config.accumulate):
            played = actor.rollout()
            if self._stop_event.is_set():  # what ended the run is what it reports: a rollout under way then is dropped
                return
            self._updates.count(played.stats, played.rollout.actions)
            rollouts.append(played)
        batches = [learner.prepare(played.rollout) for played in rollouts]
        version = min(played.version for played in rollouts)
        for _ in learn(batches, version, learner, self._network, self._model, self._updates, self._counts):
            if self._stop_event.is_set() and not spent(self._config, self._counts):  # at its budget a run ends the same way
                return


def threads_engine(
    *,
    config: Config,
    model: GlobalModel,
    make_actor: MakeActor,
    make_network: MakeNetwork,
    progress: Progress,
    loggers: Sequence[Logger | None],
    unblock: Callable[[], None],
    example: Any = None,
) -> LocalEngine:
    """Returns an engine with a worker for each of the `loggers`, which they log to.

    `unblock` frees workers that wait for a game that does not answer; for `example` see the worker.
    """
    stop, step_factor = threading.Event(), StepFactor.of(config, len(loggers))
    loops = {}
    for index, logger in enumerate(loggers):
        name = f"worker_{index}"
        worker = Worker(
            index,
            config=config,
            model=model,
            network=make_network(name),
            make_actor=make_actor,
            counts=progress,
            updates=Updater(config, model, progress, step_factor, logger),
            stop=stop,
            example=example,
        )
        loops[name] = worker.run
    return LocalEngine(ThreadGroup(loops, stop.set, unblock), model, progress, step_factor)
