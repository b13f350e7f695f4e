"""Reads WAD files and zip archives (pk3) of them: checks that they are complete, lists their maps, and detects games.

Only the maps that the engine finds count. In an archive it loads `maps/NAME.wad`, as the map NAME, and WADs at the top, in
upper or lower case; for a map anywhere else it silently plays the game's own map of that name.
"""

from __future__ import annotations

import functools
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from doom_a3c.settings.errors import UserError
from doom_a3c.settings.inputs import check_file

GAME_FILES = (".wad", ".pk3", ".ipk3", ".zip")
ARCHIVES = (".pk3", ".ipk3", ".zip", ".pk7", ".7z", ".rar")  # the engine does not open them inside another archive
MAX_LUMPS = 100_000  # Freedoom has 3,000
MAX_INNER_BYTES = 256 * 2**20  # of the WADs in an archive, which are unpacked for reading
PALETTE = "PLAYPAL"  # every game has one; the engine does not start without it
_KINDS = (b"IWAD", b"PWAD")
_HEAD = struct.Struct("<4sII")  # kind, entries in the directory, offset of the directory
_ENTRY = struct.Struct("<II8s")  # offset of a lump, its size, its name
_NEEDED = {"THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS"}  # follow the name of a map in Doom's format
_MAP_LUMPS = {*_NEEDED, "SEGS", "SSECTORS", "NODES", "REJECT", "BLOCKMAP", "BEHAVIOR"}  # may follow it
_OTHER_ARCHIVES = {  # first bytes
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "RAR",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}
_ENCRYPTED = 0x1  # a flag of an entry in a zip archive
_DAMAGE = (OSError, ValueError, EOFError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_UNSUPPORTED = (NotImplementedError, RuntimeError)  # compression that Python lacks


class Lump(NamedTuple):
    """An entry of a WAD's directory."""

    name: str
    place: int
    size: int


class Level(NamedTuple):
    """A map in a WAD file or an archive."""

    name: str  # such as MAP01 or E1M1
    inside: str  # its file in an archive, '' in a WAD
    loaded: bool  # whether the engine finds it there
    lumps: tuple[Lump, ...]  # after its name


class Contents(NamedTuple):
    """The playable contents of a WAD file or an archive."""

    levels: tuple[Level, ...]  # in the engine's order: of two with the same name it plays the last
    archives: tuple[str, ...]  # names of archives inside the archive
    palette: bool  # whether it has a PLAYPAL
    iwad: bool  # whether it has the header of a game

    @property
    def maps(self) -> list[str]:
        """The names of the maps that the engine can play, each once."""
        return list(dict.fromkeys(level.name for level in self.levels if level.loaded))

    @property
    def is_game(self) -> bool:
        """Whether it is a complete game, not a level: some level editors write a game's header, too."""
        return self.iwad and self.palette


def read_contents(path: Path) -> Contents:
    """Returns the contents of a WAD file or an archive.

    Raises:
        UserError: if the file cannot be read, is neither, or is damaged, which makes the engine hang or exit.
    """
    check_file(path)
    status = path.stat()
    return _read_contents(path, status.st_size, status.st_mtime_ns)


def check_archive(path: Path) -> None:
    """Raises UserError for an archive in a format other than zip; other files pass."""
    if not path.is_file():
        return
    with _open_wad(path) as file:
        head = file.read(max(map(len, _OTHER_ARCHIVES)))
    for start, kind in _OTHER_ARCHIVES.items():
        if head.startswith(start):
            raise UserError(f"{path} is a {kind} archive, which cannot be read here: repack it as zip (.pk3)")


def list_maps(path: Path) -> list[str]:
    """Returns the names of the maps that the engine finds in a WAD file or an archive; raises as `read_contents` does."""
    return read_contents(path).maps


def read_lump(path: Path, level: Level, name: str) -> bytes | None:
    """Returns the bytes of a lump of a map, None if there is no such lump; raises as `read_contents` does."""
    for lump in level.lumps:
        if lump.name == name:
            with _open_wad(path) as file:
                if not level.inside:
                    return _read(file, lump)
                with zipfile.ZipFile(file) as archive, archive.open(level.inside) as inner:
                    return _read(inner, lump)
    return None


def _read(file: IO[bytes], lump: Lump) -> bytes:
    file.seek(lump.place)
    return file.read(lump.size)


@contextmanager
def _open_wad(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:
            yield file
    except _UNSUPPORTED as error:
        raise UserError(f"{path} cannot be unpacked ({error}): repack it as a plain zip (.pk3)") from None
    except _DAMAGE as error:
        raise UserError(f"{path} is not a complete WAD file or zip (pk3) archive: {error}") from None


@functools.lru_cache(maxsize=16)  # every game of a server reads the same file
def _read_contents(path: Path, size: int, changed: int) -> Contents:
    check_archive(path)
    with _open_wad(path) as file:
        archive = file.read(2) == b"PK"
        file.seek(0)
        if archive:
            return _read_archive(file, path)
        iwad, lumps = _read_directory(file, size)
        return Contents(_find_levels(lumps), (), any(lump.name == PALETTE for lump in lumps), iwad)


def _read_archive(file: IO[bytes], path: Path) -> Contents:
    """Returns the contents of an archive; raises UserError for a complete game in it, which the engine draws in black."""
    levels: list[Level] = []
    unpacked = 0
    with zipfile.ZipFile(file) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.filename.lower())
        wads = [entry for entry in entries if _split_path(entry.filename)[2] == ".wad"]
        for entry in sorted(wads, key=lambda entry: not _is_map_file(entry.filename)):  # WADs outside maps/ come last
            unpacked += entry.file_size
            if unpacked > MAX_INNER_BYTES:
                raise ValueError(f"the WAD files in it are larger than {MAX_INNER_BYTES // 2**20} MiB")
            if entry.flag_bits & _ENCRYPTED:
                raise UserError(
                    f"{path} is encrypted, with a password for {entry.filename}: repack it as zip (.pk3) without one"
                )
            with archive.open(entry) as inner:
                if inner.read(4) not in _KINDS:  # the engine skips it: ._NAME.wad in a Mac's zip is not a WAD
                    continue
                inner.seek(0)
                iwad, lumps = _read_directory(inner, entry.file_size)
            if iwad and any(lump.name == PALETTE for lump in lumps):
                raise UserError(
                    f"{path} holds a complete game (an IWAD with a PLAYPAL), {entry.filename}: unpack it, and name it in "
                    "doom_game_path of the cfg, or [game] iwad of the .toml"
                )
            levels += _find_levels_inside(entry.filename, path.stem, lumps)
    inner_archives = tuple(entry.filename for entry in entries if _split_path(entry.filename)[2] in ARCHIVES)
    palette = any(_split_path(entry.filename)[:2] == ([], PALETTE.lower()) for entry in entries)
    return Contents(tuple(levels), inner_archives, palette, iwad=False)


def _split_path(filename: str) -> tuple[list[str], str, str]:
    """Returns the folders of a file in an archive, its name and its extension, in lower case."""
    *folders, name = filename.replace("\\", "/").lower().split("/")
    return folders, *os.path.splitext(name)


def _is_map_file(filename: str) -> bool:
    return _split_path(filename)[0] == ["maps"]


def _find_levels_inside(filename: str, archive: str, lumps: Sequence[Lump]) -> Iterator[Level]:
    """Yields the maps of a WAD in an archive; in the folder maps its first lump is the map, whatever its name."""
    found = _find_levels(lumps)
    folders, stem, _ = _split_path(filename)
    if _is_map_file(filename):
        first = _find_level_at(lumps, 0)
        if first or found:
            yield Level(stem.upper(), filename, loaded=first is not None, lumps=(first or found[0]).lumps)
        return
    top = folders in ([], [archive.lower()])  # mine.zip may have everything in a folder mine
    for level in found:
        yield level._replace(inside=filename, loaded=top)


def _read_directory(file: IO[bytes], size: int) -> tuple[bool, list[Lump]]:
    """Returns whether a WAD of `size` bytes has the header of a game, and its directory.

    Raises:
        ValueError or struct.error: if it is incomplete.
    """
    head = file.read(_HEAD.size)
    if head[:4] not in _KINDS:
        raise ValueError(f"it begins with {head[:4]!r} instead of 'PWAD'")
    kind, count, start = _HEAD.unpack(head)
    if count > MAX_LUMPS or start + _ENTRY.size * count > size:
        raise ValueError(f"its directory of {count:,} lumps is beyond its end")
    file.seek(start)
    lumps = []
    for place, length, raw in _ENTRY.iter_unpack(file.read(_ENTRY.size * count)):
        name = raw.split(b"\0")[0].decode("ascii", "replace").upper()
        if length and place + length > size:
            raise ValueError(f"its lump {name} is beyond its end")
        lumps.append(Lump(name, place, length))
    return kind == b"IWAD", lumps


def _find_levels(lumps: Sequence[Lump]) -> tuple[Level, ...]:
    found = (_find_level_at(lumps, index) for index in range(len(lumps)))
    return tuple(level for level in found if level)


def _find_level_at(lumps: Sequence[Lump], index: int) -> Level | None:
    """Returns the map that begins with that lump, in Doom's format or as text; None if none does."""
    following = lumps[index + 1 : index + 2]
    if not following or not following[0].size or following[0].name not in ("THINGS", "TEXTMAP"):
        return None
    if following[0].name == "THINGS":
        following = _select_map_lumps(lumps[index + 1 : index + 1 + len(_MAP_LUMPS)])
        if not {lump.name for lump in following if lump.size} >= _NEEDED:
            return None
    return Level(lumps[index].name, "", loaded=True, lumps=tuple(following))


def _select_map_lumps(lumps: Sequence[Lump]) -> list[Lump]:
    """Returns the first lumps, up to the end of one map in Doom's format."""
    found: dict[str, Lump] = {}
    for lump in lumps:
        if lump.name not in _MAP_LUMPS or lump.name in found:  # another map begins
            break
        found[lump.name] = lump
    return list(found.values())
