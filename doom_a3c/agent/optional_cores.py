"""Recurrent cores that scenarios can choose instead of the LSTM. A new one is a class here, listed in `OPTIONAL_CORES`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from doom_a3c.agent.cores import LSTM, Core, CoreState, make_gates, project_inputs
from doom_a3c.agent.parameters import Parameters
from doom_a3c.agent.precision import Matrix
from doom_a3c.algorithm.gru import gru
from doom_a3c.algorithm.lstm import multiply
from doom_a3c.algorithm.scan import scan

TIME_SCALES = (2.0, 128.0)  # steps


class SkipLSTM(LSTM):
    """An LSTM with a skip connection: its features are its inputs and its hidden state, concatenated.

    Reactions to the current observation need not be learned through the gates.
    """

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        super().__init__(inputs, size, make, prefix)
        self.size = inputs + size

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns inputs and hidden states of all steps, concatenated, and the state after them."""
        hiddens, after = super().run(features, resets, state)
        return tf.concat([tf.cast(features, hiddens.dtype), hiddens], axis=1), after


class GRU:
    """A gated recurrent unit with `size` cells. Its state is the hidden state, [B, size]."""

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        self.size = size
        self._input_kernel, self._recurrent_kernel, self._bias = make_gates(make, f"{prefix}gru", inputs, size, 3)
        self.input_kernels: Sequence[Matrix] = [self._input_kernel]

    def initial_state(self, batch_size: int) -> CoreState:
        return (tf.zeros((batch_size, self.size)),)

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns the hidden states of all steps, and the state after them."""
        gates_in = project_inputs(features, self._input_kernel, self._bias, resets.shape[0])
        hiddens, hidden = gru(gates_in, resets, self._recurrent_kernel.read(), *state)
        return hiddens, (hidden,)


class MinGRU:
    """A linear recurrence (minGRU, Feng et al. 2024, arXiv:2410.01201, section 3.1) with `size` cells, and an output layer.

        k_t = sigmoid(W_k x_t + b_k + d);  h_t = k_t h_{t-1} + (1 - k_t) (W_c x_t + b_c);  y_t = elu(W_h h_t + W_x x_t + b)

    Gate and candidate depend on the input alone, not on the state, so that all steps of a rollout are computed at once, by
    a parallel scan. The paper's update gate is 1 - k_t. The constants d start the cells with time scales from 2 to 128
    steps (chrono initialisation, Tallec & Ollivier 2018, arXiv:1804.11188): a fast cell minus a slow one measures speed.
    Without the output layer, a policy would be linear in h, which is the core's state, [B, size].
    """

    def __init__(self, inputs: int, size: int, make: Parameters, prefix: str) -> None:
        self.size = size
        name = f"{prefix}min_gru"
        self._kernel = make.matrix(f"{name}/kernel", (inputs, 2 * size), inputs + 2 * size)
        self._bias = make.zeros(f"{name}/bias", 2 * size)
        self._state_kernel = make.matrix(f"{name}/state_kernel", (size, size), inputs + 2 * size)
        self._input_kernel = make.matrix(f"{name}/input_kernel", (inputs, size), inputs + 2 * size)
        self.input_kernels: Sequence[Matrix] = [self._kernel, self._input_kernel]
        self._output_bias = make.zeros(f"{name}/output_bias", size)
        self._delays = np.log(np.geomspace(*TIME_SCALES, size) - 1).astype(np.float32)

    def initial_state(self, batch_size: int) -> CoreState:
        return (tf.zeros((batch_size, self.size)),)

    def run(self, features: tf.Tensor, resets: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns y of all steps, and h after the last one."""
        gates, candidates = tf.split(project_inputs(features, self._kernel, self._bias, resets.shape[0]), 2, axis=2)
        gates += self._delays
        keeps = tf.where(resets[..., None] > 0, tf.zeros_like(gates), tf.sigmoid(gates))
        states = scan(keeps, tf.sigmoid(-gates) * candidates, *state)
        remembered = tf.cast(tf.reshape(states, (-1, self.size)), features.dtype)
        mixed = multiply(remembered, self._state_kernel.read()) + multiply(features, self._input_kernel.read())
        return tf.nn.elu(tf.nn.bias_add(tf.cast(mixed, tf.float32), self._output_bias)), (states[-1],)


OPTIONAL_CORES: dict[str, type[Core]] = {"skip_lstm": SkipLSTM, "gru": GRU, "min_gru": MinGRU}
