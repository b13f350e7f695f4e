"""The actor-critic network: convolutions, a fully connected layer, an LSTM, and heads for policy and value.

One network has two verbs. `step` makes one decision for B games, `unroll` runs over a whole rollout; both share
every line of arithmetic, and both zero the recurrent state where an episode starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.scenarios import Network

CoreState = tuple[tf.Tensor, ...]  # LSTM: cell and hidden, each [B, core_size]; feed-forward: ()


class Inputs(NamedTuple):
    """Shapes of what the network sees; 0 variables where the game shows pixels alone."""

    pixels: tuple[int, int, int]  # height, width, channels; uint8
    variables: int  # scaled game variables, float32


class Output(NamedTuple):
    """What the network says about observations, [N, ...] with N = B for `step` and N = T * B for `unroll`."""

    logits: tf.Tensor  # [N, A]
    values: tf.Tensor  # [N]


def observation_inputs(space: Any) -> Inputs:
    """Returns the input shapes for an observation space: pixels alone, or a dict of `pixels` and `variables`."""
    spaces = getattr(space, "spaces", {"pixels": space})
    variables = spaces["variables"].shape[0] if "variables" in spaces else 0
    height, width, channels = spaces["pixels"].shape
    return Inputs((height, width, channels), variables)


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable that checkpoints know it by."""
    return str(variable.name).split(":")[0]


class ACNetwork(tf.Module):
    """A conv + LSTM actor-critic. Owns its variables, in a fixed order that checkpoints and optimizers share.

    Initialisation: He uniform up to the LSTM, Glorot uniform in it, forget bias 1, policy columns of norm 0.01 and value
    column of norm 1, heads without bias. Pixels are centred and scaled to about unit size. With pixels / 255 and Glorot
    weights everywhere, as in the A3C-Doom agent, the LSTM's output differs by 0.003 between pictures at the start, and
    most of a short training goes into making that difference larger.
    """

    def __init__(self, spec: Network, inputs: Inputs, actions: int, seed: int, name: str) -> None:
        super().__init__(name=name)
        self.spec, self.inputs, self.actions = spec, inputs, actions
        self._random = np.random.default_rng(seed)
        height, width, channels = inputs.pixels
        self._convolutions = []
        for index, (filters, size, stride) in enumerate(spec.convolutions):
            kernel = self._uniform(f"conv{index}/kernel", (size, size, channels, filters), size * size * channels)
            self._convolutions.append((kernel, self._zeros(f"conv{index}/bias", filters), stride))
            height, width, channels = (height - size) // stride + 1, (width - size) // stride + 1, filters
        features = height * width * channels + inputs.variables
        self._hidden = (
            self._uniform("hidden/kernel", (features, spec.hidden), features),
            self._zeros("hidden/bias", spec.hidden),
        )
        features = spec.hidden
        if spec.core == "lstm":
            gates = 4 * spec.core_size
            fan = features + spec.core_size + gates
            self._lstm = (
                self._uniform("lstm/input_kernel", (features, gates), fan),
                self._uniform("lstm/recurrent_kernel", (spec.core_size, gates), fan),
                self._zeros("lstm/bias", gates),
            )
            features = spec.core_size
        self._policy = self._columns("policy/kernel", (features, actions), 0.01)
        self._value = self._columns("value/kernel", (features, 1), 1.0)
        self.parameters: Sequence[tf.Variable] = self.trainable_variables

    def load(self, variables: Mapping[str, NDArray[Any]]) -> None:
        """Takes over the weights in `variables`, by name; what else is in there is ignored.

        Raises:
            KeyError: if one is missing.
            ValueError: if one has another shape.
        """
        for parameter in self.parameters:
            parameter.assign(variables[variable_name(parameter)])

    def _uniform(self, name: str, shape: tuple[int, ...], fan: float) -> tf.Variable:
        """Returns uniform weights of variance 2 / fan: He's with the number of inputs, Glorot's with inputs + outputs."""
        limit = np.sqrt(6.0 / fan)
        return tf.Variable(self._random.uniform(-limit, limit, shape).astype(np.float32), name=name)

    def _zeros(self, name: str, size: int) -> tf.Variable:
        return tf.Variable(np.zeros(size, np.float32), name=name)

    def _columns(self, name: str, shape: tuple[int, int], norm: float) -> tf.Variable:
        weights = self._random.normal(size=shape)
        weights *= norm / np.linalg.norm(weights, axis=0, keepdims=True)
        return tf.Variable(weights.astype(np.float32), name=name)

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns the recurrent state at the start of an episode: zeros."""
        zeros = tf.zeros((batch_size, self.spec.core_size))
        return (zeros, zeros) if self.spec.core == "lstm" else ()

    def step(self, observations: Any, resets: tf.Tensor, core_state: CoreState) -> tuple[Output, CoreState]:
        """Makes one decision for each of B games.

        Args:
            observations: uint8 [B, H, W, C], or a dict of that as `pixels` and float32 [B, V] `variables`.
            resets: float32 [B], 1 where the observation is the first of an episode.
            core_state: the state after the previous decision.

        Returns:
            The output, and the state after this decision.
        """
        observations = tf.nest.map_structure(lambda array: array[None], observations)
        return self.unroll(observations, resets[None], core_state)

    def unroll(self, observations: Any, resets: tf.Tensor, core_state: CoreState) -> tuple[Output, CoreState]:
        """Runs over T decisions of B games; arguments as in `step`, with a leading time axis of static length.

        Time is folded into the batch everywhere but in the recurrent half of the LSTM.
        """
        length, batch = resets.shape[0], tf.shape(resets)[1]
        features = self._features(tf.nest.map_structure(_fold_time, observations))
        if self.spec.core == "lstm":
            features, core_state = self._run_lstm(features, resets, core_state, length, batch)
        values = tf.squeeze(tf.matmul(features, self._value), axis=1)
        return Output(tf.matmul(features, self._policy), values), core_state

    def _features(self, observations: Any) -> tf.Tensor:
        pixels = observations["pixels"] if self.inputs.variables else observations
        hidden = (tf.cast(pixels, tf.float32) - self.spec.pixel_mean) / self.spec.pixel_scale
        for kernel, bias, stride in self._convolutions:
            hidden = tf.nn.elu(tf.nn.bias_add(tf.nn.conv2d(hidden, kernel, stride, "VALID"), bias))
        kernel, bias = self._hidden
        hidden = tf.reshape(hidden, (-1, kernel.shape[0] - self.inputs.variables))
        if self.inputs.variables:
            hidden = tf.concat([hidden, observations["variables"]], axis=1)
        return tf.nn.elu(tf.nn.bias_add(tf.matmul(hidden, kernel), bias))

    def _run_lstm(
        self, features: tf.Tensor, resets: tf.Tensor, core_state: CoreState, length: int, batch: tf.Tensor
    ) -> tuple[tf.Tensor, CoreState]:
        """Runs the LSTM over time, statically unrolled: a while-loop is several times slower on a CPU."""
        input_kernel, recurrent_kernel, bias = self._lstm
        gates_in = tf.nn.bias_add(tf.matmul(features, input_kernel), bias)
        gates_in = tf.unstack(tf.reshape(gates_in, (length, batch, 4 * self.spec.core_size)), num=length)
        keeps = tf.unstack(1.0 - resets[..., None], num=length)
        cell, hidden = core_state
        hiddens = []
        for gate_in, keep in zip(gates_in, keeps, strict=True):
            cell, hidden = cell * keep, hidden * keep
            gates = gate_in + tf.matmul(hidden, recurrent_kernel)
            in_gate, candidate, forget_gate, out_gate = tf.split(gates, 4, axis=1)
            cell = cell * tf.sigmoid(forget_gate + 1.0) + tf.sigmoid(in_gate) * tf.tanh(candidate)
            hidden = tf.tanh(cell) * tf.sigmoid(out_gate)
            hiddens.append(hidden)
        return tf.concat(hiddens, axis=0), (cell, hidden)


def _fold_time(array: tf.Tensor) -> tf.Tensor:
    return tf.reshape(array, (-1, *array.shape[2:]))
