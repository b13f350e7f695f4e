"""Player starts: the things in a map at which players begin."""

from __future__ import annotations

import functools
import re
import struct
from pathlib import Path
from typing import NamedTuple

from doom_a3c.settings.wads import Level, read_lump

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
        things = _read_things(
            read_lump(path, level, "THINGS") or b"", hexen="BEHAVIOR" in [lump.name for lump in level.lumps]
        )
    if things is None:
        return None
    types = {
        kind for kind, argument in things if kind != PLAYER_1 or argument == 0
    }  # others are for arrivals from another map
    return Starts(PLAYER_1 in types, bool(types & {DEATHMATCH, *OTHER_PLAYERS}))


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
