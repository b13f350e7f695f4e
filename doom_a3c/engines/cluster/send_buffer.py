"""The pushes of a host of the cluster engine, made from its workers' gradients or rollouts, until they are sent."""

from __future__ import annotations

import math
import threading
from typing import Protocol

import numpy as np

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.graphs import Graph
from doom_a3c.agent.learner import Gradients, LearnerMetrics, Update
from doom_a3c.agent.model import Vector, flatten
from doom_a3c.agent.player import Episode
from doom_a3c.agent.rollouts import RolloutStats, VersionedRollout
from doom_a3c.algorithm.running_moments import NO_MOMENTS
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.cluster.messages import Push
from doom_a3c.engines.thread_group import ClosedError
from doom_a3c.record.metrics.progress import NO_SCORE


class SendBuffer(Protocol):
    """Pushes that wait to be sent."""

    def next_push(self) -> Push:
        """Returns the next push when there is one, once the last has been answered; raises ClosedError after `close`."""

    def close(self) -> None:
        """Wakes everyone with ClosedError."""


class GradientAccumulator:
    """Gradients of all workers, added up until they are pushed. Owns the sum and the counts of the steps behind it.

    A worker waits for the answer to its push, as its next rollout is to be played with weights that hold its last update.
    Where the sum is not yet large enough for a push, it plays on.
    """

    def __init__(self, rollouts: int, rollouts_each: int) -> None:
        """A push has gradients of `rollouts` at least; each that is applied here has those of `rollouts_each`."""
        self._enough, self._each = rollouts, rollouts_each
        self._changed = threading.Condition()
        self._flat = Graph(flatten, ())
        self._closed = False
        self._taken = self._answered = 0  # pushes; one at most is between
        self._clear()

    def _clear(self) -> None:
        self._sum: Vector | None = None
        self._rollouts = self._not_finite = self._steps = self._frames = 0
        self._version: int | None = None
        self._episodes: list[Episode] = []
        self._faults: list[str] = []
        self._reward_sums = NO_MOMENTS
        self._metrics: LearnerMetrics | None = None

    def count(self, stats: RolloutStats, actions: Actions) -> None:
        """Counts steps, episodes and faults for the next push; actions do not travel."""
        with self._changed:
            self._steps += stats.steps
            self._frames += stats.frames
            self._episodes.extend(stats.episodes)
            self._faults.extend(stats.faults)
            self._reward_sums = self._reward_sums.merged(stats.reward_sums)

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Adds gradients, and returns when their push has been answered, or is not complete yet."""
        push = self.add(gradients, version)

        def may_go_on() -> bool:
            incomplete = self._taken < push and self._rollouts < self._enough
            return self._closed or self._answered >= push or incomplete

        with self._changed:
            self._changed.wait_for(may_go_on)
        return True

    def log(self, update: Update) -> None:
        """Does nothing: the driver logs from the pushes."""

    def add(self, gradients: Gradients, version: int) -> int:
        """Adds gradients of rollouts played with that version; returns the number of their push."""
        vector = np.asarray(self._flat(list(gradients.gradients))) if gradients.finite else None
        with self._changed:
            if vector is None:
                self._not_finite += 1
            else:
                self._sum = vector if self._sum is None else self._sum + vector
                self._metrics = gradients.metrics
            self._version = version if self._version is None else min(self._version, version)
            self._rollouts += self._each
            self._changed.notify_all()
            return self._taken + 1

    def next_push(self) -> Push:
        """Returns the sum as a push, and begins a new one. The push before it has been answered."""
        with self._changed:
            self._answered = self._taken
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._rollouts >= self._enough)
            if self._closed:
                raise ClosedError
            assert self._version is not None  # there are rollouts
            stats = RolloutStats(self._steps, self._frames, self._episodes, self._faults, self._reward_sums)
            push = _make_push(self._version, stats)
            push["gradients"], push["not_finite"] = self._sum, self._not_finite
            push["metrics"] = self._metrics._asdict() if self._metrics else {}
            self._clear()
            self._taken += 1
            return push

    def close(self) -> None:
        """Wakes every waiting thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class RolloutBuffer:
    """Whole rollouts of all workers, in order."""

    def __init__(self, capacity: int) -> None:
        self._channel: Channel[Push] = Channel(capacity)

    def put(self, played: VersionedRollout) -> None:
        """Adds a rollout, waiting while the buffer is full."""
        rollout, version, stats = played
        push = _make_push(version, stats)
        push["rollout"] = {**rollout._asdict(), "core_state": tuple(map(np.asarray, rollout.core_state))}
        self._channel.put(push)

    def next_push(self) -> Push:
        """Returns the oldest rollout as a push."""
        return self._channel.take(1, 1)[0]

    def close(self) -> None:
        """Wakes every waiting thread."""
        self._channel.close()


def _make_push(version: int, stats: RolloutStats) -> Push:
    """Returns a push with neither gradients nor a rollout; an episode without a finite score becomes a fault."""
    scored = [episode for episode in stats.episodes if math.isfinite(episode.score)]
    lost = len(stats.episodes) - len(scored)
    return {
        "version": version,
        "steps": stats.steps,
        "frames": stats.frames,
        "episodes": [tuple(episode) for episode in scored],
        "faults": [*stats.faults, *([NO_SCORE] * lost)],
        "reward_sums": list(stats.reward_sums),
        "rollout": None,
        "gradients": None,
        "not_finite": 0,
        "metrics": {},
        "push_seconds": 0.0,
        "gifs": [],
    }
