"""The queue engine (GA3C, Babaeizadeh et al. 2017, arXiv:1611.06256): games, predictions and learning on separate threads.

    game thread ---- observations ----> requests ---> predictor thread (all that wait, in one call of the network)
        ^------ decisions --------------------------------------'
    game thread ---- whole rollouts --> rollouts ---> trainer thread ---> global model ---> the predictors' networks

Both queues are bounded: games wait when learning falls behind. The weights change while a rollout is being played, which
the trainers correct with V-trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array, Distribution
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Decider, Decision, Policy
from doom_a3c.agent.rollouts import VersionedRollout, join_states
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.local import LocalEngine
from doom_a3c.engines.thread_group import Loop, ThreadGroup
from doom_a3c.engines.threads import MakeActor, MakeNetwork
from doom_a3c.engines.trainer import Trainer
from doom_a3c.engines.update_log import UpdateLog
from doom_a3c.engines.updates import SharedStepSize, Updater
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.config import Config


class Request(NamedTuple):
    """Observations of one game thread's games, and the channel for the decision."""

    observations: Observations  # [B, ...]
    resets: Array  # [B]
    core_state: CoreState  # arrays [B, size]
    answer: Channel[Decision]


class Queues(NamedTuple):
    """The queues between the threads."""

    requests: Channel[Request]
    rollouts: Channel[VersionedRollout]


def make_queues(config: Config) -> Queues:
    """Makes queues of the sizes in the settings."""
    return Queues(Channel(config.worker_count), Channel(config.queue_size))


class QueueMetrics(NamedTuple):
    """Lengths of the queues, and sizes of the newest batches."""

    requests: int
    rollouts: int
    prediction_batch: int  # observations
    training_batch: int  # steps


class RemotePolicy:
    """Decides for one game thread by asking the predictors and waiting for the answer. Owns the channel of its answers."""

    def __init__(
        self, requests: Channel[Request], distribution: Distribution, initial_state: Callable[[int], CoreState]
    ) -> None:
        self.distribution, self.initial_state = distribution, initial_state
        self.answers: Channel[Decision] = Channel(1)
        self._requests = requests

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> Decision:
        """Returns the decision about observations [B, ...] with resets [B]."""
        self._requests.put(Request(observations, resets, core_state, self.answers))
        return self.answers.take(1, 1)[0]


def play_rollouts(
    index: int,
    make_actor: MakeActor,
    policy: Decider,
    put: Callable[[VersionedRollout], None],
    stop: threading.Event,
    pull: Callable[[], None] = lambda: None,
) -> None:
    """Plays whole rollouts and puts them into a queue until the stop event is set; `pull` runs before each.

    Raises:
        ClosedError: if the queue is closed earlier.
    """
    actor = make_actor(index, policy)
    try:
        while not stop.is_set():
            pull()
            put(actor.play_rollout())
    finally:
        actor.close()


class Predictor:
    """Answers all waiting requests in one call of the network, with the newest weights. Owns its network."""

    def __init__(self, model: GlobalModel, network: ACNetwork, requests: Channel[Request], game_threads: int) -> None:
        self._model, self._network, self._requests, self._most = model, network, requests, game_threads
        self.batch = 0  # observations in the newest call

    def run(self) -> None:
        """Answers until the channel of requests is closed; then raises ClosedError."""
        policy = Policy(self._network)
        self._model.pull(self._network)
        while True:
            requests = self._requests.take(1, self._most)
            if self._network.version != self._model.version:
                self._model.pull(self._network)
            observations = _join([request.observations for request in requests])
            core_state = join_states([request.core_state for request in requests])
            resets = np.concatenate([request.resets for request in requests])
            decision = policy(observations, resets, core_state)
            self.batch = len(resets)
            start = 0
            for request in requests:
                rows = slice(start, start + len(request.resets))
                request.answer.put(_take_rows(decision, rows) if len(requests) > 1 else decision)
                start = rows.stop


def _join(observations: Sequence[Observations]) -> Observations:
    if len(observations) == 1:
        return observations[0]
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *observations)


def _take_rows(decision: Decision, rows: slice) -> Decision:
    core_state = tuple(state[rows] for state in decision.core_state)
    return Decision(decision.logits[rows], decision.values[rows], core_state, decision.version)


def _measure(queues: Queues, predictors: Sequence[Predictor], trainers: Sequence[Trainer]) -> QueueMetrics:
    """Returns the lengths of the queues, and the largest of the newest batches."""
    return QueueMetrics(
        len(queues.requests),
        len(queues.rollouts),
        max(predictor.batch for predictor in predictors),
        max(trainer.batch for trainer in trainers),
    )


def make_queue_engine(
    *,
    config: Config,
    model: GlobalModel,
    make_actor: MakeActor,
    make_network: MakeNetwork,
    progress: Progress,
    logs: Sequence[UpdateLog | None],
    unblock: Callable[[], None],
    queues: Queues,
) -> LocalEngine:
    """Makes an engine with one trainer per entry of `logs`.

    `unblock` frees game threads that wait for a hanging game.
    """
    stop, network = threading.Event(), model.network
    count, step_size = config.worker_count, SharedStepSize.from_config(config, len(logs))
    policies = [RemotePolicy(queues.requests, network.distribution, network.initial_state) for _ in range(count)]
    predictors = [
        Predictor(model, make_network(f"predictor_{index}"), queues.requests, len(policies))
        for index in range(config.predictors)
    ]
    updaters = [Updater(config, model, progress, step_size, log) for log in logs]
    trainers = [
        Trainer(config, model, make_network(f"trainer_{index}"), progress, updater, queues.rollouts, index)
        for index, updater in enumerate(updaters)
    ]
    loops: dict[str, Loop] = {
        f"games_{index}": partial(play_rollouts, index, make_actor, policy, queues.rollouts.put, stop)
        for index, policy in enumerate(policies)
    }
    loops |= {f"predictor_{index}": predictor.run for index, predictor in enumerate(predictors)}
    loops |= {f"trainer_{index}": trainer.run for index, trainer in enumerate(trainers)}

    def close() -> None:
        stop.set()
        queues.requests.close()
        queues.rollouts.close()
        for policy in policies:
            policy.answers.close()

    threads, metrics = ThreadGroup(loops, close, unblock), partial(_measure, queues, predictors, trainers)
    return LocalEngine(threads, model, progress, step_size, metrics)
