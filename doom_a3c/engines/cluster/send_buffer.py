"""Buffers of a host of the cluster engine, which turn its workers' gradients or rollouts into pushes."""

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
    """A buffer of unsent pushes."""

    def take_push(self) -> Push:
        """Waits for the next push; called after the answer to the last one. Raises ClosedError after `close`."""

    def close(self) -> None:
        """Raises ClosedError in all waiting threads."""


class GradientAccumulator:
    """Sums the gradients of all workers until they are pushed. Owns the sum and its statistics.

    A worker waits for the answer to its push, so that its next rollout uses weights that include its last update. While the
    sum has too few rollouts for a push, the worker plays on.
    """

    def __init__(self, rollouts: int, rollouts_each: int) -> None:
        """A push needs the gradients of `rollouts` rollouts or more; each `apply` adds `rollouts_each`."""
        self._enough, self._each = rollouts, rollouts_each
        self._changed = threading.Condition()
        self._flat = Graph(flatten, ())
        self._closed = False
        self._taken = self._answered = 0  # pushes; at most one is unanswered
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
        """Counts steps, episodes and faults for the next push; actions are not sent."""
        with self._changed:
            self._steps += stats.steps
            self._frames += stats.frames
            self._episodes.extend(stats.counted)
            self._faults.extend(stats.faults)
            self._reward_sums = self._reward_sums.merge(stats.reward_sums)

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Adds gradients, and waits for the answer to their push, if it is complete."""
        push = self.add(gradients, version)

        def is_free() -> bool:
            incomplete = self._taken < push and self._rollouts < self._enough
            return self._closed or self._answered >= push or incomplete

        with self._changed:
            self._changed.wait_for(is_free)
        return True

    def log(self, update: Update) -> None:
        """Does nothing: the driver logs from the pushes."""

    def add(self, gradients: Gradients, version: int) -> int:
        """Adds gradients of rollouts played with weights of this version; returns the number of their push."""
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

    def take_push(self) -> Push:
        """Marks the last push as answered, waits until the sum is large enough, and returns it as the next push."""
        with self._changed:
            self._answered = self._taken
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._rollouts >= self._enough)
            if self._closed:
                raise ClosedError
            assert self._version is not None  # the sum has rollouts
            episodes = self._episodes
            stats = RolloutStats(self._steps, self._frames, episodes, episodes, self._faults, self._reward_sums)
            push = make_push(self._version, stats)
            push["gradients"], push["not_finite"] = self._sum, self._not_finite
            push["metrics"] = self._metrics._asdict() if self._metrics else {}
            self._clear()
            self._taken += 1
            return push

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class RolloutBuffer:
    """Queues the rollouts of all workers."""

    def __init__(self, capacity: int) -> None:
        self._channel: Channel[Push] = Channel(capacity)

    def put(self, played: VersionedRollout) -> None:
        """Adds a rollout, waiting while the buffer is full."""
        rollout, version, stats = played
        push = make_push(version, stats)
        push["rollout"] = {**rollout._asdict(), "core_state": tuple(map(np.asarray, rollout.core_state))}
        self._channel.put(push)

    def take_push(self) -> Push:
        """Waits for a rollout; returns the oldest as a push."""
        return self._channel.take(1, 1)[0]

    def close(self) -> None:
        self._channel.close()


def _pack(episode: Episode) -> tuple[float, int, float, int, float]:
    """Returns the fields of an episode without the rivals of a match, with 0 for a mean value that is not finite.

    One observation that is not finite spoils the values of its episode, but the server would refuse the whole push.
    """
    return episode._replace(value=episode.value if math.isfinite(episode.value) else 0.0)[:5]


def make_push(version: int, stats: RolloutStats) -> Push:
    """Makes a push without gradients and rollout; turns episodes without a finite score into faults.

    The server counts episodes in the order of their starts, and so a little later than they end.
    """
    scored = [episode for episode in stats.counted if math.isfinite(episode.score)]
    lost = len(stats.counted) - len(scored)
    return {
        "version": version,
        "steps": stats.steps,
        "frames": stats.frames,
        "episodes": [_pack(episode) for episode in scored],
        "faults": [*stats.faults, *([NO_SCORE] * lost)],
        "reward_sums": list(stats.reward_sums),
        "rollout": None,
        "gradients": None,
        "not_finite": 0,
        "metrics": {},
        "push_seconds": 0.0,
        "gifs": [],
    }
