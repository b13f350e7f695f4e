"""The network's inputs: the parts of an observation, and their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# Pixels, uint8 [..., H, W, C], or numbers, float32 [..., V], or several parts by their names in `Inputs`.
Observations: TypeAlias = NDArray[Any] | tf.Tensor | Mapping[str, NDArray[Any] | tf.Tensor]


class Inputs(NamedTuple):
    """Shapes of the network's inputs: the parts of an observation, which is a dict with these names if it has several."""

    pixels: tuple[int, int, int] | None  # height, width, channels of uint8 pixels; None without pixels
    variables: int  # number of float32 variables; 0 without variables
    mask: int = 0  # number of choices that the game may forbid: uint8, 1 if allowed; 0 without masks
    previous: int = 0  # number of float32 numbers about the previous step, from `PreviousSteps`

    @property
    def parts(self) -> dict[str, tuple[tuple[int, ...], type[np.generic]]]:
        """Shape and type of each part, without batch axes."""
        numbers = {"variables": self.variables, "mask": self.mask, "previous": self.previous}
        pixels: dict[str, Any] = {} if self.pixels is None else {"pixels": (self.pixels, np.uint8)}
        types = {"mask": np.uint8}
        return pixels | {name: ((size,), types.get(name, np.float32)) for name, size in numbers.items() if size}

    def split(self, observations: Observations) -> dict[str, Any]:
        """Returns the parts of observations by name."""
        if isinstance(observations, Mapping):
            return dict(observations)
        (name,) = self.parts
        return {name: observations}

    def join(self, parts: Mapping[str, Any]) -> Any:
        """Returns the observations with these parts, the inverse of `split`."""
        return next(iter(parts.values())) if len(self.parts) == 1 else dict(parts)

    def make_zeros(self, batch: int) -> Observations:
        """Returns all-zero observations, [batch, ...], whose masks allow every action."""
        zeros = {name: np.zeros((batch, *shape), dtype) for name, (shape, dtype) in self.parts.items()}
        if self.mask:
            zeros["mask"][:] = 1
        observations: Observations = self.join(zeros)
        return observations


def read_input_shapes(space: Any) -> Inputs:
    """Returns the input shapes of an observation space: pixels, variables, or a dict of the parts in `Inputs`."""
    if hasattr(space, "spaces"):
        shapes = {name: tuple(part.shape) for name, part in space.spaces.items()}
        sizes = {name: shape[0] for name, shape in shapes.items() if name != "pixels"}
        return Inputs(shapes.get("pixels"), sizes.get("variables", 0), sizes.get("mask", 0))
    return Inputs(tuple(space.shape), 0) if len(space.shape) == 3 else Inputs(None, space.shape[0])
