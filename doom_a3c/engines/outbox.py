"""What a host of the cluster engine sends to the parameter server, and where it waits until it is sent."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from doom_a3c.engines.channel import Channel, ClosedError
from doom_a3c.engines.messages import Push
from doom_a3c.graphs import Graph
from doom_a3c.learner import Gradients
from doom_a3c.model import Vector, flat
from doom_a3c.rollouts import Episode, Rollout


class Outbox(Protocol):
    """What waits to be pushed."""

    def take(self) -> Push:
        """Returns the next push when there is one, once the last has been answered; raises ClosedError after `close`."""

    def close(self) -> None:
        """Wakes everyone with ClosedError."""


class GradientSum:
    """Gradients of all workers, added up until they are pushed. Owns the sum and what has been counted meanwhile.

    A worker waits for the answer to its push, as its next rollout is to be played with weights that hold its last update.
    Where the sum is not yet large enough for a push, it plays on.
    """

    def __init__(self, rollouts: int, rollouts_each: int) -> None:
        """A push has gradients of `rollouts` at least; each that is applied here has those of `rollouts_each`."""
        self._enough, self._each = rollouts, rollouts_each
        self._changed = threading.Condition()
        self._flat = Graph(flat, ())
        self._closed = False
        self._taken = self._answered = 0  # pushes; one at most is between
        self._clear()

    def _clear(self) -> None:
        self._sum: Vector | None = None
        self._rollouts = self._not_finite = self._steps = 0
        self._version: int | None = None
        self._episodes: list[Episode] = []
        self._faults: list[str] = []
        self._metrics: Mapping[str, float] = {}

    def count(self, steps: int, episodes: Sequence[Episode], faults: Sequence[str]) -> None:
        """Counts what has been played; it travels with the next push."""
        with self._changed:
            self._steps += steps
            self._episodes.extend(episodes)
            self._faults.extend(faults)

    def apply(self, gradients: Gradients) -> None:
        """Adds gradients, and returns when their push has been answered, or is not complete yet."""
        push = self.add(gradients)

        def free() -> bool:
            incomplete = self._taken < push and self._rollouts < self._enough
            return self._closed or self._answered >= push or incomplete

        with self._changed:
            self._changed.wait_for(free)

    def add(self, gradients: Gradients) -> int:
        """Adds gradients; returns the number of the push that they will be in."""
        vector = np.asarray(self._flat(list(gradients.gradients))) if gradients.finite else None
        with self._changed:
            if vector is None:
                self._not_finite += 1
            else:
                self._sum = vector if self._sum is None else self._sum + vector
                self._metrics = gradients.metrics
            self._version = gradients.version if self._version is None else min(self._version, gradients.version)
            self._rollouts += self._each
            self._changed.notify_all()
            return self._taken + 1

    def take(self) -> Push:
        """Returns the sum as a push, and begins a new one. The push before it has been answered."""
        with self._changed:
            self._answered = self._taken
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._rollouts >= self._enough)
            if self._closed:
                raise ClosedError
            assert self._version is not None  # there are rollouts
            push = _new(self._version, self._steps, self._episodes, self._faults)
            push["gradients"], push["not_finite"] = self._sum, self._not_finite
            push["metrics"] = dict(self._metrics)
            self._clear()
            self._taken += 1
            return push

    def close(self) -> None:
        """Wakes everyone who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class RolloutBox:
    """Whole rollouts of all workers, in order. Owns the few that wait."""

    def __init__(self, capacity: int) -> None:
        self._channel: Channel[Push] = Channel(capacity)

    def put(self, rollout: Rollout, version: int, episodes: Sequence[Episode], faults: Sequence[str]) -> None:
        """Adds a rollout that weights of `version` have played, waiting while too many do."""
        arrays = {**rollout._asdict(), "core_state": tuple(map(np.asarray, rollout.core_state))}
        push = _new(version, rollout.actions.size, episodes, faults)
        push["rollout"] = arrays
        self._channel.put(push)

    def take(self) -> Push:
        """Returns the oldest rollout as a push."""
        return self._channel.take(1, 1)[0]

    def close(self) -> None:
        """Wakes everyone who waits."""
        self._channel.close()


def _new(version: int, steps: int, episodes: Sequence[Episode], faults: Sequence[str]) -> Push:
    """Returns what every push has; the episodes are plain numbers."""
    return {
        "version": version,
        "steps": steps,
        "episodes": [tuple(episode) for episode in episodes],
        "faults": list(faults),
        "rollout": None,
        "gradients": None,
        "not_finite": 0,
        "metrics": {},
        "gifs": [],
    }
