"""Limits on the game of a checkpoint: it may be a stranger's, so it cannot name a program, a file or a module.

docs/security.md describes the threats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from doom_a3c.settings.catalog import find
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import FUNCTION, locate
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.scenarios import to_plain

_BARE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,100}")
_ID = re.compile(
    r"(?!GymV2|doom_a3c/)([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]{1,100}-v\d{1,4}"
)  # the excluded ones create other environments by name
_MAKE_ARGUMENTS = ("render_mode", "max_episode_steps", "disable_env_checker", "id")  # arguments of gymnasium.make itself
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]{0,100}")


class GameOverride(NamedTuple):
    """The user's replacement for the game of a checkpoint."""

    scenario: str | None = None  # its game is played instead
    wad: str | None = None  # a file that replaces the game's wad
    env: Callable[[], Any] | None = None  # makes the environment, for a checkpoint that names only a function


NO_OVERRIDE = GameOverride()


def check_game_allowed(game: Mapping[str, Any], source: str, override: GameOverride = NO_OVERRIDE) -> dict[str, Any]:
    """Returns the [game] table of a checkpoint, or the user's replacement.

    Args:
        game: the table, with values of any type.
        source: the checkpoint, for messages.
        override: the user's replacement.

    Raises:
        UserError: if it names anything that ViZDoom or Gymnasium does not ship; the message says how to allow it.
    """
    if override.env:
        return _check_function(game, source, override)
    if override.wad and (override.scenario or "id" in game):
        why = "--scenario already names the game" if override.scenario else f"{source} does not play Doom"
        raise UserError(f"--wad {override.wad} has no effect: {why}")
    if override.scenario:  # keeps the frame skip that the agent learned with
        own = {"frame_skip": game["frame_skip"]} if "frame_skip" in game else {}
        return {key: value for key, value in to_plain(find(override.scenario))["game"].items() if key != "frame_skip"} | own
    if "id" in game:
        return _check_gymnasium(game, source)
    wad = override.wad and str(expand(override.wad).resolve())
    table = {**game, "wad": wad} if wad else dict(game)
    if (file := table.get("wad")) and file != wad and not _is_shipped(file):
        name = str(file).rpartition("/")[2][:100]
        raise UserError(f"{source} plays {name!r}, which is not ViZDoom's own: if you trust that file, name it with --wad")
    if (file := table.get("iwad")) and not (_is_shipped(file) and file.endswith(".wad")):
        raise UserError(
            f"{source} plays on {str(file)[:200]!r}, which is not ViZDoom's own: name its scenario with --scenario"
        )
    return table


def choose_override(game: Mapping[str, Any], wad: str, scenario: str) -> GameOverride:
    """Returns the override that a user must repeat to load a checkpoint with that [game] table.

    It names nothing if the checkpoint loads without an override, else the `wad` if that suffices, else the `scenario`.
    """
    for override in (NO_OVERRIDE, GameOverride(wad=wad or None)):
        try:
            check_game_allowed(game, "the checkpoint", override)
            return override
        except UserError:
            continue
    return GameOverride(scenario)


def _is_shipped(file: object) -> bool:
    """Returns whether ViZDoom ships a wad of that bare name."""
    return isinstance(file, str) and bool(_BARE.fullmatch(file)) and locate(file).is_file()


def _check_function(game: Mapping[str, Any], source: str, override: GameOverride) -> dict[str, Any]:
    if override.scenario or override.wad:
        raise UserError("env has no effect beside scenario or wad, which name the game already")
    if not FUNCTION.fullmatch(str(game.get("id"))):
        raise UserError(f"env has no effect: the environment of {source} has a name, so no function is needed to make it")
    return {key: value for key, value in game.items() if key in ("id", "frame_skip")}


def _check_gymnasium(game: Mapping[str, Any], source: str) -> dict[str, Any]:
    if FUNCTION.fullmatch(str(game["id"])):
        raise UserError(
            f"{source} plays {game['id']}, which a function of a Python program makes: pass that function, as in "
            "doom_a3c.load(path, env=function) or doom_a3c.resume(folder, env=function), or name a registered game with "
            "--scenario"
        )
    if not isinstance(game["id"], str) or not _ID.fullmatch(game["id"]):
        raise UserError(
            f"{source} plays {str(game['id'])[:100]!r}: a game from a module is played only if you name it with --scenario"
        )
    settings = game.get("settings", {})
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        plain = isinstance(value, bool | int | float | None) or (isinstance(value, str) and _PLAIN_WORD.fullmatch(value))
        if key in _MAKE_ARGUMENTS or not plain:
            raise UserError(
                f"{source}: [game.settings] {str(key)[:100]!r} is {str(value)[:100]!r}, which a checkpoint may not set: if "
                "you trust it, name the scenario with --scenario"
            )
    return dict(game)
