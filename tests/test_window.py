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


@pytest.mark.parametrize(("given", "taken"), [({}, "0"), ({"SDL_FRAMEBUFFER_ACCELERATION": "1"}, "1")])
def test_a_window_is_drawn_without_opengl(root, given, taken, monkeypatch):
    monkeypatch.delenv("SDL_FRAMEBUFFER_ACCELERATION", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert output_of("-c", WINDOW, cwd=root, **given) == taken
