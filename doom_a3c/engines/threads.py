"""The threads engine, A3C itself: worker threads that each play, compute gradients and apply them to the global network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from doom_a3c.agent.learner import Gradients, Learner
from doom_a3c.agent.model import GlobalModel, SharedNetwork
from doom_a3c.agent.networks import ACNetwork, Observations
from doom_a3c.agent.policy import Decider, Policy
from doom_a3c.agent.rollouts import Actor, blank_rollout
from doom_a3c.engines.local import LocalEngine
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.updates import SharedStepSize, Updater, Updates

if TYPE_CHECKING:
    from doom_a3c.engines.update_log import UpdateLog
    from doom_a3c.record.metrics.progress import Progress
    from doom_a3c.settings.config import Config, ProgressCounts

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
        counts: ProgressCounts,
        updates: Updates,
        stop: threading.Event,
    ) -> None:
        """`counts` are the whole run's."""
        self._index, self._config, self._model, self._network = index, config, model, network
        self._make_actor, self._counts, self._updates, self._stop_event = make_actor, counts, updates, stop

    def run(self, example: Observations | None = None) -> None:
        """Trains until a budget is used up or the engine stops; compiles ahead of the games for an `example` of theirs."""
        policy, learner = Policy(self._network), Learner(self._network, self._config, self._index)
        if example is not None:
            self._compile(policy, learner, example)
        actor = self._make_actor(self._index, policy)
        try:
            while not self._stop_event.is_set() and not self._config.exhausted_budget(self._counts):
                self._update(actor, learner)
        finally:
            actor.close()

    def _compile(self, policy: Policy, learner: Learner, observations: Observations) -> None:
        """Has TensorFlow compile acting and learning, which takes seconds, while the games are starting."""
        start = policy.initial_state(self._config.envs_per_worker)
        blank = blank_rollout(observations, self._config.rollout_length, start, policy.distribution)
        policy(observations, blank.resets[0], blank.core_state)
        batch = learner.prepare(blank)
        dealt = np.array_split(np.arange(batch.games), self._config.minibatch_count)
        for size in {len(games) for games in dealt}:
            learner.gradients([batch.select_games(np.arange(size))], 0)

    def _update(self, actor: Actor, learner: Learner) -> None:
        """Pull, play, learn, apply: an update of A3C, or all that are made from a rollout."""
        self._model.pull(self._network)
        batches, versions = [], []
        for _ in range(self._config.accumulate):
            played = actor.rollout()
            if self._stop_event.is_set():  # nothing is counted after the end of a run: its last rollout is dropped
                return
            self._updates.count(played.stats, played.rollout.actions)
            batches.append(learner.prepare(played.rollout))
            versions.append(played.version)

        def apply(gradients: Gradients, last: bool) -> bool:
            going_on = self._updates.apply(gradients, min(versions), last)
            return going_on and (last or not self._is_stopped())

        pull = partial(self._model.pull, self._network)
        if update := learner.learn(batches, lambda: self._counts.frames, apply, pull):
            self._updates.log(update)

    def _is_stopped(self) -> bool:
        """Tells whether the run was stopped: at the end of its budget it learns from its last rollout in full."""
        return self._stop_event.is_set() and not self._config.exhausted_budget(self._counts)


def threads_engine(
    *,
    config: Config,
    model: GlobalModel,
    make_actor: MakeActor,
    make_network: MakeNetwork,
    progress: Progress,
    logs: Sequence[UpdateLog | None],
    unblock: Callable[[], None],
    example: Observations | None = None,
) -> LocalEngine:
    """Returns an engine with a worker for each of the `logs`.

    `unblock` frees workers that wait for a game that does not answer; `example` holds observations of a worker's games.
    """
    stop, step_size = threading.Event(), SharedStepSize.of(config, len(logs))
    loops = {}
    for index, log in enumerate(logs):
        name = f"worker_{index}"
        worker = Worker(
            index,
            config=config,
            model=model,
            network=make_network(name),
            make_actor=make_actor,
            counts=progress,
            updates=Updater(config, model, progress, step_size, log),
            stop=stop,
        )
        loops[name] = partial(worker.run, example)
    return LocalEngine(ThreadGroup(loops, stop.set, unblock), model, progress, step_size)
