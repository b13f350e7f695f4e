"""The network that a scenario asks for: its layers, and what of them is possible."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from doom_a3c.settings.fields import require
from doom_a3c.settings.games import Observation

MAX_PARAMETERS = 50_000_000  # with the optimizer's 600 MB
MAX_BETWEEN = 4_000_000  # numbers that the convolutions make of one picture: 16 MB
ACTIVATIONS = ("elu", "relu", "relu6", "tanh")


@dataclass(frozen=True, kw_only=True)
class Network:
    """The ACNetwork; the default sizes are the A3C-Doom agent's. Convolutions are for pixels alone."""

    pixel_mean: float = 64.0  # the network sees (pixels - pixel_mean) / pixel_scale
    pixel_scale: float = 64.0
    convolutions: tuple[tuple[int, ...], ...] = ((16, 8, 4), (32, 4, 2))  # filters, kernel size, stride
    hidden: tuple[int, ...] = (256,)  # sizes of the fully connected layers
    variable_hidden: tuple[int, ...] = ()  # of those of variables beside a picture, which then join it at the core
    activation: str = "elu"  # or 'relu', 'relu6', 'tanh', of all layers before the core
    core: str = "lstm"  # 'skip_lstm', heads see its inputs too, or 'none'; agent/cores.py knows all
    core_size: int = 256
    shared: bool = True  # actor and critic are two heads of one network, or a network each


def check_network(network: Network, observation: Observation) -> None:
    """Raises UserError for layers that do not fit the observation, or each other, or are too many."""
    require(1e-6 <= network.pixel_scale <= 1e6, "[network] pixel_scale must be 1e-6 to 1e6")
    require(abs(network.pixel_mean) <= 1e6, "[network] pixel_mean must be within 1e6 of 0")
    require(network.activation in ACTIVATIONS, f"[network] activation must be one of {', '.join(ACTIVATIONS)}")
    sizes = (*network.hidden, *network.variable_hidden, network.core_size)
    require(
        all(type(size) is int and size >= 1 for size in sizes),
        "[network] hidden, variable_hidden and core_size must be 1 or more",
    )
    apart = _weights(1, network.variable_hidden)  # by themselves: which numbers a game shows may not be known yet
    require(apart <= MAX_PARAMETERS, f"[network] variable_hidden has {apart:,} parameters, {MAX_PARAMETERS:,} at most")
    for layer in network.convolutions:
        require(
            isinstance(layer, tuple) and len(layer) == 3 and all(type(part) is int and part >= 1 for part in layer),
            "[network] a convolution is [filters, size, stride], each 1 or more",
        )
    maps = maps_of(network, (*observation.size, observation.channels))
    require(all(min(shape) >= 1 for shape in maps[1:]), "[network] the convolutions are too large for the observation size")


def maps_of(network: Network, pixels: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns height, width and channels of a picture, and of what each convolution makes of it."""
    maps = [pixels]
    for filters, size, stride in network.convolutions:
        height, width, _ = maps[-1]
        maps.append(((height - size) // stride + 1, (width - size) // stride + 1, filters))
    return maps


def check_size(network: Network, pixels: tuple[int, ...] | None, numbers: int) -> None:
    """Raises UserError for too many parameters, or numbers between the layers.

    Args:
        network: the layers.
        pixels: height, width and channels of a picture, None where none is seen.
        numbers: how many are seen besides.
    """
    seen = sum((math.prod(shape) for shape in maps_of(network, pixels)[1:]), start=pixels[-1]) if pixels else 0
    require(seen <= MAX_BETWEEN, f"[network] convolutions make {seen:,} numbers of a picture, {MAX_BETWEEN:,} at most")
    parameters = parameters_of(network, pixels, numbers)
    require(
        parameters <= MAX_PARAMETERS,
        f"[network] would have {parameters:,} parameters or more, {MAX_PARAMETERS:,} at most: make hidden, "
        "variable_hidden, core_size or convolutions smaller",
    )


def numbers_apart(network: Network, pixels: tuple[int, ...] | None, numbers: int) -> int:
    """Returns how many of the numbers have layers of their own: all or none, and none without a picture beside them."""
    return numbers if pixels is not None and network.variable_hidden else 0


def parameters_of(network: Network, pixels: tuple[int, ...] | None, numbers: int) -> int:
    """Returns how many parameters the layers before the heads have, at least, for what the network sees."""
    apart = numbers_apart(network, pixels, numbers)
    count, features = 0, numbers - apart
    if pixels is not None:
        maps = maps_of(network, pixels)
        for (filters, size, _), (*_, channels) in zip(network.convolutions, maps, strict=False):
            count += size * size * channels * filters
        features += math.prod(maps[-1])
    count += _weights(features, network.hidden)
    features = (features, *network.hidden)[-1]
    if apart:
        count += _weights(apart, network.variable_hidden)
        features += network.variable_hidden[-1]
    gates = {"none": 0, "lstm": 4, "skip_lstm": 4}.get(network.core, 1)  # agent/cores.py may know others
    count += gates * network.core_size * (features + network.core_size)
    return count if network.shared else 2 * count


def _weights(features: int, sizes: tuple[int, ...]) -> int:
    """Returns how many weights fully connected layers of those sizes have over so many features."""
    return sum(before * size for before, size in itertools.pairwise((features, *sizes)))
