"""The actor-critic network: convolutions, fully connected layers, a recurrent core, and heads for policy and value.

One network has two verbs. `step` decides once for B games, `unroll` runs over a whole rollout; both share
every line of arithmetic, and both zero the recurrent state where an episode starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.cores import CoreState, find_core
from doom_a3c.agent.distributions import Distribution
from doom_a3c.agent.graphs import Graph, Graphs
from doom_a3c.agent.parameters import Parameters, variable_name
from doom_a3c.agent.precision import Matrix, add_bias, matrix_type
from doom_a3c.settings.network import Network, compute_maps, count_separate_numbers

# Pixels, uint8 [..., H, W, C], or numbers, float32 [..., V], or both by the names `pixels` and `variables`.
Observations: TypeAlias = NDArray[Any] | tf.Tensor | Mapping[str, NDArray[Any] | tf.Tensor]


class Inputs(NamedTuple):
    """Shapes of what the network sees."""

    pixels: tuple[int, int, int] | None  # height, width, channels, uint8; None where the game shows numbers alone
    variables: int  # numbers, float32; 0 where the game shows pixels alone

    def split(self, observations: Observations) -> tuple[Any, Any]:
        """Returns pixels and numbers of what one game or several show, None for what they do not."""
        if self.pixels is None:
            return None, observations
        return (observations["pixels"], observations["variables"]) if self.variables else (observations, None)

    def joined(self, pixels: Any, variables: Any) -> Any:
        """Returns observations as games show them; `split` takes them apart."""
        if self.pixels is None:
            return variables
        return {"pixels": pixels, "variables": variables} if self.variables else pixels


class Output(NamedTuple):
    """What the network says about observations, [N, ...] with N = B for `step` and N = T * B for `unroll`."""

    logits: tf.Tensor  # [N, P], parameters of the distribution over actions
    values: tf.Tensor  # [N]


def observation_inputs(space: Any) -> Inputs:
    """Returns the input shapes for an observation space: pixels, numbers, or a dict of `pixels` and `variables`."""
    if hasattr(space, "spaces"):
        return Inputs(tuple(space.spaces["pixels"].shape), space.spaces["variables"].shape[0])
    return Inputs(tuple(space.shape), 0) if len(space.shape) == 3 else Inputs(None, space.shape[0])


_Layers = list[tuple[Matrix, tf.Variable]]  # kernels and biases, in their order


def _make_layers(
    make: Parameters, name: str, features: int, sizes: Sequence[int], dtype: tf.DType | None = None
) -> tuple[_Layers, int]:
    """Returns fully connected layers of those sizes over so many features, and how many there are after them."""
    layers = []
    for index, size in enumerate(sizes):
        kernel = make.matrix(f"{name}{index}/kernel", (features, size), features, dtype)
        layers.append((kernel, make.zeros(f"{name}{index}/bias", size)))
        features = size
    return layers, features


class _Torso:
    """From observations to what a head reads: convolutions, fully connected layers, a core. Owns its weights."""

    def __init__(self, spec: Network, inputs: Inputs, make: Parameters, prefix: str) -> None:
        self._spec, self._inputs = spec, inputs
        self._activation = getattr(tf.nn, spec.activation)
        self._convolutions = []
        apart = count_separate_numbers(spec, inputs.pixels, inputs.variables)
        features = inputs.variables - apart
        if inputs.pixels is not None:
            maps = compute_maps(spec, inputs.pixels)
            for index, ((filters, size, stride), (*_, channels)) in enumerate(zip(spec.convolutions, maps, strict=False)):
                name = f"{prefix}conv{index}"
                # One channel alone is too thin for matrix units: that convolution keeps full precision.
                dtype = tf.float32 if channels == 1 else None
                kernel = make.matrix(f"{name}/kernel", (size, size, channels, filters), size * size * channels, dtype)
                self._convolutions.append((kernel, make.zeros(f"{name}/bias", filters), stride))
            features += math.prod(maps[-1])
        self._hidden, features = _make_layers(make, f"{prefix}hidden", features, spec.hidden)
        # These are small beside the picture's: rounding would cost more than it gains.
        self._variable_hidden, joining = _make_layers(
            make, f"{prefix}variables", apart, spec.variable_hidden if apart else (), tf.float32
        )
        self.core = find_core(spec.core)(features + joining, spec.core_size, make, prefix)

    def run(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns features [T * B, ...] of observations [T, B, ...], and the state after them."""
        return self.core.run(self._see(tf.nest.map_structure(_fold_time, observations)), resets, core_state)

    def _see(self, observations: Observations) -> tf.Tensor:
        seen = []
        pixels, variables = self._inputs.split(observations)
        if pixels is not None:
            maps = pixels
            if not self._convolutions:
                maps = (tf.cast(pixels, tf.float32) - self._spec.pixel_mean) / self._spec.pixel_scale
            for index, (kernel, bias, stride) in enumerate(self._convolutions):
                weights = (kernel.read(), bias) if index else self._centring(kernel.read(), bias)
                maps = self._activation(_convolve(maps, *weights, stride))
            seen.append(tf.reshape(maps, (-1, int(np.prod(maps.shape[1:])))))
        if self._variable_hidden:
            return _join([self._through(self._hidden, seen[0]), self._through(self._variable_hidden, variables)])
        if variables is not None:
            seen.append(variables)
        return self._through(self._hidden, _join(seen))

    def _through(self, layers: _Layers, features: tf.Tensor) -> tf.Tensor:
        """Returns what fully connected layers make of features [N, ...]."""
        for kernel, bias in layers:
            matrix = kernel.read()
            features = tf.matmul(tf.cast(features, matrix.dtype), matrix)
            features = self._activation(add_bias(features, bias))
        return features

    def _centring(self, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights that do to raw pixels what these do to centred and scaled ones: no pass over the pixels."""
        kernel = kernel / self._spec.pixel_scale
        return kernel, bias - self._spec.pixel_mean * tf.reduce_sum(tf.cast(kernel, bias.dtype), axis=(0, 1, 2))


class ACNetwork:
    """An actor-critic network: one torso with two heads, or with `shared = false` a torso for each head.

    Owns its variables, in a fixed order that optimizers share; checkpoints know them by name. Initialisation: He uniform up
    to the core, Glorot uniform in an LSTM, forget bias 1, policy columns of norm 0.01 and value column of norm 1, heads
    without bias. Pixels are centred and scaled to about unit size. With pixels / 255 and Glorot weights everywhere, as in
    the A3C-Doom agent, the LSTM's output differs by 0.003 between pictures at the start, and most of a short training goes
    into making that difference larger.

    With `precision` 'bfloat16', or 'auto' on a CPU made for it, the large matrix products read rounded copies of the
    weights. Weights, optimizer, recurrent state and heads stay float32; activations before the core and the gradients of
    those matrices are rounded. Whoever assigns to `parameters` calls `refresh`.
    """

    def __init__(
        self,
        spec: Network,
        inputs: Inputs,
        distribution: Distribution,
        seed: int,
        name: str,
        precision: str = "float32",
        graphs: Graphs | None = None,
    ) -> None:
        """Networks may share `graphs`: what is compiled for one serves all that are made alike.

        Raises:
            UserError: if there is no core of the name that `spec` has for it.
        """
        self._graphs = graphs or Graphs()
        self.spec, self.inputs, self.distribution, self.name = spec, inputs, distribution, name
        self.version = 0  # updates that have made these weights, as far as whoever assigns to them says so
        prefixes = ("",) if spec.shared else ("actor/", "critic/")
        if precision == "auto" and inputs.pixels is None:
            precision = "float32"  # small matrices: rounding costs more than it gains, and CartPole was not learned with it
        self._dtype = matrix_type(precision)
        make = Parameters(seed, self._dtype)
        self._torsos = [_Torso(spec, inputs, make, prefix) for prefix in prefixes]
        features, torsos = self._torsos[0].core.size, list(make.made)
        self._policy = make.columns("policy/kernel", (features, distribution.size), 0.01)
        self._value = make.columns("value/kernel", (features, 1), 1.0)
        self._matrices = make.matrices
        self.parameters: Sequence[tf.Variable] = (self._policy, self._value, *torsos)

    def compiled(self, key: Hashable, function: Callable[..., Any], others: Sequence[tf.Variable] = ()) -> Graph:
        """Returns a function of this network, compiled once for all networks made alike that share its graphs.

        `key` tells functions of one network apart, with all else that they depend on; `others` are variables that the
        function uses beside the network's.
        """
        copies = [matrix.copy for matrix in self._matrices if matrix.copy is not None]
        alike = (self.spec, self.inputs, self.distribution, self._dtype)
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
            name = variable_name(parameter)
            value = variables[name]
            if value.shape != parameter.shape:
                raise ValueError(f"{name} has the shape {value.shape}, where {tuple(parameter.shape)} is needed")
            parameter.assign(value)
        self.refresh()

    def transfer(self, variables: Mapping[str, NDArray[Any]], heads: bool) -> list[str]:
        """Takes over the weights in `variables` that have a name and a shape of this network's; returns their names.

        Without `heads` those of policy and value stay as they are.
        """
        taken = []
        for parameter in self.parameters if heads else self.parameters[2:]:
            name = variable_name(parameter)
            if (value := variables.get(name)) is not None and value.shape == parameter.shape:
                parameter.assign(value)
                taken.append(name)
        self.refresh()
        return taken

    def refresh(self) -> None:
        """Takes over what has been assigned to `parameters`; without reduced precision there is nothing to do."""
        for matrix in self._matrices:
            matrix.refresh()

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns the recurrent state at the start of an episode."""
        return tuple(itertools.chain.from_iterable(torso.core.initial_state(batch_size) for torso in self._torsos))

    def step(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tuple[Output, CoreState]:
        """Decides once for each of B games.

        Args:
            observations: uint8 [B, H, W, C], float32 [B, V], or a dict of the two as `pixels` and `variables`.
            resets: float32 [B], 1 where the observation is the first of an episode.
            core_state: the state after the previous step.

        Returns:
            The output, and the state after this step.
        """
        observations = tf.nest.map_structure(lambda array: array[None], observations)
        return self.unroll(observations, resets[None], core_state)

    def unroll(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tuple[Output, CoreState]:
        """Runs over T steps of B games; arguments as in `step`, with a leading time axis of static length.

        Time is folded into the batch everywhere but in the recurrent half of the core.
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


def _convolve(maps: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, stride: int) -> tf.Tensor:
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
    return add_bias(maps, bias)


def _join(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns features [N, ...] side by side, in the type of the first."""
    return tf.concat([tf.cast(part, parts[0].dtype) for part in parts], axis=1) if len(parts) > 1 else parts[0]


def _fold_time(array: tf.Tensor) -> tf.Tensor:
    return tf.reshape(array, (-1, *array.shape[2:]))
