"""The network `global`, shared by all learning threads, and what travels of it."""

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

MAX_HALVINGS = 10  # of the step size
Result = TypeVar("Result")
Snapshot = dict[str, NDArray[Any]]
Vector = NDArray[np.float32]


class SharedNetwork:
    """A network that learning threads copy their own from. Owns the lock that orders their access."""

    def __init__(self, network: ACNetwork) -> None:
        self.network = network
        self._lock = threading.Lock()
        self._copying: dict[ACNetwork, Graph] = {}  # by the network that pulls
        self._flat = network.compiled("flat", lambda: flatten(network.parameters))
        self._replace = network.compiled("replace", partial(_assign, network.parameters))
        self.version = 0  # updates and roll-backs that have made these weights
        self.since = 0  # the version that the newest roll-back made: what older ones have played is not learned from

    def pull(self, network: ACNetwork) -> None:
        """Copies the shared weights and their version into `network`, which is kept alive."""
        copy = self._copying.get(network) or self._copying.setdefault(network, network.copying(self.network))
        with self._lock:
            copy()
            network.version = self.version

    def weights(self) -> tuple[Vector, int]:
        """Returns all weights as one vector, and their version."""
        with self._lock:
            return np.asarray(self._flat()), self.version

    def replace(self, weights: Vector, version: int) -> None:
        """Takes over weights that `parse_weights` of another network of this shape returned."""
        with self._lock:
            self._replace(weights)
            self.version = version


class GlobalModel(SharedNetwork):
    """The network `global`, its optimizer and the statistics that normalize rewards, shared by all workers.

    Applies are serialised: one worker's update (weights and optimizer slots) is complete before the next begins, and a
    pull never sees half of one. Hogwild updates without a lock would save a wait of some milliseconds a rollout and cost
    torn weights, lost slot updates and runs that cannot be repeated even with one worker.
    """

    def __init__(self, network: ACNetwork, optimizer: Optimizer) -> None:
        """`optimizer` is one of the network's parameters."""
        super().__init__(network)
        self.updates = 0  # of the run; roll-backs, which make versions too, are none
        self.halvings = 0  # of the learning rate, one for each roll-back while learning this game
        self.reward_stats = RewardStats()
        self._optimizer = optimizer
        self._variables = {variable_name(v): v for v in (*network.parameters, *self._optimizer.slots)}
        key = (type(optimizer), optimizer.epsilon)  # what `apply` depends on beside its variables
        self._compiled_apply = network.compiled(key, optimizer.apply, optimizer.slots)

    @property
    def rate_share(self) -> float:
        """What the roll-backs have left of the learning rate."""
        return 0.5 ** min(self.halvings, MAX_HALVINGS)

    def apply(self, gradients: Sequence[tf.Tensor], learning_rate: float, version: int | None = None) -> int | None:
        """Applies one update, with the `rate_share` of the learning rate; returns the updates before it.

        Gradients of what weights of a `version` from before the newest roll-back have played are not applied: None.
        """
        with self._lock:
            if version is not None and version < self.since:
                return None
            # An array: TensorFlow keeps every Python number that was ever made a tensor.
            self._compiled_apply(list(gradients), np.asarray(learning_rate * self.rate_share, np.float32))
            self.version += 1
            self.updates += 1
            return self.version - 1

    def snapshot_with(self, read: Callable[[], Result]) -> tuple[Snapshot, Result]:
        """Returns copies of weights and optimizer slots, and the result of `read`: no update comes between."""
        with self._lock:
            return self._copies(), read()

    def snapshot(self) -> Snapshot:
        """Returns a consistent copy of weights and optimizer slots by name."""
        with self._lock:
            return self._copies()

    def _copies(self) -> Snapshot:
        return {name: variable.numpy().copy() for name, variable in self._variables.items()}

    def restore(self, snapshot: Snapshot, updates: int, halvings: int = 0) -> None:
        """Takes over a snapshot, the number of updates behind it and the halvings of its learning rate.

        Raises:
            ValueError: if a name or a shape is not this model's.
        """
        if snapshot.keys() != self._variables.keys():
            raise ValueError(f"variables differ: {shorten_list(sorted(snapshot.keys() ^ self._variables.keys()), 3)}")
        for name, value in snapshot.items():
            if tuple(self._variables[name].shape) != value.shape:
                raise ValueError(f"{name} is {value.shape}, not {tuple(self._variables[name].shape)}")
        with self._lock:
            self._assign(snapshot)
            self.version = self.updates = updates
            self.halvings = halvings

    def roll_back(self, snapshot: Snapshot) -> None:
        """Takes over an earlier snapshot of this model's, and halves the learning rate; versions count on."""
        with self._lock:
            self._assign(snapshot)
            self.halvings += 1
            self.version += 1
            self.since = self.version

    def _assign(self, snapshot: Snapshot) -> None:
        for name, value in snapshot.items():
            self._variables[name].assign(value)


def flatten(tensors: Sequence[tf.Tensor | tf.Variable]) -> tf.Tensor:
    """Returns tensors as one vector, in their order."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def split(vector: tf.Tensor | Vector, like: Sequence[tf.Tensor | tf.Variable]) -> list[tf.Tensor]:
    """Returns the parts of a vector with the shapes of `like`.

    Raises:
        ValueError: if the vector has another length.
    """
    sizes = [int(np.prod(tensor.shape)) for tensor in like]
    if tuple(vector.shape) != (sum(sizes),):
        raise ValueError(f"a vector of shape {vector.shape} should hold {sum(sizes)} numbers")
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(tf.split(vector, sizes), like, strict=True)]


def _assign(variables: Sequence[tf.Variable], vector: tf.Tensor) -> None:
    for variable, part in zip(variables, split(vector, variables), strict=True):
        variable.assign(part)
