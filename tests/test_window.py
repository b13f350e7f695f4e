"""The window that shows a game to people."""

import pytest
from commands import output_of

WINDOW = """
import os, sys
import numpy
from doom_a3c.cli.window import Window
print(os.environ["SDL_FRAMEBUFFER_ACCELERATION"])
window = Window("game")
for shade in range(3):
    window.show(numpy.full((24, 32, 3), shade, numpy.uint8), 1000)
window.close()
"""


KEYS = """
import numpy, pygame
from doom_a3c.cli.window import Window
window, ticks = Window("game", 2.0), []
class Clock:
    def tick(self, rate):
        ticks.append(rate)
        if len(ticks) == 7:  # it has been paused for a while
            press(pygame.K_SPACE)
def press(key):
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))
def show(*keys):
    for key in keys:
        press(key)
    window.show(numpy.zeros((24, 32, 3), numpy.uint8), 10)
window._clock = Clock()
show()
show(pygame.K_RIGHT)  # pauses, and lets one picture pass
show()  # stays until the space bar is pressed
show(pygame.K_UP)
show(pygame.K_DOWN, pygame.K_DOWN)
show()
pygame.event.post(pygame.event.Event(pygame.QUIT))
try:
    show()
except KeyboardInterrupt:
    print(*ticks)
"""


def test_keys_pause_step_and_change_the_speed(root, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    ticks = output_of("-c", KEYS, cwd=root).split()
    assert ticks == ["20.0", "20.0", "20.0", "50", "50", "50", "50", "20.0", "40.0", "10.0", "10.0"]


@pytest.mark.parametrize(("given", "taken"), [({}, "0"), ({"SDL_FRAMEBUFFER_ACCELERATION": "1"}, "1")])
def test_a_window_uses_opengl_only_on_request(root, given, taken, monkeypatch):
    monkeypatch.delenv("SDL_FRAMEBUFFER_ACCELERATION", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert output_of("-c", WINDOW, cwd=root, **given) == taken
