"""The threads engine, A3C itself: worker threads that each play, compute gradients and apply them to the global network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from doom_a3c.config import Config, learning_rate
from doom_a3c.learner import GlobalModel, Gradients, Learner
from doom_a3c.networks import ACNetwork
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Actor, Episode
from doom_a3c.summaries import Summaries

MAX_NON_FINITE = 20  # updates in a row


class DivergedError(Exception):
    """Loss or gradients were not finite many times in a row; no such update has been applied."""


class Worker(threading.Thread):
    """One worker: its own local network, games, recurrent state and TensorBoard run. It names them by its index."""

    def __init__(
        self,
        index: int,
        *,
        config: Config,
        model: GlobalModel,
        network: ACNetwork,
        make_actor: Callable[[int, ACNetwork], Actor],
        progress: Progress,
        summaries: Summaries | None,
        stop: threading.Event,
    ) -> None:
        super().__init__(name=f"worker_{index}", daemon=True)
        self.index = index
        self._config, self._model, self._network = config, model, network
        self._make_actor, self._progress, self._summaries, self._stop_event = make_actor, progress, summaries, stop
        self._episodes: list[Episode] = []
        self._non_finite = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Trains to the frame budget or until told to stop; an exception is kept in `error` and stops all workers."""
        actor = None
        try:
            actor = self._make_actor(self.index, self._network)
            learner = Learner(self._network, self._config)
            while not self._stop_event.is_set() and self._progress.frames < self._config.frames:
                self._update(actor, learner)
        except BaseException as error:
            self.error = error
            self._stop_event.set()
        finally:
            if actor is not None:
                actor.close()

    def _update(self, actor: Actor, learner: Learner) -> None:
        """Pull, play, learn, apply: one update of A3C."""
        version = self._model.pull(self._network)
        rollout = actor.rollout()
        if self._stop_event.is_set():  # what ended the run is what it reports: a rollout under way then is dropped
            return
        steps = rollout.actions.size
        episodes, faults = actor.take()
        self._progress.add_steps(steps, steps * self._config.frame_skip, [e.score for e in episodes], faults)
        gradients = learner.gradients(rollout, version)
        if gradients.finite:
            self._non_finite = 0
            before = self._model.apply(gradients.gradients, learning_rate(self._config, self._progress.frames))
            self._progress.add_update(gradients.metrics["Losses/Entropy"], before - version)
        else:
            self._skip()
        self._write(episodes, gradients)

    def _skip(self) -> None:
        self._non_finite += 1
        self._progress.add_steps(0, 0, (), ["non_finite_update"])
        if self._non_finite >= MAX_NON_FINITE:
            raise DivergedError(
                f"the last {MAX_NON_FINITE} losses or gradients of {self.name} were not finite and none was applied; "
                "a smaller --learning-rate or --reward-scale is the usual cure"
            )

    def _write(self, episodes: Sequence[Episode], gradients: Gradients) -> None:
        if self._summaries is None:
            return
        self._episodes.extend(episodes)
        if not self._summaries.due():
            return
        values: dict[str, float] = dict(gradients.metrics)
        if self._episodes:
            values["Perf/Reward"] = float(np.mean([e.score for e in self._episodes]))
            values["Perf/Length"] = float(np.mean([e.length for e in self._episodes]))
            values["Perf/Value"] = float(np.mean([e.value for e in self._episodes]))
        self._summaries.scalars(values, self._progress.frames)
        self._episodes.clear()


class ThreadsEngine:
    """Starts the workers, hands on the first error of any, and stops them. Owns the threads."""

    def __init__(self, workers: Sequence[Worker], stop: threading.Event, unblock: Callable[[], None]) -> None:
        """`unblock` frees threads that wait for a game for ever; it is called where stopping takes too long."""
        self._workers, self._stop_event, self._unblock = workers, stop, unblock

    def start(self) -> None:
        """Starts all workers."""
        for worker in self._workers:
            worker.start()

    def check(self) -> None:
        """Raises the first error that a worker ended with."""
        for worker in self._workers:
            if worker.error is not None:
                raise worker.error

    def stop(self, patience: float = 3.0) -> None:
        """Ends all workers; those that have not ended after `patience` seconds are unblocked. May be called twice."""
        self._stop_event.set()
        deadline = time.monotonic() + patience
        alive = [worker for worker in self._workers if worker.ident is not None]
        for worker in alive:
            worker.join(max(0.0, deadline - time.monotonic()))
        while any(worker.is_alive() for worker in alive) and time.monotonic() < deadline + patience:
            self._unblock()
            time.sleep(0.1)
