"""Checks that a Doom game can be played: its files are complete, the iwad is a game, and the map has a start."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

from doom_a3c.settings.errors import UserError, require, shorten_list
from doom_a3c.settings.games import FREEDOOM, DoomSpec, GameSpec, locate
from doom_a3c.settings.inputs import check_file, exists
from doom_a3c.settings.starts import read_starts
from doom_a3c.settings.wads import Contents, Level, read_contents

MAX_SHOWN = 8  # names in a message


def check_there(file: str) -> None:
    """Raises UserError unless a wad or cfg named by a scenario is a readable file."""
    there = Path(file).is_absolute() or exists(locate(file))
    require(there, f"{file} does not exist, neither beside the scenario file nor among ViZDoom's files")
    check_file(locate(file))


def check_files(game: GameSpec) -> None:
    """Raises UserError if the engine would crash, hang or play another map than the configured one."""
    if not isinstance(game, DoomSpec):
        return
    for file in filter(None, (game.wad, game.iwad)):
        check_there(file)
    if game.iwad:
        _check_game(locate(game.iwad))
    path = locate(game.wad or game.iwad or FREEDOOM)
    contents = read_contents(path)
    if game.wad and contents.is_game:
        raise UserError(
            f"{path} is a complete game (an IWAD with a PLAYPAL), not a level for one: name it in doom_game_path of the "
            "cfg, or [game] iwad of the .toml, and leave out doom_scenario_path or wad"
        )
    _check_map(path, contents, game.map_played)


def is_game(file: str) -> bool:
    """Returns whether a file named by a scenario is a complete game; raises as `check_files` does."""
    check_there(file)
    return read_contents(locate(file)).is_game


def _check_game(path: Path) -> None:
    require(
        read_contents(path).palette,
        f"{path} is not a game: it has no PLAYPAL, and the engine crashes without one. doom_game_path takes a game "
        "(default freedoom2.wad), doom_scenario_path takes a level",
    )


def _check_map(path: Path, contents: Contents, name: str) -> None:
    """Raises UserError unless the engine finds a map of that name in the file, with a start for one player.

    Otherwise it would search forever, play the game's own map instead, or crash.
    """
    levels = {level.name.lower(): level for level in contents.levels if level.loaded}
    if level := levels.pop(name, None):
        _check_starts(path, level, levels)
        return
    misplaced = list(dict.fromkeys(level.inside for level in contents.levels if not level.loaded))
    if misplaced:
        others = f"has {_shorten(levels)} and " if levels else "has "
        raise UserError(
            f"the engine finds no map {name!r} in {path}: it {others}{_shorten(misplaced)}, but the engine looks in "
            f"maps/NAME.wad, whose first lump is the map, and in WADs at the archive's top: move it to maps/{name}.wad"
        )
    if levels:
        raise UserError(
            f"there is no map {name!r} in {path.name}, which has {_shorten(levels)}: set doom_map to one of them"
        )
    if contents.archives:
        raise UserError(
            f"{path} has no map to play: the engine opens no inner archives; unpack {_shorten(contents.archives)}"
        )
    raise UserError(
        f"{path} has no map to play: a map consists of THINGS, LINEDEFS, SIDEDEFS, VERTEXES and SECTORS, or of a TEXTMAP"
    )


def _check_starts(path: Path, level: Level, others: Mapping[str, Level]) -> None:
    starts = read_starts(path, level)
    if starts is None or starts.player_1:
        return
    its = "is for several players: it has starts for others, but none" if starts.several else "has no start"
    near = itertools.islice(others.items(), MAX_SHOWN)
    playable = [name for name, other in near if (others_starts := read_starts(path, other)) and others_starts.player_1]
    cure = f"doom_map = {playable[0]} has one" if playable else "add one in a level editor"
    name = f"{level.name.lower()} of {path.name}"
    raise UserError(f"{name} {its} for player 1 (a thing of type 1), and the engine crashes without one: {cure}")


def _shorten(names: Iterable[str]) -> str:
    return shorten_list(list(names), MAX_SHOWN)
