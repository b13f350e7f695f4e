"""Checks that a Doom game can be played: its files are complete, the iwad is a game, and the map has a start."""

from __future__ import annotations

import functools
import itertools
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from doom_a3c.settings.errors import UserError, require, shorten_list
from doom_a3c.settings.games import FREEDOOM, DoomSpec, GameSpec, locate
from doom_a3c.settings.inputs import check_file, exists
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.wads import Contents, Level, read_contents, read_lump

PLAYER_1, DEATHMATCH = 1, 11  # types of things: https://zdoom.org/wiki/Standard_editor_numbers
MAX_BYTES = 64 * 2**20  # of the largest lump that is read; large maps have about 10 MB
OTHER_PLAYERS = (2, 3, 4, *range(4001, 4005))
_DOOM = struct.Struct("<6xH2x")  # x, y, angle, type, flags
_HEXEN = struct.Struct("<10xH3xB4x")  # id, x, y, height, angle, type, flags, special, its five arguments
_SKIPPED = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_PART = re.compile(r"\s*(\w+)\s*(?:=[^;{}=]+;|\{([^{}]*)\})")  # of a TEXTMAP: an assignment, or a block of them
_ASSIGNMENT = re.compile(r"\s*(\w+)\s*=\s*([^;{}=]*[^;{}=\s])\s*;")


class Starts(NamedTuple):
    """The kinds of player starts that a map has."""

    player_1: bool
    several: bool  # starts of other players, or for deathmatch
    deathmatch: int = 0  # number of starts for deathmatch


def read_starts(path: Path, level: Level) -> Starts | None:
    """Returns the player starts of a map; None if its things cannot be read, which the engine then reports."""
    if max(lump.size for lump in level.lumps) > MAX_BYTES:
        return None
    return _read_starts(path, level, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=16)  # every game of a server reads the same map
def _read_starts(path: Path, level: Level, changed: int) -> Starts | None:
    if (text := read_lump(path, level, "TEXTMAP")) is not None:
        things = _parse_things(text.decode("latin-1"))
    else:
        hexen = any(lump.name == "BEHAVIOR" for lump in level.lumps)
        things = _read_things(read_lump(path, level, "THINGS") or b"", hexen=hexen)
    if things is None:
        return None
    # A start for player 1 with another argument is for arrivals from another map.
    types = {kind for kind, argument in things if kind != PLAYER_1 or argument == 0}
    deathmatch = sum(kind == DEATHMATCH for kind, _ in things)
    return Starts(PLAYER_1 in types, bool(types & {DEATHMATCH, *OTHER_PLAYERS}), deathmatch)


def _read_things(data: bytes, *, hexen: bool) -> list[tuple[int, int]]:
    """Returns type and first argument of each thing in Doom's format, or in Hexen's."""
    layout = _HEXEN if hexen else _DOOM
    whole = data[: len(data) // layout.size * layout.size]
    return [(kind, *argument, 0)[:2] for kind, *argument in layout.iter_unpack(whole)]


def _parse_things(text: str) -> list[tuple[int, int]] | None:
    """Returns type and first argument of each thing in a TEXTMAP; None if it cannot be parsed."""
    parts = _parse(_PART, _SKIPPED.sub(lambda match: '""' if match[0][0] == '"' else " ", text))
    blocks = [part[2] for part in parts or () if part[2] is not None and part[1].lower() == "thing"]
    things = []
    for assignments in (_parse(_ASSIGNMENT, block) for block in blocks):
        values = {key.lower(): value for key, value in (each.groups() for each in assignments or ())}
        try:
            things.append((int(values["type"], 0), int(values.get("arg0", "0"), 0)))
        except (KeyError, ValueError):
            return None
    return None if parts is None else things


def _parse(pattern: re.Pattern[str], text: str) -> list[re.Match[str]] | None:
    """Returns the consecutive matches of a pattern that make up a text; None if it contains anything else."""
    found, place = [], 0
    while match := pattern.match(text, place):
        found.append(match)
        place = match.end()
    return None if text[place:].strip(" \t\r\n\0") else found


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
    match = parse_match(game.match)
    _check_map(path, contents, game.map_played, match.players if match else 1)


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


def _check_map(path: Path, contents: Contents, name: str, players: int) -> None:
    """Raises UserError unless the engine finds a map of that name in the file, with starts for all players.

    Otherwise it would search forever, play the game's own map instead, or crash.
    """
    levels = {level.name.lower(): level for level in contents.levels if level.loaded}
    if level := levels.pop(name, None):
        if players > 1:
            _check_match_starts(path, level, levels, players)
        else:
            _check_start(path, level, levels)
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


def _check_start(path: Path, level: Level, others: Mapping[str, Level]) -> None:
    starts = read_starts(path, level)
    if starts is None or starts.player_1:
        return
    its = "is for several players: it has starts for others, but none" if starts.several else "has no start"
    playable = _find_map(path, others, lambda its: its.player_1)
    cure = f"doom_map = {playable} has one" if playable else "add one in a level editor"
    cure += "; a [game.match] needs none" if starts.deathmatch > 1 else ""
    name = f"{level.name.lower()} of {path.name}"
    raise UserError(f"{name} {its} for player 1 (a thing of type 1), and the engine crashes without one: {cure}")


def _check_match_starts(path: Path, level: Level, others: Mapping[str, Level], players: int) -> None:
    """Raises UserError unless each player of a match has a start of its own.

    Without any, the engine crashes. With too few, players spawn inside others and kill them: hundreds of times in a match,
    or in an endless chain, which crashes the engine, too.
    """
    starts = read_starts(path, level)
    if starts is None or starts.deathmatch >= players:
        return
    enough = _find_map(path, others, lambda its: its.deathmatch >= players)
    cures = [f"let {starts.deathmatch} play"] * (starts.deathmatch > 1) + [f"map = {enough!r} has enough"] * bool(enough)
    raise UserError(
        f"[game.match]: {level.name.lower()} of {path.name} has {starts.deathmatch} deathmatch starts "
        f"(things of type 11) for {players} players: {', or '.join(cures) or 'add some in a level editor'}"
    )


def _find_map(path: Path, levels: Mapping[str, Level], fits: Callable[[Starts], bool]) -> str:
    """Returns the name of the first of these maps with fitting starts, '' if there is none among the first few."""
    near = itertools.islice(levels.items(), MAX_SHOWN)
    return next((name for name, level in near if (starts := read_starts(path, level)) and fits(starts)), "")


def _shorten(names: Iterable[str]) -> str:
    return shorten_list(list(names), MAX_SHOWN)
