"""Checks of scenarios from any source: names, values, sizes and ranges."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from doom_a3c.settings.errors import UserError, error_context, require
from doom_a3c.settings.fields import parse_values
from doom_a3c.settings.games import RULE, AtariSpec, DoomSpec, Observation
from doom_a3c.settings.setting import MAX_TEXT
from doom_a3c.settings.shaping import parse_weights
from doom_a3c.settings.vizdoom import VizdoomSettings

NAME = re.compile(r"[^/\\.~-][^/\\]{0,199}")
MAX_SCALE = 1e6  # of a game variable: sums must stay finite


def parse_name(value: object) -> str:
    """Returns `value` if it is a valid name of a scenario or a run; raises ValueError if not."""
    if not is_name(value):
        raise ValueError(f"{str(value)[:40]!r} is not a name")
    return str(value)


def is_name(value: object) -> bool:
    """Returns whether a value may name a scenario or a run, and so a folder."""
    return isinstance(value, str) and bool(NAME.fullmatch(value)) and value.isprintable() and len(value.encode()) <= 200


def check_values(value: object, depth: int = 0) -> None:
    """Raises UserError for a value that no scenario has: untrusted ones would reach file names and the terminal."""
    if isinstance(value, Mapping):
        require(depth < 8 and len(value) < 1000, "a table or list is too large")
        for key, part in value.items():
            check_values(key, depth + 1)
            with error_context(str(key)):
                check_values(part, depth + 1)
    elif isinstance(value, list | tuple):
        require(depth < 8 and len(value) < 1000, "a table or list is too large")
        for part in value:
            check_values(part, depth + 1)
    elif isinstance(value, str):
        require(
            value.isprintable() and len(value) <= MAX_TEXT,
            f"{value[:40]!r} must be one line of {MAX_TEXT} characters at most",
        )
    elif isinstance(value, float):
        require(math.isfinite(value), f"{value} is not a finite number")
    elif isinstance(value, int):
        require(abs(value) < 2**31, "whole numbers must be within 2,147,483,647 of 0")
    else:  # such as a date of TOML
        require(value is None, f"{value} is neither a number nor text")


def check_doom(game: DoomSpec, observation: Observation) -> None:
    """Raises UserError for mistakes in a Doom game that can be found without ViZDoom."""
    require(
        bool(game.wad or game.available_buttons), "[game] needs a config or a wad, or the id of a Gymnasium environment"
    )
    require(all(isinstance(name, str) for name in game.available_buttons), "[game] available_buttons takes names")
    parse_values(VizdoomSettings, game.settings, "[game.settings]")
    require(
        game.settings.get("episode_timeout") != 0,
        "episode_timeout = 0 disables the time-out: set the maximum frames of an episode, such as 2100, or leave it out if "
        "every episode ends by itself",
    )
    rules = all(RULE.fullmatch(str(name)) and type(number) is int for name, number in game.rules.items())
    require(rules, "[game.rules] takes whole numbers for sv_ variables of the engine, such as sv_noautoaim = 1")
    require(all(isinstance(name, str) for name in game.variables), "[game] variables takes names, such as ['HEALTH']")
    parse_weights(game.shaping)
    numbers = all(type(scale) in (int, float) and abs(scale) <= MAX_SCALE for scale in game.variable_scales)
    require(
        numbers and len(game.variable_scales) in (0, len(game.variables)),
        f"[game] variable_scales needs one number a variable, {MAX_SCALE:,.0f} at most",
    )
    if not (sides := re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", observation.resolution)):
        raise UserError(f"[observation] resolution must look like '160x120', not {observation.resolution!r}")
    width, height = map(int, sides.groups())
    crop = observation.crop
    require(len(crop) == 4, "[observation] crop must be [top, bottom, left, right]")
    require(all(type(side) is int and side >= 0 for side in crop), "[observation] crop takes whole numbers")
    require(crop[0] + crop[1] < height and crop[2] + crop[3] < width, "[observation] crop leaves nothing")


def check_atari(game: AtariSpec) -> None:
    """Raises UserError for an Atari game with a number out of range."""
    require(0 <= game.sticky_actions <= 1, "[game] sticky_actions is a probability, 0 to 1")
    require(0 <= game.noop_max <= 10_000, "[game] noop_max must be 0 to 10,000")
    require(game.max_frames >= 1, "[game] max_frames must be 1 or more")


def check_observation(observation: Observation) -> None:
    """Raises UserError for a size or stack out of range."""
    size = observation.size
    require(all(type(side) is int for side in size), "[observation] size takes whole numbers")
    fits = len(size) == 2 and min(size) > 0 and max(size) <= 1024
    require(fits, f"[observation] size must be [height, width], each 1 to 1024, not {list(size)}")
    require(1 <= observation.stack <= 16, "[observation] stack must be 1 to 16")
