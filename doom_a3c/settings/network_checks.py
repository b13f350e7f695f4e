"""Checks of a scenario's network: shapes of its layers, and its size."""

from __future__ import annotations

import itertools
import math

from doom_a3c.settings.errors import require
from doom_a3c.settings.network import Network, compute_maps, count_separate_numbers

MAX_PARAMETERS = 50_000_000  # 600 MB with the optimizer's statistics
MAX_OUTPUTS = 4_000_000  # outputs of all convolutions for one picture: 16 MB
ACTIVATIONS = ("elu", "relu", "relu6", "tanh")


def check_network(network: Network, pixels: tuple[int, ...]) -> None:
    """Raises UserError for layers that do not fit each other, or pictures of this height, width and channels."""
    require(1e-6 <= network.pixel_scale <= 1e6, "[network] pixel_scale must be 1e-6 to 1e6")
    require(abs(network.pixel_mean) <= 1e6, "[network] pixel_mean must be within 1e6 of 0")
    require(network.activation in ACTIVATIONS, f"[network] activation must be one of {', '.join(ACTIVATIONS)}")
    sizes = (*network.hidden, *network.variable_hidden, network.core_size)
    require(
        all(type(size) is int and size >= 1 for size in sizes),
        "[network] hidden, variable_hidden and core_size must be 1 or more",
    )
    apart = _count_weights(1, network.variable_hidden)  # alone, as the observed numbers may not be known yet
    require(apart <= MAX_PARAMETERS, f"[network] variable_hidden has {apart:,} parameters, {MAX_PARAMETERS:,} at most")
    for layer in network.convolutions:
        require(
            isinstance(layer, tuple) and len(layer) == 3 and all(type(part) is int and part >= 1 for part in layer),
            "[network] a convolution is [filters, size, stride], each 1 or more",
        )
    maps = compute_maps(network, pixels)
    require(all(min(shape) >= 1 for shape in maps[1:]), "[network] the convolutions are too large for the observation size")


def check_size(network: Network, pixels: tuple[int, ...] | None, numbers: int) -> None:
    """Raises UserError for too many parameters or outputs of convolutions.

    Args:
        network: the layers.
        pixels: height, width and channels of the picture, None without one.
        numbers: count of the other observed numbers.
    """
    outputs = sum((math.prod(shape) for shape in compute_maps(network, pixels)[1:]), start=pixels[-1]) if pixels else 0
    require(outputs <= MAX_OUTPUTS, f"[network] convolutions have {outputs:,} outputs per picture, {MAX_OUTPUTS:,} at most")
    parameters = count_parameters(network, pixels, numbers)
    require(
        parameters <= MAX_PARAMETERS,
        f"[network] would have {parameters:,} parameters or more, {MAX_PARAMETERS:,} at most: make hidden, "
        "variable_hidden, core_size or convolutions smaller",
    )


def count_parameters(network: Network, pixels: tuple[int, ...] | None, numbers: int) -> int:
    """Returns a lower bound of the parameters before the heads, for pixels of this shape and that many numbers."""
    apart = count_separate_numbers(network, pixels, numbers)
    count, features = 0, numbers - apart
    if pixels is not None:
        maps = compute_maps(network, pixels)
        for (filters, size, _), (*_, channels) in zip(network.convolutions, maps, strict=False):
            count += size * size * channels * filters
        features += math.prod(maps[-1])
    count += _count_weights(features, network.hidden)
    features = (features, *network.hidden)[-1]
    if apart:
        count += _count_weights(apart, network.variable_hidden)
        features += network.variable_hidden[-1]
    gates = {"none": 0, "lstm": 4, "skip_lstm": 4}.get(network.core, 1)  # agent/cores.py may know others
    count += gates * network.core_size * (features + network.core_size)
    return count if network.shared else 2 * count


def _count_weights(features: int, sizes: tuple[int, ...]) -> int:
    """Returns the number of weights in fully connected layers of these sizes with that many input features."""
    return sum(before * size for before, size in itertools.pairwise((features, *sizes)))
