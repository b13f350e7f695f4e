"""ViZDoom's basic through ViZDoom's own Gymnasium environment, seen as this program's scenario file sets it."""

from __future__ import annotations

from typing import Any

import gymnasium
import vizdoom.gymnasium_wrapper  # noqa: F401  # registers the environments

SETTINGS: dict[str, Any] = {
    "screen_resolution": "RES_160X120",
    "screen_format": "GRAY8",
    "render_hud": False,
    "render_crosshair": False,
    "render_weapon": True,
    "render_decals": False,
    "render_particles": False,
}


def basic(frame_skip: int) -> gymnasium.Env[Any, Any]:
    """Returns a game: grey pictures of 160x120, no button or one of three, the game's own rewards."""
    return gymnasium.make("VizdoomBasic-v1", disable_env_checker=True, frame_skip=frame_skip, **SETTINGS)
