"""A window that shows a game."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
# Mesa and TensorFlow each bring their own LLVM; an OpenGL window crashes with both loaded.
os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
import pygame  # a dependency of ViZDoom and Gymnasium; prints a greeting on import unless the variable above is set

from doom_a3c.settings.errors import UserError

_HEIGHT = 480
_POLLS_PER_SECOND = 50  # of the keyboard while paused
_UNSEEN = ("dummy", "offscreen")  # SDL's drivers without a screen


def _open_display() -> None:
    """Raises UserError if the display cannot be reached."""
    name = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    try:
        pygame.display.init()
    except pygame.error as error:
        raise UserError(f"the display {name} cannot be opened: {error}") from None
    if pygame.display.get_driver() in _UNSEEN and not os.environ.get("SDL_VIDEODRIVER"):  # SDL's last resort
        pygame.display.quit()
        raise UserError(f"the display {name} cannot be reached: correct DISPLAY, or log in with ssh -X")


class Window:
    """Shows pictures in real time, or `speed` times as fast. Owns the window and its pause state.

    Space pauses and resumes, the right arrow shows the next picture, up and down double and halve the speed.
    """

    def __init__(self, title: str, speed: float = 1.0) -> None:
        """Connects to the display, for a window that opens with the first picture; raises UserError if it cannot."""
        _open_display()
        pygame.display.set_caption(f"{title} - space: pause, right: one picture, up and down: speed")
        self._clock = pygame.time.Clock()
        self._speed, self._paused = speed, False

    def show(self, picture: NDArray[np.uint8], pictures_per_second: float) -> None:
        """Shows a picture, [height, width, 3], for its duration; closing the window acts as Ctrl-C."""
        height, width, _ = picture.shape
        size = (width * _HEIGHT // height, _HEIGHT)
        screen = pygame.display.get_surface()
        if screen is None or screen.get_size() != size:
            screen = pygame.display.set_mode(size)
        surface = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
        pygame.transform.scale(surface, size, screen)
        pygame.display.flip()
        self._clock.tick(pictures_per_second * self._speed)
        while not self._handle_keys() and self._paused:
            self._clock.tick(_POLLS_PER_SECOND)

    def _handle_keys(self) -> bool:
        """Handles the pressed keys; returns whether to show the next picture."""
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


class PlayerWindow(Window):
    """Shows a player's screen, and reads keyboard and mouse. Owns the states of the keys."""

    # The keys or mouse buttons for each of `envs.doom.human_seat.CONTROLS`, except the turn.
    _KEYS = (
        (pygame.K_w, pygame.K_UP),
        (pygame.K_s, pygame.K_DOWN),
        (pygame.K_a,),
        (pygame.K_d,),
        (),
        (pygame.K_LCTRL, pygame.K_RCTRL, pygame.BUTTON_LEFT),
        (pygame.K_e, pygame.K_SPACE),
        (pygame.K_LSHIFT, pygame.K_RSHIFT),
        (pygame.K_q,),
    )
    _TURN = 4
    _KEY_DEGREES, _MOUSE_DEGREES = 5.0, 0.2  # per frame, and per pixel

    def __init__(self, title: str) -> None:
        super().__init__(title)
        pygame.display.set_caption(
            f"{title} - WASD or arrows, mouse turns and fires, Ctrl fires, E uses, Shift runs, Q changes weapon, Esc ends"
        )
        self.left = False  # whether the person has ended the match
        self.interrupted = False  # whether it ends with the next picture, as by Ctrl-C
        self._pressed: set[int] = set()
        self._moved = 0  # pixels of the mouse since the controls were read

    def show(self, picture: NDArray[np.uint8], pictures_per_second: float) -> None:
        super().show(picture, pictures_per_second)
        pygame.event.set_grab(True)
        pygame.mouse.set_visible(False)

    def _handle_keys(self) -> bool:
        if self.interrupted:
            raise KeyboardInterrupt
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                self.left = True
                raise KeyboardInterrupt
            if event.type in (pygame.KEYDOWN, pygame.MOUSEBUTTONDOWN):
                self._pressed.add(event.key if event.type == pygame.KEYDOWN else event.button)
            elif event.type in (pygame.KEYUP, pygame.MOUSEBUTTONUP):
                self._pressed.discard(event.key if event.type == pygame.KEYUP else event.button)
            elif event.type == pygame.MOUSEMOTION:
                self._moved += event.rel[0]
        return True

    def read_controls(self) -> list[float]:
        """Returns the states of `envs.doom.human_seat.CONTROLS`: 1 for pressed, and degrees to the right."""
        states = [float(not self._pressed.isdisjoint(keys)) for keys in self._KEYS]
        keys = (pygame.K_RIGHT in self._pressed) - (pygame.K_LEFT in self._pressed)
        states[self._TURN] = keys * self._KEY_DEGREES + self._moved * self._MOUSE_DEGREES
        self._moved = 0
        return states
