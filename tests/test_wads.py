"""WAD files and archives: their maps are found, and what is not whole is told."""

import struct
import zipfile

import pytest
from fakes import complaint

from doom_a3c.settings.games import shipped_folder
from doom_a3c.settings.wads import lumps_in, maps_in


def wad(*lumps, kind=b"PWAD"):
    """Returns a WAD file of empty lumps."""
    entries = b"".join(struct.pack("<II8s", 12, 0, lump.encode()) for lump in lumps)
    return struct.pack("<4sII", kind, len(lumps), 12) + entries


def test_a_map_is_what_its_first_lump_follows(tmp_path):
    path = tmp_path / "mine.wad"
    path.write_bytes(wad("E1M1", "THINGS", "LINEDEFS", "eleven", "map02", "TEXTMAP", "ENDMAP", kind=b"IWAD"))
    assert lumps_in(path) == ["E1M1", "THINGS", "LINEDEFS", "ELEVEN", "MAP02", "TEXTMAP", "ENDMAP"]
    assert maps_in(path) == ["E1M1", "MAP02"]
    assert maps_in(shipped_folder() / "basic.wad") == ["MAP01"]


@pytest.mark.parametrize(
    "data",
    [b"", b"PWAD", wad("MAP01", "THINGS")[:-1], wad("MAP01", kind=b"ZWAD"), b"PWAD" + struct.pack("<II", 2**32 - 1, 12)],
    ids=["empty", "head", "cut off", "other kind", "vast directory"],
)
def test_what_is_no_whole_wad_is_told(tmp_path, data):
    path = tmp_path / "mine.wad"
    path.write_bytes(data)
    assert "mine.wad is not a complete WAD file" in complaint(maps_in, path)
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("inner.wad", data)
    assert "mine.pk3 is not a complete archive" in complaint(maps_in, tmp_path / "mine.pk3")


def test_maps_are_looked_for_in_archives_too(tmp_path):
    path = tmp_path / "mine.pk3"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("maps/map07.wad", b"")
        archive.writestr("inner.wad", wad("MAP01", "THINGS"))
    assert maps_in(path) == ["MAP07", "MAP01"]
    path.write_bytes(b"PK\3\4" + bytes(100))
    assert "mine.pk3 is not a complete archive" in complaint(maps_in, path)
