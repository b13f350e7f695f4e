"""A window that shows a game to people."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
# Mesa and TensorFlow each bring an LLVM of their own, and a window drawn by OpenGL crashes where both are loaded.
os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
import pygame  # comes with ViZDoom and Gymnasium; it greets on import unless told not to

_HEIGHT = 480


class Window:
    """Shows pictures in real time. Owns the window."""

    def __init__(self, title: str) -> None:
        pygame.display.init()
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()

    def show(self, picture: NDArray[np.uint8], pictures_per_second: float) -> None:
        """Shows a picture, [height, width, 3], for as long as it lasts; closing the window is a Ctrl-C."""
        height, width, _ = picture.shape
        size = (width * _HEIGHT // height, _HEIGHT)
        screen = pygame.display.get_surface()
        if screen is None or screen.get_size() != size:
            screen = pygame.display.set_mode(size)
        surface = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
        pygame.transform.scale(surface, size, screen)
        pygame.display.flip()
        if pygame.event.get(pygame.QUIT):
            raise KeyboardInterrupt
        self._clock.tick(pictures_per_second)

    def close(self) -> None:
        """Closes the window."""
        pygame.display.quit()
