"""The queue engine (GA3C, Babaeizadeh et al. 2017, arXiv:1611.06256): games, predictions and learning on threads apart.

    game thread ---- observations ----> requests ---> predictor thread (all that wait, in one call of the network)
        ^------ logits, values, core state --------------------'
    game thread ---- whole rollouts --> rollouts ---> trainer thread ---> global model ---> the predictors' networks

Both queues are bounded: games wait when the learning cannot follow. The weights change under a rollout that is being
played, so trainers correct it by V-trace.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from doom_a3c.config import Config
from doom_a3c.engines.channel import Channel, ClosedError
from doom_a3c.engines.crew import Crew
from doom_a3c.engines.trainer import Played, Trainer
from doom_a3c.engines.updates import Updater
from doom_a3c.model import GlobalModel
from doom_a3c.networks import ACNetwork, CoreState
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Actor, Array, Decide, Policy, joined_states
from doom_a3c.summaries import Summaries


class Answer(NamedTuple):
    """What the network says about the observations of one request."""

    logits: Array  # [B, A]
    values: Array  # [B]
    core_state: CoreState  # each [B, core_size]
    version: int  # of the weights


class Request(NamedTuple):
    """Observations of one game thread's games, and where their answer goes."""

    observations: Any  # [B, ...]
    resets: Array  # [B]
    core_state: CoreState  # each [B, core_size]
    answer: Channel[Answer]


class RemotePolicy:
    """Decides for one game thread by asking the predictors. Owns the channel of its answers; the thread waits for each."""

    def __init__(self, requests: Channel[Request], initial_state: Callable[[int], CoreState]) -> None:
        self.initial_state = initial_state
        self.answers: Channel[Answer] = Channel(1)
        self._requests, self._oldest = requests, 0

    def __call__(self, observations: Any, resets: Array, core_state: CoreState) -> tuple[Array, Array, CoreState]:
        """Returns logits [B, A], values [B] and the next core state."""
        self._requests.put(Request(observations, resets, core_state, self.answers))
        (answer,) = self.answers.take(1, 1)
        self._oldest = min(self._oldest, answer.version)
        return answer.logits, answer.values, answer.core_state

    def take_oldest_version(self, newest: int) -> int:
        """Returns the oldest version that has answered since the last call, and starts again from `newest`."""
        oldest, self._oldest = self._oldest, newest
        return oldest


class QueueEngine(Crew):
    """Runs game, predictor and trainer threads. Owns the two queues between them."""

    def __init__(
        self,
        *,
        config: Config,
        model: GlobalModel,
        games: Sequence[Callable[[Decide], Actor]],
        make_network: Callable[[str], ACNetwork],
        progress: Progress,
        summaries: Sequence[Summaries | None],
        unblock: Callable[[], None],
    ) -> None:
        """`games` makes the actor of each game thread, `make_network` a local network; `summaries` are the trainers'."""
        self._config, self._model, self._progress = config, model, progress
        self._requests: Channel[Request] = Channel(len(games))
        self._rollouts: Channel[Played] = Channel(config.queue_size)
        self._policies = [RemotePolicy(self._requests, model.network.initial_state) for _ in games]
        self._channels: list[Channel[Any]] = [self._requests, self._rollouts, *(p.answers for p in self._policies)]
        self._stopping = threading.Event()
        self._prediction_batch = 0
        self._trainers: list[Trainer] = []
        loops: dict[str, Callable[[], None]] = {}
        for index, (make_actor, policy) in enumerate(zip(games, self._policies, strict=True)):
            loops[f"games_{index}"] = self._until_closed(self._play, make_actor, policy)
        for index in range(config.predictors):
            loops[f"predictor_{index}"] = self._until_closed(self._predict, make_network(f"predictor_{index}"))
        for index, run in enumerate(summaries):
            name, updater = f"trainer_{index}", Updater(config, model, progress, run)
            self._trainers.append(Trainer(config, model, make_network(name), progress, updater, self._rollouts))
            loops[name] = self._until_closed(self._trainers[-1].run)
        super().__init__(loops, self._close, unblock)

    def _close(self) -> None:
        self._stopping.set()
        for channel in self._channels:
            channel.close()

    def _until_closed(self, loop: Callable[..., None], *arguments: Any) -> Callable[[], None]:
        def run() -> None:
            with contextlib.suppress(ClosedError):
                loop(*arguments)

        return run

    def metrics(self) -> dict[str, float]:
        """Returns the queue lengths and the sizes of the newest batches, for TensorBoard."""
        return {
            "Queue/Requests": float(len(self._requests)),
            "Queue/Rollouts": float(len(self._rollouts)),
            "Queue/Prediction Batch": float(self._prediction_batch),
            "Queue/Training Batch": float(max(trainer.batch for trainer in self._trainers)),
        }

    def _play(self, make_actor: Callable[[Decide], Actor], policy: RemotePolicy) -> None:
        """A game thread: plays rollouts and queues them whole."""
        actor = make_actor(policy)
        try:
            while not self._stopping.is_set():
                policy.take_oldest_version(self._model.version)
                rollout = actor.rollout()
                self._rollouts.put(Played(rollout, policy.take_oldest_version(0), *actor.take()))
        finally:
            actor.close()

    def _predict(self, network: ACNetwork) -> None:
        """A predictor thread: answers all requests that wait in one call, with the newest weights."""
        policy, version = Policy(network), -1
        while True:
            requests = self._requests.take(1, len(self._policies))
            if version != self._model.version:
                version = self._model.pull(network)
            observations = _joined([request.observations for request in requests])
            core_state = joined_states([request.core_state for request in requests])
            resets = np.concatenate([request.resets for request in requests])
            logits, values, core_state = policy(observations, resets, core_state)
            self._prediction_batch = len(resets)
            start = 0
            for request in requests:
                rows = slice(start, start + len(request.resets))
                share = core_state if len(requests) == 1 else tuple(state[rows] for state in core_state)
                request.answer.put(Answer(logits[rows], values[rows], share, version))
                start = rows.stop


def _joined(observations: Sequence[Any]) -> Any:
    if len(observations) == 1:
        return observations[0]
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *observations)
