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
_LOOKS = 50  # a second, at the keys, while it is paused


class Window:
    """Shows pictures in real time, or as much faster as is said. Owns the window, and whether it is paused.

    The space bar pauses and goes on, the right arrow shows the next picture alone, up and down double and halve the speed.
    """

    def __init__(self, title: str, speed: float = 1.0) -> None:
        pygame.display.init()
        pygame.display.set_caption(f"{title} - space: pause, right: one picture, up and down: speed")
        self._clock = pygame.time.Clock()
        self._speed, self._paused = speed, False

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
        self._clock.tick(pictures_per_second * self._speed)
        while not self._obey() and self._paused:
            self._clock.tick(_LOOKS)

    def _obey(self) -> bool:
        """Does what keys say; tells whether the next picture is to be shown."""
        step = False
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                raise KeyboardInterrupt
            if event.type != pygame.KEYDOWN:
                continue
            if event.key == pygame.K_SPACE:
                self._paused = not self._paused
            elif event.key == pygame.K_RIGHT:
                self._paused = step = True
            elif event.key in (pygame.K_UP, pygame.K_DOWN):
                self._speed *= 2.0 if event.key == pygame.K_UP else 0.5
        return step

    def close(self) -> None:
        """Closes the window."""
        pygame.display.quit()
