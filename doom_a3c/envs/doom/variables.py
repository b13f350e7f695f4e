"""Scales game variables for the network, and reflects them in mirrored games."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ANGLES = ("ANGLE", "CAMERA_ANGLE", "ROLL", "CAMERA_ROLL")  # degrees; the engine's go from 0 to 360
# Variables that change sign when the map is reflected in the line y = 0.
ACROSS = (*ANGLES, "POSITION_Y", "VELOCITY_Y", "CAMERA_POSITION_Y")


class GameVariables:
    """Converts the engine's game variables to the network's input."""

    def __init__(self, names: Sequence[str], scales: Sequence[float], in_mirror: bool) -> None:
        """`scales` has one factor per variable; if empty, all are 1."""
        signs = [-1.0 if in_mirror and name in ACROSS else 1.0 for name in names]
        self._factors = np.asarray(scales or np.ones(len(names)), np.float32) * np.asarray(signs, np.float32)
        self._angles = np.asarray([name in ANGLES for name in names], bool)

    def convert(self, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Returns the float32 inputs, [V], for the variables of one frame; angles are mapped to -180 to 180 degrees."""
        numbers = np.asarray(values, np.float32)
        scaled: npt.NDArray[np.float32] = np.where(self._angles, (numbers + 180.0) % 360.0 - 180.0, numbers) * self._factors
        return scaled.astype(np.float32)
