"""WAD files and zip archives (pk3) of them: whether they are whole, and which maps they hold."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from doom_a3c.settings.fields import UserError
from doom_a3c.settings.inputs import check_file

GAME_FILES = (".wad", ".pk3", ".ipk3", ".zip")
MAX_LUMPS = 100_000  # Freedoom has 3,000
MAX_INNER_BYTES = 256 * 2**20  # of a WAD in an archive, which is unpacked to be looked at
_HEAD = struct.Struct("<4sII")  # kind, entries in the directory, where that begins
_ENTRY = struct.Struct("<II8s")  # where a lump begins, its size, its name
_NEEDED = {"THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS"}  # of a map, which has ten lumps and more after its name
_DAMAGE = (OSError, ValueError, EOFError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_UNSUPPORTED = (NotImplementedError, RuntimeError)  # ways of packing that Python does not know; a password


def maps_in(path: Path) -> list[str]:
    """Returns the names of the maps in a WAD file or an archive, such as MAP01 or E1M1.

    In an archive they are WAD files in the folder `maps`, or in other WAD files.

    Raises:
        UserError: if the file cannot be read, is neither, or is damaged: the engine only hangs or exits on one that is.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            archive = file.read(2) == b"PK"
            file.seek(0)
            return _maps_in_archive(file) if archive else _maps(file, path.stat().st_size)
    except (*_DAMAGE, *_UNSUPPORTED) as error:
        raise UserError(f"{path} is no complete WAD file or zip (pk3) archive: {error}") from None


def _maps_in_archive(file: IO[bytes]) -> list[str]:
    maps: list[str] = []
    unpacked = 0
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            name = Path(entry.filename.lower())
            if name.suffix != ".wad":
                continue
            unpacked += entry.file_size
            if unpacked > MAX_INNER_BYTES:
                raise ValueError(f"the WAD files in it are larger than {MAX_INNER_BYTES // 2**20} MiB")
            with archive.open(entry) as inner:
                found = _maps(inner, entry.file_size)
            maps += [name.stem.upper()] * bool(found) if name.parts[0] == "maps" else found
    return maps


class _Lump(NamedTuple):
    """An entry of a WAD's directory."""

    name: str
    size: int


def _lumps(file: IO[bytes], size: int) -> list[_Lump]:
    """Returns the directory of a WAD of that many bytes; raises ValueError, or struct.error, unless it is whole."""
    head = file.read(_HEAD.size)
    if head[:4] not in (b"IWAD", b"PWAD"):
        raise ValueError(f"it begins with {head[:4]!r}, where a WAD has 'PWAD'")
    _, count, start = _HEAD.unpack(head)
    if count > MAX_LUMPS or start + _ENTRY.size * count > size:
        raise ValueError(f"its directory of {count:,} lumps is not in it")
    file.seek(start)
    lumps = []
    for place, length, raw in _ENTRY.iter_unpack(file.read(_ENTRY.size * count)):
        name = raw.split(b"\0")[0].decode("ascii", "replace").upper()
        if length and place + length > size:
            raise ValueError(f"its lump {name} is not in it")
        lumps.append(_Lump(name, length))
    return lumps


def _maps(file: IO[bytes], size: int) -> list[str]:
    """Returns the names that stand before the lumps of a whole map."""
    lumps = _lumps(file, size)
    return [name for index, (name, _) in enumerate(lumps) if _is_map(iter(lumps[index + 1 : index + 11]))]


def _is_map(lumps: Iterator[_Lump]) -> bool:
    """Returns whether the lumps after a name make it that of a map, in Doom's format or as text."""
    first = next(lumps, None)
    if first is None or first.name not in ("THINGS", "TEXTMAP") or not first.size:
        return False
    return first.name == "TEXTMAP" or {first.name, *(lump.name for lump in lumps if lump.size)} >= _NEEDED
