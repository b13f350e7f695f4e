"""Makes the weights of a network: named, random, in a fixed order, some with rounded copies."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from doom_a3c.agent.precision import Matrix
from doom_a3c.settings.streams import Stream, make_seed


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable in checkpoints."""
    return str(variable.name).split(":")[0]


class Parameters:
    """Makes variables with random weights. Owns the random stream and the list of variables made so far."""

    def __init__(self, seed: int, matrix_type: tf.DType) -> None:
        self._random, self._type = np.random.default_rng(make_seed(seed, Stream.WEIGHTS)), matrix_type
        self.made: list[tf.Variable] = []
        self.matrices: list[Matrix] = []

    def _make_variable(self, weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]], name: str) -> tf.Variable:
        self.made.append(tf.Variable(weights.astype(np.float32), name=name))
        return self.made[-1]

    def matrix(self, name: str, shape: tuple[int, ...], fan: float, dtype: tf.DType | None = None) -> Matrix:
        """Makes uniform weights of variance 2 / fan.

        If `fan` is the number of inputs, this is He's initialisation; if inputs + outputs, Glorot's. Products are computed
        in `dtype`, by default the type of the large matrices.
        """
        limit = np.sqrt(6.0 / fan)
        weights = self._make_variable(self._random.uniform(-limit, limit, shape), name)
        self.matrices.append(Matrix(weights, dtype or self._type))
        return self.matrices[-1]

    def zeros(self, name: str, size: int, start: float = 0.0) -> tf.Variable:
        """Makes a vector of zeros, or of another `start`, [size]."""
        return self._make_variable(np.full(size, start), name)

    def columns(self, name: str, shape: tuple[int, int], norm: float) -> tf.Variable:
        """Makes a matrix of normally distributed columns, each with this norm."""
        weights = self._random.normal(size=shape)
        weights *= norm / np.linalg.norm(weights, axis=0, keepdims=True)
        return self._make_variable(weights, name)
