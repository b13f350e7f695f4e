"""WAD files and archives: their maps are found, and what is not whole is told."""

import struct
import zipfile

import pytest
from fakes import complaint
from wad_files import MAP, wad

from doom_a3c.settings import wads
from doom_a3c.settings.games import shipped_folder
from doom_a3c.settings.wads import maps_in

WHOLE = wad("MAP01", *MAP)


def test_a_map_is_what_its_lumps_follow(tmp_path):
    path = tmp_path / "mine.wad"
    path.write_bytes(wad("E1M1", *MAP, "eleven", "map02", "TEXTMAP", "ENDMAP", kind=b"IWAD"))
    assert maps_in(path) == ["E1M1", "MAP02"]
    assert maps_in(shipped_folder() / "basic.wad") == ["MAP01"]


@pytest.mark.parametrize(
    "data",
    [wad("DECORATE", "CREDIT"), wad("MAP01", "THINGS"), wad("MAP01", *MAP, size=0), wad("MAP01", "TEXTMAP", size=0), wad()],
    ids=["no map", "things alone", "empty lumps", "empty text", "nothing"],
)
def test_what_the_engine_cannot_play_is_no_map(tmp_path, data):
    path = tmp_path / "mine.wad"
    path.write_bytes(data)
    assert maps_in(path) == []
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("maps/map01.wad", data)
        archive.writestr("maps/readme.txt", "no map either")
    assert maps_in(tmp_path / "mine.pk3") == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PWAD",
        WHOLE[:-1],
        b"Z" + WHOLE[1:],
        b"PWAD" + struct.pack("<II", 2**32 - 1, 12),
        WHOLE.replace(struct.pack("<I", 1), struct.pack("<I", 10**6)),
        b"7z\xbc\xaf\x27\x1c" + bytes(100),
    ],
    ids=["empty", "head", "cut off", "other kind", "vast directory", "vast lumps", "other archive"],
)
def test_what_is_no_whole_wad_is_told(tmp_path, data):
    path = tmp_path / "mine.wad"
    path.write_bytes(data)
    assert "mine.wad is no complete WAD file" in complaint(maps_in, path)
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("inner.wad", data)
    assert "mine.pk3 is no complete WAD file or zip" in complaint(maps_in, tmp_path / "mine.pk3")


def test_a_directory_that_is_in_the_file_may_still_be_too_large(tmp_path):
    with (tmp_path / "mine.wad").open("wb") as file:
        file.write(b"PWAD" + struct.pack("<II", 2**28 - 1, 12))
        file.truncate(2**32)  # takes no room on the disk
    assert "directory of 268,435,455 lumps" in complaint(maps_in, tmp_path / "mine.wad")


def test_maps_are_looked_for_in_archives_too(tmp_path):
    path = tmp_path / "mine.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("maps/map07.wad", WHOLE)
        archive.writestr("inner.wad", WHOLE)
    assert maps_in(path) == ["MAP07", "MAP01"]
    renamed = path.rename(tmp_path / "mine.wad")  # the engine too goes by what is in it
    assert maps_in(renamed) == ["MAP07", "MAP01"]
    renamed.write_bytes(b"PK\3\4" + bytes(100))
    assert "mine.wad is no complete" in complaint(maps_in, renamed)


def test_an_archive_is_not_unpacked_whatever_it_unpacks_to(tmp_path, monkeypatch):
    monkeypatch.setattr(wads, "MAX_INNER_BYTES", 2**20)
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.wad", wad("MAP01", *MAP, size=2**20))
    assert "the WAD files in it are larger than 1 MiB" in complaint(maps_in, tmp_path / "mine.pk3")
