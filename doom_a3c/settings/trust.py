"""What a checkpoint may say of its game: it may be a stranger's, so nothing in it names a program, a file or a module.

docs/security.md states what is safe and what is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from doom_a3c.settings.catalog import find
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import locate
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.scenarios import to_plain

_BARE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,100}")
_ID = re.compile(r"(?!GymV2|doom_a3c/)([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]{1,100}-v\d{1,4}")  # those make others, by any name
_OF_MAKE = ("render_mode", "max_episode_steps", "disable_env_checker", "id")  # gymnasium.make's own: what lasts or shows
_WORD = re.compile(r"[A-Za-z0-9_-]{0,100}")


class GameOverride(NamedTuple):
    """What a user names in place of what a checkpoint says of its game."""

    scenario: str | None = None  # whose game is played
    wad: str | None = None  # the file that the game is played with


NO_OVERRIDE = GameOverride()


def check_game_allowed(game: Mapping[str, Any], source: str, override: GameOverride = NO_OVERRIDE) -> dict[str, Any]:
    """Returns the [game] table of a checkpoint, or what the user has named in its place.

    Args:
        game: the table, whose values may be anything.
        source: the checkpoint, for messages.
        override: the game that the user names instead.

    Raises:
        UserError: if it names anything that ViZDoom or Gymnasium does not ship; the message says how to allow it.
    """
    if override.wad and (override.scenario or "id" in game):
        why = "--scenario says what is played" if override.scenario else f"{source} plays no game of Doom's"
        raise UserError(f"--wad {override.wad} has no effect: {why}")
    if override.scenario:  # but for the frame skip, with which the agent has learned
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
    """Returns what a user has to name again where a checkpoint has that [game] table: its `wad`, or its `scenario`."""
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


def _check_gymnasium(game: Mapping[str, Any], source: str) -> dict[str, Any]:
    if not isinstance(game["id"], str) or not _ID.fullmatch(game["id"]):
        raise UserError(
            f"{source} plays {str(game['id'])[:100]!r}: a game of a module's is played only if you name it, with --scenario"
        )
    settings = game.get("settings", {})
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        plain = isinstance(value, bool | int | float | None) or (isinstance(value, str) and _WORD.fullmatch(value))
        if key in _OF_MAKE or not plain:
            raise UserError(
                f"{source}: [game.settings] {str(key)[:100]!r} is {str(value)[:100]!r}, which a checkpoint may not say: if "
                "you trust that, name the scenario with --scenario"
            )
    return dict(game)
