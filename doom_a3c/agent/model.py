"""The global network, shared by all learning threads, and its weights as arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.graphs import Graph
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.rewards import RewardStats
from doom_a3c.settings.errors import shorten_list

if TYPE_CHECKING:
    from doom_a3c.algorithm.optimizers import Optimizer

MAX_HALVINGS = 10  # of the learning rate
Result = TypeVar("Result")
Snapshot = dict[str, NDArray[Any]]
Vector = NDArray[np.float32]


class SharedNetwork:
    """A network that worker threads copy to their local ones. Owns the lock that orders their access."""

    def __init__(self, network: ACNetwork) -> None:
        self.network = network
        self._lock = threading.Lock()
        self._copying: dict[ACNetwork, Graph] = {}  # by pulling network
        self._flat = network.compile("flat", lambda: flatten(network.parameters))
        self._replace = network.compile("replace", partial(_assign, network.parameters))
        self.version = 0  # number of updates and roll-backs behind these weights
        self.since = 0  # version of the newest roll-back: rollouts of older versions are discarded

    def pull(self, network: ACNetwork) -> None:
        """Copies the shared weights and their version into `network`, and keeps a reference to it."""
        copy = self._copying.get(network) or self._copying.setdefault(network, network.compile_copy(self.network))
        with self._lock:
            copy()
            network.version = self.version

    def read_weights(self) -> tuple[Vector, int]:
        """Returns all weights as one float32 vector, and their version."""
        with self._lock:
            return np.asarray(self._flat()), self.version

    def replace(self, weights: Vector, version: int) -> None:
        """Replaces the weights with a vector from `read_weights` of a network of the same shape."""
        with self._lock:
            self._replace(weights)
            self.version = version


class GlobalModel(SharedNetwork):
    """The global network, its optimizer and the statistics that normalize rewards, shared by all workers.

    Updates are serialised: one worker's update (weights and optimizer slots) completes before the next begins, and no pull
    reads a partial one. Lock-free (Hogwild) updates would save a few milliseconds per rollout, at the price of torn
    weights, lost slot updates, and runs that cannot be repeated even with one worker.
    """

    def __init__(self, network: ACNetwork, optimizer: Optimizer) -> None:
        """`optimizer` must update the parameters of `network`."""
        super().__init__(network)
        self.updates = 0  # of the run; unlike `version`, it does not count roll-backs
        self.halvings = 0  # of the learning rate, one per roll-back in this game
        self.reward_stats = RewardStats()
        self._optimizer = optimizer
        self._variables = {variable_name(v): v for v in (*network.parameters, *self._optimizer.slots)}
        key = (type(optimizer), optimizer.epsilon)  # all that the compiled `apply` depends on, besides its variables
        self._compiled_apply = network.compile(key, optimizer.apply, optimizer.slots)

    @property
    def rate_share(self) -> float:
        """The factor by which roll-backs have reduced the learning rate."""
        return 0.5 ** min(self.halvings, MAX_HALVINGS)

    def apply(self, gradients: Sequence[tf.Tensor], learning_rate: float, version: int | None = None) -> int | None:
        """Applies one update, at the learning rate times `rate_share`.

        Args:
            gradients: in the order of the network's parameters.
            learning_rate: before `rate_share`.
            version: of the weights that played; gradients from before the newest roll-back are discarded.

        Returns:
            The version before the update, or None if the gradients were discarded.
        """
        with self._lock:
            if version is not None and version < self.since:
                return None
            # An array, because TensorFlow caches forever every Python number that it converts to a tensor.
            self._compiled_apply(list(gradients), np.asarray(learning_rate * self.rate_share, np.float32))
            self.version += 1
            self.updates += 1
            return self.version - 1

    def snapshot_with(self, read: Callable[[], Result]) -> tuple[Snapshot, Result]:
        """Returns copies of weights and optimizer slots, and the result of `read`, with no update in between."""
        with self._lock:
            return {name: variable.numpy().copy() for name, variable in self._variables.items()}, read()

    def snapshot(self) -> Snapshot:
        """Returns a consistent copy of weights and optimizer slots by name."""
        return self.snapshot_with(lambda: None)[0]

    def restore(self, snapshot: Snapshot, updates: int, halvings: int = 0) -> None:
        """Restores a snapshot, its number of updates and the halvings of its learning rate.

        Raises:
            ValueError: if a name or a shape differs from this model's.
        """
        if snapshot.keys() != self._variables.keys():
            raise ValueError(f"variables differ: {shorten_list(sorted(snapshot.keys() ^ self._variables.keys()), 3)}")
        for name, value in snapshot.items():
            if tuple(self._variables[name].shape) != value.shape:
                raise ValueError(f"{name} is {value.shape}, not {tuple(self._variables[name].shape)}")
        with self._lock:
            self._assign(snapshot)
            self.version = self.updates = updates
            self.halvings, self.since = halvings, 0

    def roll_back(self, snapshot: Snapshot) -> None:
        """Restores an earlier snapshot of this model and halves the learning rate; the version increases."""
        with self._lock:
            self._assign(snapshot)
            self.halvings += 1
            self.version += 1
            self.since = self.version

    def _assign(self, snapshot: Snapshot) -> None:
        for name, value in snapshot.items():
            self._variables[name].assign(value)


def flatten(tensors: Sequence[tf.Tensor | tf.Variable]) -> tf.Tensor:
    """Concatenates tensors into one vector, in their order."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def split(vector: tf.Tensor | Vector, like: Sequence[tf.Tensor | tf.Variable]) -> list[tf.Tensor]:
    """Splits a vector into tensors with the shapes of `like`.

    Raises:
        ValueError: if the vector has the wrong length.
    """
    sizes = [int(np.prod(tensor.shape)) for tensor in like]
    if tuple(vector.shape) != (sum(sizes),):
        raise ValueError(f"a vector of shape {vector.shape} should hold {sum(sizes)} numbers")
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(tf.split(vector, sizes), like, strict=True)]


def _assign(variables: Sequence[tf.Variable], vector: tf.Tensor) -> None:
    for variable, part in zip(variables, split(vector, variables), strict=True):
        variable.assign(part)
