"""CarRacing draws an observation after every frame, nine tenths of its time; of a step's frames the agent sees the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

_MODULE = "gymnasium.envs.box2d.car_racing"


def find_drawing_switch(env: gymnasium.Env[Any, Any]) -> Callable[[bool], None] | None:
    """Returns a function that switches the drawing of observations on or off; None for any other game.

    While drawing is off, frames return the last drawn observation.
    """
    game: Any = env.unwrapped
    if type(game).__module__ != _MODULE:
        return None
    draw, draws = game._render, True

    def render(mode: str) -> Any:
        return draw(mode) if draws or mode != "state_pixels" else game.state

    def switch(on: bool) -> None:
        nonlocal draws
        draws = on

    game._render = render
    return switch
