"""WAD files and archives of them: whether they are whole, and which maps they hold."""

from __future__ import annotations

import itertools
import struct
import zipfile
from pathlib import Path
from typing import IO

from doom_a3c.settings.fields import UserError

ARCHIVES = (".pk3", ".ipk3", ".zip")
_HEAD = struct.Struct("<4sII")  # kind, entries in the directory, where that begins
_ENTRY = struct.Struct("<II8s")  # where a lump begins, its size, its name


def lumps_in(path: Path) -> list[str]:
    """Returns the names of a WAD file's lumps.

    Raises:
        UserError: unless the file is a whole WAD: the engine only hangs or exits on one that is not.
    """
    try:
        with path.open("rb") as file:
            return _lumps(file, path.stat().st_size)
    except (OSError, struct.error, ValueError):
        what = "a WAD begins with 'PWAD' and holds all of its directory"
        raise UserError(f"{path} is not a complete WAD file; {what}") from None


def maps_in(path: Path) -> list[str]:
    """Returns the names of the maps in a WAD file or an archive, such as MAP01 or E1M1.

    In an archive they are WAD files in the folder `maps`, or in other WAD files.

    Raises:
        UserError: if the file is damaged.
    """
    if path.suffix.lower() not in ARCHIVES:
        return _maps(lumps_in(path))
    maps = []
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.lower().startswith("maps/"):
                    maps.append(Path(entry.filename).stem.upper())
                elif entry.filename.lower().endswith(".wad"):
                    with archive.open(entry) as file:
                        maps += _maps(_lumps(file, entry.file_size))
    except (OSError, zipfile.BadZipFile, struct.error, ValueError) as error:
        raise UserError(f"{path} is not a complete archive: {error}") from None
    return maps


def _lumps(file: IO[bytes], size: int) -> list[str]:
    """Returns the names in the directory of a WAD of that many bytes; raises ValueError unless it is whole."""
    kind, count, start = _HEAD.unpack(file.read(_HEAD.size))
    if kind not in (b"IWAD", b"PWAD") or start + _ENTRY.size * count > size:
        raise ValueError("a WAD file in it is not whole")
    file.seek(start)
    names = (name for _, _, name in _ENTRY.iter_unpack(file.read(_ENTRY.size * count)))
    return [name.split(b"\0")[0].decode("ascii", "replace").upper() for name in names]


def _maps(lumps: list[str]) -> list[str]:
    """Returns what stands before a lump that begins a map."""
    return [name for name, following in itertools.pairwise(lumps) if following in ("THINGS", "TEXTMAP")]
