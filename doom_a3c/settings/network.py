"""The layers of the network that a scenario asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Network:
    """The ACNetwork; the default sizes are the A3C-Doom agent's. Convolutions apply to pixels only."""

    pixel_mean: float = 64.0  # the network sees (pixels - pixel_mean) / pixel_scale
    pixel_scale: float = 64.0
    convolutions: tuple[tuple[int, ...], ...] = ((16, 8, 4), (32, 4, 2))  # filters, kernel size, stride
    hidden: tuple[int, ...] = (256,)  # sizes of the fully connected layers
    variable_hidden: tuple[int, ...] = ()  # separate layers for variables beside a picture; both join at the core
    activation: str = "elu"  # or 'relu', 'relu6', 'tanh'; for all layers before the core
    core: str = "lstm"  # or 'skip_lstm' (its inputs go to the heads, too), 'gru', 'min_gru' (linear), 'none'
    core_size: int = 256
    previous_action: bool = False  # whether the core sees the previous action; zeros at the start of an episode
    previous_reward: bool = False  # likewise the previous reward, as scaled for learning, with all shaping
    shared: bool = True  # whether actor and critic are two heads of one network, or two networks


def compute_maps(network: Network, pixels: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the shapes (height, width, channels) of a picture and of each convolution's output."""
    maps = [pixels]
    for filters, size, stride in network.convolutions:
        height, width, _ = maps[-1]
        maps.append(((height - size) // stride + 1, (width - size) // stride + 1, filters))
    return maps


def count_separate_numbers(network: Network, pixels: tuple[int, ...] | None, numbers: int) -> int:
    """Returns how many numbers have separate layers: all beside a picture if there is `variable_hidden`, else none."""
    return numbers if pixels is not None and network.variable_hidden else 0
