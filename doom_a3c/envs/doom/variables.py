"""Game variables as a network is shown them: in numbers of its own scale, and in a mirror as the picture is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ANGLES = ("ANGLE", "CAMERA_ANGLE", "ROLL", "CAMERA_ROLL")  # degrees; the engine's go from 0 to 360
# What is turned to its opposite where the map is reflected in the line y = 0.
ACROSS = (*ANGLES, "POSITION_Y", "VELOCITY_Y", "CAMERA_POSITION_Y")


class GameVariables:
    """Turns what the engine tells into what the network is shown."""

    def __init__(self, names: Sequence[str], scales: Sequence[float], in_mirror: bool) -> None:
        """`scales` are factors on each, all 1 where there are none."""
        signs = [-1.0 if in_mirror and name in ACROSS else 1.0 for name in names]
        self._factors = np.asarray(scales or np.ones(len(names)), np.float32) * np.asarray(signs, np.float32)
        self._angles = np.asarray([name in ANGLES for name in names], bool)

    def shown(self, told: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Returns the numbers of one frame; an angle is within 180 degrees of 0, to either side."""
        numbers = np.asarray(told, np.float32)
        shown: npt.NDArray[np.float32] = np.where(self._angles, (numbers + 180.0) % 360.0 - 180.0, numbers) * self._factors
        return shown.astype(np.float32)
