"""Recurrent cores: the memory of a network. `core_kinds.py` finds them by name; `optional_cores.py` has the rarer ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.parameters import Parameters
from doom_a3c.agent.precision import Matrix
from doom_a3c.algorithm.lstm import lstm, multiply

CoreState = tuple[NDArray[np.float32] | tf.Tensor, ...]  # arrays, each float32 [B, size]; () without memory


class Core(Protocol):
    """Adds memory to features. Owns its weights; the caller keeps the state."""

    size: int  # number of output features
    input_kernels: Sequence[Matrix]  # weights with a row for each input

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        """Makes the weights for `inputs` features; their names start with `prefix`. `size` is the scenario's core_size."""

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns the state at the start of an episode."""

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns float32 features [T * B, size] and the state after the last step.

        Args:
            features: [T * B, inputs], in the type of the large matrices.
            resets: float32 [T, B], 1 where an episode starts and the state is reset before the step.
            state: the state before the first step, [B, size] each.
        """


def make_gates(make: Parameters, name: str, inputs: int, size: int, count: int) -> tuple[Matrix, Matrix, tf.Variable]:
    """Makes input kernel, recurrent kernel and bias of `count` gates of `size` cells each."""
    gates = count * size
    fan = inputs + size + gates
    input_kernel = make.matrix(f"{name}/input_kernel", (inputs, gates), fan)
    recurrent_kernel = make.matrix(f"{name}/recurrent_kernel", (size, gates), fan)
    return input_kernel, recurrent_kernel, make.zeros(f"{name}/bias", gates)


def project_inputs(features: tf.Tensor, kernel: Matrix, bias: tf.Variable, length: int) -> tf.Tensor:
    """Returns the inputs' share of all gates, [T, B, gates], in the type of the bias, for features [T * B, inputs]."""
    gates = tf.nn.bias_add(tf.cast(multiply(features, kernel.read()), bias.dtype), bias)
    return tf.reshape(gates, (length, -1, gates.shape[1]))


class LSTM:
    """An LSTM with `size` cells. Its state is the cell and hidden state, [B, size] each."""

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        self.size = self._cells = size
        self._input_kernel, self._recurrent_kernel, self._bias = make_gates(make, f"{prefix}lstm", inputs, size, 4)
        self.input_kernels: Sequence[Matrix] = [self._input_kernel]

    def initial_state(self, batch_size: int) -> CoreState:
        zeros = tf.zeros((batch_size, self._cells))
        return zeros, zeros

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns the hidden states of all steps, and the state after them."""
        gates_in = project_inputs(features, self._input_kernel, self._bias, resets.shape[0])
        hiddens, *after = lstm(gates_in, resets, self._recurrent_kernel.read(), *state)
        return hiddens, tuple(after)


class NoCore:
    """No memory: a feed-forward network."""

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        self.size = inputs
        self.input_kernels: Sequence[Matrix] = ()

    def initial_state(self, batch_size: int) -> CoreState:
        return ()

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns the features unchanged, as float32."""
        return tf.cast(features, tf.float32), ()


CORES: dict[str, type[Core]] = {"lstm": LSTM, "none": NoCore}
