"""The threads engine, A3C itself: each worker thread plays, computes gradients and applies them to the global network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.learner import Gradients, Learner
from doom_a3c.agent.model import GlobalModel, SharedNetwork
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Decider, Policy
from doom_a3c.agent.rollouts import Actor, make_blank_rollout
from doom_a3c.engines.local import LocalEngine
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.updates import SharedStepSize, Updater, Updates

if TYPE_CHECKING:
    from doom_a3c.engines.update_log import UpdateLog
    from doom_a3c.record.metrics.progress import Progress
    from doom_a3c.settings.config import Config, ProgressCounts

MakeActor = Callable[[int, Decider], Actor]  # from a worker's index and its policy
MakeNetwork = Callable[[str], ACNetwork]  # from a name; the weights do not matter


class Worker:
    """A worker with its own local network, games and core state."""

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
        """`counts` belong to the whole run."""
        self._index, self._config, self._model, self._network = index, config, model, network
        self._make_actor, self._counts, self._updates, self._stop_event = make_actor, counts, updates, stop

    def run(self, example: Observations | None = None) -> None:
        """Trains until a budget is used up or the engine stops; with an `example`, compiles while the games start."""
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
        """Compiles acting and learning, which takes seconds, while the games are starting."""
        start = policy.initial_state(self._config.envs_per_worker)
        blank = make_blank_rollout(observations, self._config.rollout_length, start, policy.distribution)
        policy(observations, blank.resets[0], blank.core_state)
        batch = learner.prepare(blank)
        dealt = np.array_split(np.arange(batch.sequences), self._config.minibatch_count)
        for size in {len(hand) for hand in dealt}:
            learner.compute_gradients([batch.select(np.arange(size))], 0)

    def _update(self, actor: Actor, learner: Learner) -> None:
        """Pulls, plays `accumulate` rollouts, and makes all updates from them: one in A3C."""
        self._model.pull(self._network)
        batches, versions = [], []
        for _ in range(self._config.accumulate):
            played = actor.play_rollout()
            if self._stop_event.is_set():  # by a limit, a signal or an error: the rollout is dropped
                return
            self._updates.count(played.stats, played.rollout.actions)
            batches.append(learner.prepare(played.rollout))
            versions.append(played.version)

        def apply(gradients: Gradients, last: bool) -> bool:
            continues = self._updates.apply(gradients, min(versions), last)
            return continues and (last or not self._is_stopped())

        pull = partial(self._model.pull, self._network)
        if update := learner.learn(batches, lambda: self._counts.frames, apply, pull):
            self._updates.log(update)

    def _is_stopped(self) -> bool:
        """Returns whether to stop between two updates; the rollout that uses up a budget still makes all of its updates."""
        return self._stop_event.is_set() and not self._config.exhausted_budget(self._counts)


def make_threads_engine(
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
    """Makes an engine with one worker per entry of `logs`.

    `unblock` frees workers that wait for a hanging game; `example` has the shape of the observations of a worker's games.
    """
    stop, step_size = threading.Event(), SharedStepSize.from_config(config, len(logs))
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
