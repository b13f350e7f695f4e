"""The weights of a network as they are made: named, random, in a fixed order, some of them matrices of their own type."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from doom_a3c.agent.precision import Matrix
from doom_a3c.settings.streams import Stream, make_seed


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable that checkpoints know it by."""
    return str(variable.name).split(":")[0]


class Parameters:
    """Makes variables with random weights. Owns the random stream, and what has been made, in its order."""

    def __init__(self, seed: int, matrix_type: tf.DType) -> None:
        self._random, self._type = np.random.default_rng(make_seed(seed, Stream.WEIGHTS)), matrix_type
        self.made: list[tf.Variable] = []
        self.matrices: list[Matrix] = []

    def _variable(self, weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]], name: str) -> tf.Variable:
        self.made.append(tf.Variable(weights.astype(np.float32), name=name))
        return self.made[-1]

    def matrix(self, name: str, shape: tuple[int, ...], fan: float, dtype: tf.DType | None = None) -> Matrix:
        """Returns uniform weights of variance 2 / fan: He's with the number of inputs, Glorot's with inputs + outputs.

        Products with them are computed in `dtype`, unset the type that large matrices have.
        """
        limit = np.sqrt(6.0 / fan)
        weights = self._variable(self._random.uniform(-limit, limit, shape), name)
        self.matrices.append(Matrix(weights, dtype or self._type))
        return self.matrices[-1]

    def zeros(self, name: str, size: int) -> tf.Variable:
        """Returns zeros."""
        return self._variable(np.zeros(size), name)

    def columns(self, name: str, shape: tuple[int, int], norm: float) -> tf.Variable:
        """Returns normally distributed columns of that norm each."""
        weights = self._random.normal(size=shape)
        weights *= norm / np.linalg.norm(weights, axis=0, keepdims=True)
        return self._variable(weights, name)
