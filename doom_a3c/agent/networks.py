"""The actor-critic network: convolutions, fully connected layers, a recurrent core, and heads for policy and value.

A network has two methods: `step` decides once for B games, `unroll` runs over a whole rollout. Both share every line of
arithmetic, and both zero the recurrent state where an episode starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.core_kinds import find_core
from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import FREE_START, MASKED, Distribution
from doom_a3c.agent.graphs import Graph, Graphs
from doom_a3c.agent.inputs import Inputs, Observations
from doom_a3c.agent.parameters import Parameters, variable_name
from doom_a3c.agent.precision import Matrix, add_bias, choose_matrix_type
from doom_a3c.settings.network import Network, compute_maps, count_separate_numbers


class NetworkOutput(NamedTuple):
    """The network's outputs for N observations: N = B from `step`, N = T * B from `unroll`."""

    logits: tf.Tensor  # [N, P], parameters of the action distribution
    values: tf.Tensor  # [N], in scaled rewards


_Layers = list[tuple[Matrix, tf.Variable]]  # kernel and bias of each layer


def _make_layers(
    make: Parameters, name: str, features: int, sizes: Sequence[int], dtype: tf.DType | None = None
) -> tuple[_Layers, int]:
    """Makes fully connected layers of `sizes` on `features` inputs; returns them and their number of outputs."""
    layers = []
    for index, size in enumerate(sizes):
        kernel = make.matrix(f"{name}{index}/kernel", (features, size), features, dtype)
        layers.append((kernel, make.zeros(f"{name}{index}/bias", size)))
        features = size
    return layers, features


class _Torso:
    """Maps observations to features for the heads: convolutions, fully connected layers, a core. Owns its weights."""

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
                # A single channel is too few for matrix units: that convolution keeps full precision.
                dtype = tf.float32 if channels == 1 else None
                kernel = make.matrix(f"{name}/kernel", (size, size, channels, filters), size * size * channels, dtype)
                self._convolutions.append((kernel, make.zeros(f"{name}/bias", filters), stride))
            features += math.prod(maps[-1])
        self._hidden, features = _make_layers(make, f"{prefix}hidden", features, spec.hidden)
        # These layers are small: rounding would cost more time than it saves.
        self._variable_hidden, joining = _make_layers(
            make, f"{prefix}variables", apart, spec.variable_hidden if apart else (), tf.float32
        )
        self.core = find_core(spec.core)(features + joining + inputs.previous, spec.core_size, make, prefix)

    def run(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Returns the features of observations [T, B, ...] as [T * B, size], and the core state after them."""
        return self.core.run(self._extract_features(tf.nest.map_structure(_fold_time, observations)), resets, core_state)

    def _extract_features(self, observations: Observations) -> tf.Tensor:
        seen = []
        parts = self._inputs.split(observations)
        pixels, variables, previous = (parts.get(name) for name in ("pixels", "variables", "previous"))
        if pixels is not None:
            maps = pixels
            if not self._convolutions:
                maps = (tf.cast(pixels, tf.float32) - self._spec.pixel_mean) / self._spec.pixel_scale
            for index, (kernel, bias, stride) in enumerate(self._convolutions):
                weights = (kernel.read(), bias) if index else self._absorb_scaling(kernel.read(), bias)
                maps = self._activation(_convolve(maps, *weights, stride))
            seen.append(tf.reshape(maps, (-1, int(np.prod(maps.shape[1:])))))
        joining = [] if previous is None else [previous]
        if self._variable_hidden:
            joining.insert(0, self._apply_layers(self._variable_hidden, variables))
        elif variables is not None:
            seen.append(variables)
        return _join([self._apply_layers(self._hidden, _join(seen)), *joining])

    def _apply_layers(self, layers: _Layers, features: tf.Tensor) -> tf.Tensor:
        """Applies fully connected layers to features [N, F]."""
        for kernel, bias in layers:
            matrix = kernel.read()
            features = tf.matmul(tf.cast(features, matrix.dtype), matrix)
            features = self._activation(add_bias(features, bias))
        return features

    def _absorb_scaling(self, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Folds the centring and scaling of the pixels into the first layer's weights, saving a pass over the pixels."""
        kernel = kernel / self._spec.pixel_scale
        return kernel, bias - self._spec.pixel_mean * tf.reduce_sum(tf.cast(kernel, bias.dtype), axis=(0, 1, 2))


class ACNetwork:
    """An actor-critic network: one torso with two heads, or a torso for each head with `shared = false`.

    Owns its variables, in a fixed order that optimizers share; checkpoints store them by name. Initialisation: He uniform
    up to the core, Glorot uniform in an LSTM, forget bias 1, policy columns of norm 0.01, value column of norm 1, heads
    without bias. Pixels are centred and scaled to about unit size. With pixels / 255 and Glorot weights everywhere, as in
    the A3C-Doom agent, the LSTM's initial outputs for different pictures differ by only 0.003, and most of a short training
    is spent on enlarging that difference.

    With `precision` 'bfloat16', or 'auto' on CPUs that are fast with it, large matrix products read rounded copies of the
    weights. Weights, optimizer, recurrent state and heads stay float32; activations before the core and the gradients of
    the large matrices are rounded. Call `refresh` after assigning to `parameters`.
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
        """Makes a network with random weights from `seed`. Identical networks may share the compiled functions in `graphs`.

        Raises:
            UserError: if `spec` names an unknown core.
        """
        self._graphs = graphs or Graphs()
        self.spec, self.inputs, self.distribution, self.name = spec, inputs, distribution, name
        self.version = 0  # of the weights; set by the code that assigns them
        prefixes = ("",) if spec.shared else ("actor/", "critic/")
        if precision == "auto" and inputs.pixels is None:
            precision = "float32"  # small matrices: rounding gains nothing, and kept CartPole from being learned
        self._dtype = choose_matrix_type(precision)
        make = Parameters(seed, self._dtype)
        self._torsos = [_Torso(spec, inputs, make, prefix) for prefix in prefixes]
        features, torsos = self._torsos[0].core.size, list(make.made)
        self._policy = make.columns("policy/kernel", (features, distribution.size - distribution.free), 0.01)
        self._value = make.columns("value/kernel", (features, 1), 1.0)
        self._free = [make.zeros("policy/free", distribution.free, FREE_START)] if distribution.free else []
        self._matrices, self.heads = make.matrices, [self._policy, self._value, *self._free]
        self.parameters: Sequence[tf.Variable] = (*self.heads, *torsos)

    @property
    def input_kernels(self) -> list[tf.Variable]:
        """The weights on the inputs of cores; their last `inputs.previous` rows are those of the previous step."""
        return [kernel.parameter for torso in self._torsos for kernel in torso.core.input_kernels]

    def compile(self, key: Hashable, function: Callable[..., Any], others: Sequence[tf.Variable] = ()) -> Graph:
        """Compiles a function of this network, once for all identical networks that share its graphs.

        Args:
            key: distinguishes the functions of a network, and holds everything else that they depend on.
            function: takes and returns nested tensors.
            others: variables that the function uses besides the network's.
        """
        copies = [matrix.copy for matrix in self._matrices if matrix.copy is not None]
        kind = (self.spec, self.inputs, self.distribution, self._dtype)
        return self._graphs.get((kind, key), function, [*self.parameters, *copies, *others])

    def compile_copy(self, source: ACNetwork) -> Graph:
        """Returns a compiled function that copies the weights of `source`, an identical network, into this one."""

        def copy() -> None:
            for mine, its in zip(self.parameters, source.parameters, strict=True):
                mine.assign(its)
            self.refresh()

        return self.compile("copy", copy, source.parameters)

    def load(self, variables: Mapping[str, NDArray[Any]]) -> None:
        """Loads the weights from `variables`, by name; ignores all other entries.

        Raises:
            KeyError: if a weight is missing.
            ValueError: if a weight has the wrong shape.
        """
        for parameter in self.parameters:
            name = variable_name(parameter)
            value = variables[name]
            if value.shape != parameter.shape:
                raise ValueError(f"{name} has the shape {value.shape}, where {tuple(parameter.shape)} is needed")
            parameter.assign(value)
        self.refresh()

    def refresh(self) -> None:
        """Updates the rounded copies after an assignment to `parameters`; does nothing at full precision."""
        for matrix in self._matrices:
            matrix.refresh()

    def initial_state(self, batch_size: int) -> CoreState:
        """Returns the recurrent state at the start of an episode."""
        return tuple(itertools.chain.from_iterable(torso.core.initial_state(batch_size) for torso in self._torsos))

    def step(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> tuple[NetworkOutput, CoreState]:
        """Decides once for each of B games.

        Args:
            observations: uint8 [B, H, W, C], float32 [B, V], or a dict of the parts in `Inputs`.
            resets: float32 [B], 1 where the observation is the first of an episode.
            core_state: the core state after the previous step, [B, core_size] each.

        Returns:
            The outputs, and the core state after this step.
        """
        observations = tf.nest.map_structure(lambda array: array[None], observations)
        return self.unroll(observations, resets[None], core_state)

    def unroll(
        self, observations: Observations, resets: tf.Tensor, core_state: CoreState
    ) -> tuple[NetworkOutput, CoreState]:
        """Runs over T steps of B games; observations and resets as in `step`, with a leading time axis of static length.

        The time axis is folded into the batch everywhere but in the recurrent part of the core. Outputs are [T * B, ...].
        """
        share = len(core_state) // len(self._torsos)  # parts of the core state per torso
        features, states = zip(
            *(
                torso.run(observations, resets, core_state[index * share : (index + 1) * share])
                for index, torso in enumerate(self._torsos)
            ),
            strict=True,
        )
        values = tf.squeeze(tf.matmul(features[-1], self._value), axis=1)
        return NetworkOutput(self._compute_logits(features[0], observations), values), tuple(itertools.chain(*states))

    def _compute_logits(self, features: tf.Tensor, observations: Observations) -> tf.Tensor:
        """Returns the parameters of the policy, [N, P]: `MASKED` for choices that the observations forbid."""
        logits = tf.matmul(features, self._policy)
        if count := self.inputs.mask:
            allowed = tf.reshape(self.inputs.split(observations)["mask"], (-1, count)) > 0
            logits = tf.concat([tf.where(allowed, logits[:, :count], MASKED), logits[:, count:]], axis=1)
        for free in self._free:  # one at most
            logits = tf.concat([logits, tf.tile(free[None], (tf.shape(logits)[0], 1))], axis=1)
        return logits


def _convolve(maps: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, stride: int) -> tf.Tensor:
    """Convolves maps [N, H, W, C] to [N, H', W', F], without padding.

    If the stride divides the widths of maps and kernel, folds every `stride` columns into channels. That moves nothing in
    memory, and a CPU's vector units prefer more channels with a stride of 1 along the rows.
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
    """Concatenates features [N, F], in the type of the first."""
    return tf.concat([tf.cast(part, parts[0].dtype) for part in parts], axis=1) if len(parts) > 1 else parts[0]


def _fold_time(array: tf.Tensor) -> tf.Tensor:
    return tf.reshape(array, (-1, *array.shape[2:]))
