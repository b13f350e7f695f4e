"""Two of Gymnasium's Box2D games spend most of their time on pictures that nobody sees; here they do not.

CarRacing draws an observation after every frame, with the whole map: nine tenths of its time. Here it draws only the frames
that the agent sees, and only the part of the map in the window. LunarLander adds its engines' flames to the physics unless
made without a render mode: five sixths of its time. Here they appear from the first picture on. Nothing else changes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

_CAR_RACING, _LUNAR_LANDER = (f"gymnasium.envs.box2d.{name}" for name in ("car_racing", "lunar_lander"))


def speed_up_drawing(env: gymnasium.Env[Any, Any]) -> Callable[[bool], None] | None:
    """Returns a function that switches the drawing of observations on or off; None for any game but CarRacing.

    While drawing is off, frames return the last drawn observation.
    """
    game: Any = env.unwrapped
    if type(game).__module__ != _CAR_RACING:
        return None
    draw, draws = game._render, True

    def render(mode: str) -> Any:
        return draw(mode) if draws or mode != "state_pixels" else game.state

    def switch(on: bool) -> None:
        nonlocal draws
        draws = on

    game._render = render
    game._render_road = _Road(game).draw
    return switch


def hide_flames(env: gymnasium.Env[Any, Any]) -> None:
    """Makes LunarLander add its flames only once a first picture has been rendered; does nothing to other games."""
    game: Any = env.unwrapped
    if type(game).__module__ != _LUNAR_LANDER:
        return
    add, render = game._create_particle, game.render
    nothing = SimpleNamespace(ApplyLinearImpulse=lambda *impulse: None)

    def show_and_render() -> Any:
        game._create_particle, game.render = add, render
        return render()

    game._create_particle, game.render = lambda *flame: nothing, show_and_render


class _Road:
    """Draws the grass and the road of one game, but only the polygons in the window."""

    def __init__(self, game: Any) -> None:
        self._game = game
        self._map = importlib.import_module(_CAR_RACING)  # it needs the optional package box2d
        size = self._map.GRASS_DIM
        square = np.array([(size, 0), (0, 0), (0, size), (size, size)])
        places = np.array([(size * x, size * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)])
        self._grass = places[:, None] + square
        self._road: Any = None  # the polygons with corners in `_corners`; each episode has a new list
        self._corners = self._grass

    def draw(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        """Draws what CarRacing's own `_render_road` would, without testing the polygons one by one."""
        game, border = self._game, self._map.PLAYFIELD
        if game.road_poly is not self._road:
            self._road = game.road_poly
            self._corners = np.concatenate([self._grass, [corners for corners, _ in self._road]])
        field = [(border, border), (border, -border), (-border, -border), (-border, border)]
        game._draw_colored_polygon(game.surf, field, game.bg_color, zoom, translation, angle, clip=False)
        for index in self._find_visible(zoom, translation, angle):
            road = index - len(self._grass)
            color = game.grass_color if road < 0 else [int(part) for part in self._road[road][1]]
            game._draw_colored_polygon(game.surf, self._corners[index].tolist(), color, zoom, translation, angle)

    def _find_visible(self, zoom: float, translation: tuple[float, float], angle: float) -> NDArray[np.intp]:
        """Returns the polygons that `_draw_colored_polygon` would draw, with a pixel to spare for rounding."""
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        corners = self._corners @ turn * zoom + translation
        spare = self._map.MAX_SHAPE_DIM + 1
        window = np.array([self._map.WINDOW_W, self._map.WINDOW_H])
        inside = ((corners >= -spare) & (corners <= window + spare)).all(axis=-1).any(axis=-1)
        return np.flatnonzero(inside)
