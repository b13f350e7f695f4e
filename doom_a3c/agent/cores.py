"""Recurrent cores: what a network remembers between steps. A new one is a class here and a line in `CORES`."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.parameters import Parameters
from doom_a3c.algorithm.lstm import lstm, product
from doom_a3c.settings.errors import UserError, suggest

CoreState = tuple[NDArray[np.float32] | tf.Tensor, ...]  # of arrays, each float32 [B, size]; () where nothing is remembered


class Core(Protocol):
    """Turns features into features that know the past. Owns its weights; the state is its caller's."""

    size: int  # of the features that come out

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        """Makes weights for so many `inputs`, named `prefix` and what they are; `size` is the scenario's core_size."""

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns the state at the start of an episode."""

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns float32 features [T * B, size] and the state after them.

        Args:
            features: [T * B, inputs], of the type that large matrices have.
            resets: float32 [T, B], 1 where the state is that of an episode's start before the step.
            state: the state before the first step.
        """


class LSTM:
    """A long short-term memory of `size` cells. Its state is cell and hidden, [B, size] each."""

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        self.size = self._cells = size
        gates = 4 * size
        fan = inputs + size + gates
        self._input_kernel = make.matrix(f"{prefix}lstm/input_kernel", (inputs, gates), fan)
        self._recurrent_kernel = make.matrix(f"{prefix}lstm/recurrent_kernel", (size, gates), fan)
        self._bias = make.zeros(f"{prefix}lstm/bias", gates)

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns zeros."""
        zeros = tf.zeros((batch_size, self._cells))
        return zeros, zeros

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns the hidden states of all steps, and the state after them."""
        gates_in = tf.cast(product(features, self._input_kernel.read()), self._bias.dtype)
        gates_in = tf.nn.bias_add(gates_in, self._bias)
        gates_in = tf.reshape(gates_in, (resets.shape[0], -1, gates_in.shape[1]))
        hiddens, *after = lstm(gates_in, resets, self._recurrent_kernel.read(), *state)
        return hiddens, tuple(after)


class SkipLSTM(LSTM):
    """An LSTM with a connection past it: its features are its inputs and its hidden state, side by side.

    What is to be done about what is seen now need not be learned through the gates.
    """

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        super().__init__(inputs, size, make, prefix)
        self.size = inputs + size

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns inputs and hidden states of all steps, and the state after them."""
        hiddens, after = super().run(features, resets, state)
        return tf.concat([tf.cast(features, hiddens.dtype), hiddens], axis=1), after


class NoCore:
    """No memory: a feed-forward network."""

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        self.size = inputs

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns an empty state."""
        return ()

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns the features as they are."""
        return tf.cast(features, tf.float32), ()


CORES: dict[str, type[Core]] = {"lstm": LSTM, "skip_lstm": SkipLSTM, "none": NoCore}


def find_core(name: str) -> type[Core]:
    """Returns the core that a scenario names; raises UserError where there is none of that name."""
    if name not in CORES:
        known = " or ".join(map(repr, CORES))
        raise UserError(f"[network] core must be {known}, not {name!r}{suggest(name, CORES)}")
    return CORES[name]
