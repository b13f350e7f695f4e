"""Converts a game's screens to observations for the network, and to pictures for people."""

from __future__ import annotations

from collections import deque

import cv2
import numpy as np
from numpy.typing import NDArray

from doom_a3c.settings.games import Observation

Pixels = NDArray[np.uint8]  # [h, w], or [h, w, channels]

cv2.setNumThreads(1)  # the games already use all cores


def preprocess(screen: Pixels, spec: Observation) -> Pixels:
    """Crops and scales a screen, [h, w] or [h, w, 3], to a new array, [H, W, C]."""
    top, bottom, left, right = spec.crop
    cropped = screen[top : screen.shape[0] - bottom, left : screen.shape[1] - right]
    height, width = spec.size
    if cropped.shape[:2] != (height, width):
        halves = 2 * height <= cropped.shape[0] or 2 * width <= cropped.shape[1]
        method = cv2.INTER_AREA if halves else cv2.INTER_LINEAR  # linear costs a fifth, but skips pixels below half size
        cropped = cv2.resize(cropped, (width, height), interpolation=method).astype(np.uint8, copy=False)
    else:
        cropped = cropped.copy()  # a game may draw its next frame into the same memory
    return cropped if cropped.ndim == 3 else cropped[..., None]


def to_rgb(screen: Pixels) -> Pixels:
    """Returns a grey or colour screen as [h, w, 3]."""
    return screen if screen.ndim == 3 else np.repeat(screen[..., None], 3, axis=2)


class History:
    """The newest preprocessed frames of an episode. Owns the frames."""

    def __init__(self, spec: Observation) -> None:
        self._spec = spec
        self._frames: deque[Pixels] = deque(maxlen=spec.stack)

    def clear(self) -> None:
        self._frames.clear()

    def add(self, screen: Pixels) -> None:
        """Adds a screen, [h, w] or [h, w, 3]; the first of an episode fills the whole history."""
        self._frames.append(preprocess(screen, self._spec))
        while len(self._frames) < self._spec.stack:
            self._frames.append(self._frames[0])

    def stack(self) -> Pixels:
        """Returns the frames as channels, oldest first, [H, W, C]."""
        return self._frames[0] if len(self._frames) == 1 else np.concatenate(self._frames, axis=-1)
