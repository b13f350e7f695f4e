"""The actor-critic network: convolutions, fully connected layers, an LSTM, and heads for policy and value.

One network has two verbs. `step` makes one decision for B games, `unroll` runs over a whole rollout; both share
every line of arithmetic, and both zero the recurrent state where an episode starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.graphs import Graph, Graphs
from doom_a3c.lstm import lstm, product
from doom_a3c.precision import Matrix, matrix_type
from doom_a3c.scenarios import Network

CoreState = tuple[Any, ...]  # LSTM: cell and hidden of each torso, all [B, core_size]; feed-forward: ()


class Inputs(NamedTuple):
    """Shapes of what the network sees."""

    pixels: tuple[int, int, int] | None  # height, width, channels, uint8; None where the game shows numbers alone
    variables: int  # numbers, float32; 0 where the game shows pixels alone


class Output(NamedTuple):
    """What the network says about observations, [N, ...] with N = B for `step` and N = T * B for `unroll`."""

    logits: tf.Tensor  # [N, A]
    values: tf.Tensor  # [N]


def observation_inputs(space: Any) -> Inputs:
    """Returns the input shapes for an observation space: pixels, numbers, or a dict of `pixels` and `variables`."""
    if hasattr(space, "spaces"):
        return Inputs(tuple(space.spaces["pixels"].shape), space.spaces["variables"].shape[0])
    return Inputs(tuple(space.shape), 0) if len(space.shape) == 3 else Inputs(None, space.shape[0])


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable that checkpoints know it by."""
    return str(variable.name).split(":")[0]


class _Initializer:
    """Makes named variables with random weights. Owns the random stream."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def uniform(self, name: str, shape: tuple[int, ...], fan: float) -> tf.Variable:
        """Returns uniform weights of variance 2 / fan: He's with the number of inputs, Glorot's with inputs + outputs."""
        limit = np.sqrt(6.0 / fan)
        return tf.Variable(self._random.uniform(-limit, limit, shape).astype(np.float32), name=name)

    def zeros(self, name: str, size: int) -> tf.Variable:
        """Returns zeros."""
        return tf.Variable(np.zeros(size, np.float32), name=name)

    def columns(self, name: str, shape: tuple[int, int], norm: float) -> tf.Variable:
        """Returns normally distributed columns of that norm each."""
        weights = self._random.normal(size=shape)
        weights *= norm / np.linalg.norm(weights, axis=0, keepdims=True)
        return tf.Variable(weights.astype(np.float32), name=name)


class _Torso(tf.Module):
    """From observations to what a head reads: convolutions, fully connected layers, LSTM. Owns its variables."""

    def __init__(self, spec: Network, inputs: Inputs, make: _Initializer, prefix: str, dtype: tf.DType) -> None:
        super().__init__(name=prefix.rstrip("/") or "torso")
        self._spec, self._inputs = spec, inputs
        self.matrices: dict[str, Matrix] = {}
        self._activation = getattr(tf.nn, spec.activation)
        self._convolutions = []
        features = inputs.variables
        if inputs.pixels is not None:
            height, width, channels = inputs.pixels
            for index, (filters, size, stride) in enumerate(spec.convolutions):
                name, fan = f"{prefix}conv{index}", size * size * channels
                kernel = make.uniform(f"{name}/kernel", (size, size, channels, filters), fan)
                # One channel alone is too thin for matrix units: the first convolution keeps full precision.
                self._multiply(kernel, dtype if index else tf.float32)
                self._convolutions.append((kernel, make.zeros(f"{name}/bias", filters), stride))
                height, width, channels = (height - size) // stride + 1, (width - size) // stride + 1, filters
            features += height * width * channels
        self._hidden = []
        for index, size in enumerate(spec.hidden):
            name = f"{prefix}hidden{index}"
            kernel = make.uniform(f"{name}/kernel", (features, size), features)
            self._multiply(kernel, dtype)
            self._hidden.append((kernel, make.zeros(f"{name}/bias", size)))
            features = size
        if spec.core == "lstm":
            gates = 4 * spec.core_size
            fan = features + spec.core_size + gates
            self._lstm = (
                make.uniform(f"{prefix}lstm/input_kernel", (features, gates), fan),
                make.uniform(f"{prefix}lstm/recurrent_kernel", (spec.core_size, gates), fan),
                make.zeros(f"{prefix}lstm/bias", gates),
            )
            for kernel in self._lstm[:2]:
                self._multiply(kernel, dtype)
            features = spec.core_size
        self.features = features

    def _multiply(self, kernel: tf.Variable, dtype: tf.DType) -> None:
        self.matrices[variable_name(kernel)] = Matrix(kernel, dtype)

    def _read(self, kernel: tf.Variable) -> tf.Tensor:
        return self.matrices[variable_name(kernel)].read()

    def run(self, observations: Any, resets: tf.Tensor, core_state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns features [T * B, ...] of observations [T, B, ...], and the state after them."""
        features = self._see(tf.nest.map_structure(_fold_time, observations))
        if self._spec.core == "lstm":
            return self._remember(features, resets, core_state)
        return tf.cast(features, tf.float32), ()

    def _see(self, observations: Any) -> tf.Tensor:
        seen = []
        if self._inputs.pixels is not None:
            pixels = observations["pixels"] if self._inputs.variables else observations
            maps = tf.cast(pixels, tf.float32)
            if not self._convolutions:
                maps = (maps - self._spec.pixel_mean) / self._spec.pixel_scale
            for index, (kernel, bias, stride) in enumerate(self._convolutions):
                weights = (self._read(kernel), bias) if index else self._centring(self._read(kernel), bias)
                maps = self._activation(_convolved(maps, *weights, stride))
            seen.append(tf.reshape(maps, (-1, int(np.prod(maps.shape[1:])))))
        if self._inputs.variables:
            seen.append(observations if self._inputs.pixels is None else observations["variables"])
        features = tf.concat([tf.cast(part, seen[0].dtype) for part in seen], axis=1) if len(seen) > 1 else seen[0]
        for kernel, bias in self._hidden:
            matrix = self._read(kernel)
            features = tf.matmul(tf.cast(features, matrix.dtype), matrix)
            features = self._activation(tf.nn.bias_add(features, tf.cast(bias, features.dtype)))
        return features

    def _centring(self, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights that do to raw pixels what these do to centred and scaled ones: no pass over the pixels."""
        kernel = kernel / self._spec.pixel_scale
        return kernel, bias - self._spec.pixel_mean * tf.reduce_sum(kernel, axis=(0, 1, 2))

    def _remember(self, features: tf.Tensor, resets: tf.Tensor, core_state: CoreState) -> tuple[tf.Tensor, CoreState]:
        input_kernel, recurrent_kernel, bias = self._lstm
        gates_in = tf.nn.bias_add(tf.cast(product(features, self._read(input_kernel)), bias.dtype), bias)
        gates_in = tf.reshape(gates_in, (resets.shape[0], -1, gates_in.shape[1]))
        hiddens, *state = lstm(gates_in, resets, self._read(recurrent_kernel), *core_state)
        return hiddens, tuple(state)


class ACNetwork(tf.Module):
    """An actor-critic network: one torso with two heads, or with `shared = false` a torso for each head.

    Owns its variables, in a fixed order that checkpoints and optimizers share. Initialisation: He uniform up to the LSTM,
    Glorot uniform in it, forget bias 1, policy columns of norm 0.01 and value column of norm 1, heads without bias. Pixels
    are centred and scaled to about unit size. With pixels / 255 and Glorot weights everywhere, as in the A3C-Doom agent,
    the LSTM's output differs by 0.003 between pictures at the start, and most of a short training goes into making that
    difference larger.

    With `precision` 'bfloat16', or 'auto' on a CPU made for it, the large matrix products read rounded copies of the
    weights. Weights, optimizer, recurrent state and heads stay float32; activations before the LSTM and the gradients of
    those matrices are rounded. Whoever assigns to `parameters` calls `refresh`.
    """

    def __init__(
        self,
        spec: Network,
        inputs: Inputs,
        actions: int,
        seed: int,
        name: str,
        precision: str = "float32",
        graphs: Graphs | None = None,
    ) -> None:
        """Networks may share `graphs`: what is compiled for one serves all that are made alike."""
        super().__init__(name=name)
        self._graphs = graphs or Graphs()
        self.spec, self.inputs, self.actions = spec, inputs, actions
        make = _Initializer(seed)
        prefixes = ("",) if spec.shared else ("actor/", "critic/")
        if precision == "auto" and inputs.pixels is None:
            precision = "float32"  # small matrices: rounding costs more than it gains, and CartPole was not learned with it
        self._dtype = matrix_type(precision)
        self._torsos = [_Torso(spec, inputs, make, prefix, self._dtype) for prefix in prefixes]
        features = self._torsos[0].features
        self._policy = make.columns("policy/kernel", (features, actions), 0.01)
        self._value = make.columns("value/kernel", (features, 1), 1.0)
        self.parameters: Sequence[tf.Variable] = self.trainable_variables

    def compiled(self, key: Hashable, function: Callable[..., Any], others: Sequence[tf.Variable] = ()) -> Graph:
        """Returns a function of this network, compiled once for all networks made alike that share its graphs.

        `key` tells functions of one network apart, with all else that they depend on; `others` are variables that the
        function uses beside the network's.
        """
        copies = [matrix.copy for matrix in self._matrices() if matrix.copy is not None]
        alike = (self.spec, self.inputs, self.actions, self._dtype)
        return self._graphs.get((alike, key), function, [*self.parameters, *copies, *others])

    def copying(self, source: ACNetwork) -> Graph:
        """Returns a function that takes over the weights of a network made alike, in one call."""

        def copy() -> None:
            for mine, its in zip(self.parameters, source.parameters, strict=True):
                mine.assign(its)
            self.refresh()

        return self.compiled("copy", copy, source.parameters)

    def load(self, variables: Mapping[str, NDArray[Any]]) -> None:
        """Takes over the weights in `variables`, by name; what else is in there is ignored.

        Raises:
            KeyError: if one is missing.
            ValueError: if one has another shape.
        """
        for parameter in self.parameters:
            parameter.assign(variables[variable_name(parameter)])
        self.refresh()

    def refresh(self) -> None:
        """Takes over what has been assigned to `parameters`; without reduced precision there is nothing to do."""
        for matrix in self._matrices():
            matrix.refresh()

    def _matrices(self) -> Iterator[Matrix]:
        return itertools.chain.from_iterable(torso.matrices.values() for torso in self._torsos)

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns the recurrent state at the start of an episode: zeros."""
        zeros = tf.zeros((batch_size, self.spec.core_size))
        return (zeros, zeros) * len(self._torsos) if self.spec.core == "lstm" else ()

    def step(self, observations: Any, resets: tf.Tensor, core_state: CoreState) -> tuple[Output, CoreState]:
        """Makes one decision for each of B games.

        Args:
            observations: uint8 [B, H, W, C], float32 [B, V], or a dict of the two as `pixels` and `variables`.
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
        share = len(core_state) // len(self._torsos)  # of the recurrent state, a torso's
        features, states = zip(
            *(
                torso.run(observations, resets, core_state[index * share : (index + 1) * share])
                for index, torso in enumerate(self._torsos)
            ),
            strict=True,
        )
        values = tf.squeeze(tf.matmul(features[-1], self._value), axis=1)
        return Output(tf.matmul(features[0], self._policy), values), tuple(itertools.chain(*states))


def _convolved(maps: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, stride: int) -> tf.Tensor:
    """Returns the convolution [N, H', W', F] of maps [N, H, W, C], without padding.

    Where the stride divides both widths, columns that are read together become channels: nothing moves in memory, and
    more channels and a stride of 1 along the rows suit the vector units of a CPU.
    """
    strides = [stride, stride]
    if maps.shape[2] % stride == 0 and kernel.shape[1] % stride == 0:
        _, height, width, channels = maps.shape
        rows, columns, _, filters = kernel.shape
        maps = tf.reshape(maps, (-1, height, width // stride, stride * channels))
        kernel = tf.reshape(kernel, (rows, columns // stride, stride * channels, filters))
        strides = [stride, 1]
    maps = tf.nn.conv2d(tf.cast(maps, kernel.dtype), kernel, strides, "VALID")
    return tf.nn.bias_add(maps, tf.cast(bias, maps.dtype))


def _fold_time(array: tf.Tensor) -> tf.Tensor:
    return tf.reshape(array, (-1, *array.shape[2:]))
