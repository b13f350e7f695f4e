"""WAD files and archives: their maps are found, and damage is reported."""

import gzip
import lzma
import struct
import zipfile
from dataclasses import replace
from functools import partial

import pytest
from doom_games import BASIC
from fakes import complaint
from wad_files import MAP, archive, binary_map, text_map, wad, wad_of

from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.setup import configure
from doom_a3c.settings import catalog, wads
from doom_a3c.settings.games import DoomSpec, shipped_folder
from doom_a3c.settings.levels import Starts, check_files, read_starts
from doom_a3c.settings.wads import list_maps, read_contents

WHOLE = wad("MAP01", *MAP)


def test_a_lump_followed_by_map_lumps_is_a_map(tmp_path):
    path = tmp_path / "mine.wad"
    path.write_bytes(wad("E1M1", *MAP, "eleven", "map02", "TEXTMAP", "ENDMAP", kind=b"IWAD"))
    assert list_maps(path) == ["E1M1", "MAP02"]
    assert list_maps(shipped_folder() / "basic.wad") == ["MAP01"]


@pytest.mark.parametrize(
    "data",
    [wad("DECORATE", "CREDIT"), wad("MAP01", "THINGS"), wad("MAP01", *MAP, size=0), wad("MAP01", "TEXTMAP", size=0), wad()],
    ids=["no map", "things alone", "empty lumps", "empty text", "nothing"],
)
def test_lumps_the_engine_cannot_play_are_not_a_map(tmp_path, data):
    path = tmp_path / "mine.wad"
    path.write_bytes(data)
    assert list_maps(path) == []
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("maps/map01.wad", data)
        archive.writestr("maps/readme.txt", "no map either")
    assert list_maps(tmp_path / "mine.pk3") == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PWAD",
        WHOLE[:-1],
        b"Z" + WHOLE[1:],
        b"PWAD" + struct.pack("<II", 2**32 - 1, 12),
        WHOLE.replace(struct.pack("<I", 1), struct.pack("<I", 10**6)),
    ],
    ids=["empty", "head", "cut off", "other kind", "vast directory", "vast lumps"],
)
def test_a_damaged_wad_is_reported_by_name(tmp_path, data):
    path = tmp_path / "mine.wad"
    path.write_bytes(data)
    assert "mine.wad" in complaint(list_maps, path)
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("inner.wad", data)
    if data[:4] == b"PWAD":
        assert "mine.pk3" in complaint(list_maps, tmp_path / "mine.pk3")
    else:  # the engine skips it
        assert list_maps(tmp_path / "mine.pk3") == []


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("mine.7z", b"7z\xbc\xaf\x27\x1c" + bytes(100), "7z"),
        ("mine.pk7", b"7z\xbc\xaf\x27\x1c" + bytes(100), "7z"),
        ("mine.pk3", b"7z\xbc\xaf\x27\x1c" + bytes(100), "7z"),
        ("mine.rar", b"Rar!\x1a\x07\x01\x00" + bytes(100), "RAR"),
        ("mine.wad", b"Rar!\x1a\x07\x00" + bytes(100), "RAR"),
        ("mine.wad.gz", gzip.compress(WHOLE), "gzip"),
        ("mine.tar.xz", lzma.compress(WHOLE), "xz"),
    ],
    ids=["7z", "pk7", "7z called pk3", "rar", "rar called wad", "gzip", "xz"],
)
def test_a_non_zip_archive_is_named_with_advice_to_repack(tmp_path, name, data, kind):
    path = tmp_path / name
    path.write_bytes(data)
    (tmp_path / "mine.toml").write_text(f'base = "basic"\n[game]\nwad = "{name}"\n')
    for complain in (
        partial(list_maps, path),
        partial(catalog.find, str(path)),
        partial(catalog.find, str(tmp_path / "mine.toml")),
    ):
        error = complaint(complain)
        assert f"{name} is a {kind} archive" in error
        assert "repack it as zip (.pk3)" in error


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [("flag_bits", 1, "password"), ("compress_type", 98, "method"), ("flag_bits", 0x40, "encrypt")],
)
def test_a_zip_python_cannot_unpack_gets_advice_to_repack(tmp_path, place, value, reason):
    entry = zipfile.ZipInfo("maps/map01.wad")
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr(entry, WHOLE)
        setattr(entry, place, value)  # in the central directory, which is read first
    error = complaint(list_maps, tmp_path / "mine.pk3")
    assert "mine.pk3" in error
    assert reason in error
    assert "repack" in error


def test_files_that_macos_adds_to_a_zip_are_skipped(tmp_path):
    files = {"maps/map01.wad": WHOLE, "__MACOSX/maps/._map01.wad": b"\0\5\x16\7" + bytes(50), "maps/._map01.wad": b"\0\5"}
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with zipfile.ZipFile(tmp_path / "plain.zip", "w") as archive:
        archive.writestr("maps/map01.wad", WHOLE)
    assert list_maps(tmp_path / "mine.zip") == list_maps(tmp_path / "plain.zip")


def test_a_game_in_an_archive_gets_advice_to_unpack(tmp_path):
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        archive.writestr("heretic.wad", wad_of(("PLAYPAL", bytes(768)), *text_map("MAP01", 1), kind=b"IWAD"))
    assert "unpack" in complaint(list_maps, tmp_path / "mine.zip")


def test_an_oversized_wad_directory_is_refused(tmp_path):
    with (tmp_path / "mine.wad").open("wb") as file:
        file.write(b"PWAD" + struct.pack("<II", 2**28 - 1, 12))
        file.truncate(2**32)  # sparse: takes no disk space
    assert "268,435,455 lumps" in complaint(list_maps, tmp_path / "mine.wad")


def test_maps_are_found_in_archives(tmp_path):
    path = tmp_path / "mine.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("maps/map07.wad", WHOLE)
        archive.writestr("inner.wad", WHOLE)
    assert list_maps(path) == ["MAP07", "MAP01"]
    renamed = path.rename(tmp_path / "mine.wad")  # the engine, too, goes by the contents
    assert list_maps(renamed) == ["MAP07", "MAP01"]
    renamed.write_bytes(b"PK\3\4" + bytes(100))
    assert "mine.wad" in complaint(list_maps, renamed)


def test_an_archive_is_not_unpacked_beyond_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(wads, "MAX_INNER_BYTES", 2**20)
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.wad", wad("MAP01", *MAP, size=2**20))
    assert "1 MiB" in complaint(list_maps, tmp_path / "mine.pk3")


# Where the engine looks in an archive

FLASKS = [2014] * 3
LEVEL = wad_of(*text_map("MAP01", 1, *FLASKS))
PLACES = {
    "maps/map01.wad": True,
    "MAPS/Map01.WAD": True,
    "maps\\map01.wad": True,
    "mymap.wad": True,
    "MAP01.WAD": True,
    "mine/mymap.wad": True,  # in mine.zip
    "Mine/MyMap.WAD": True,
    "mymod/maps/map01.wad": False,
    "mine/maps/map01.wad": False,
    "maps/sub/map01.wad": False,
    "levels/map01.wad": False,
    "other/mymap.wad": False,
    "maps/map01.wad/map01.wad": False,
    "./maps/map01.wad": False,
}


@pytest.mark.parametrize(("place", "loaded"), PLACES.items())
def test_only_maps_where_the_engine_looks_count(tmp_path, place, loaded):
    path = archive(tmp_path / "mine.zip", {"readme.txt": "", place: LEVEL})
    assert list_maps(path) == ["MAP01"] * loaded
    if not loaded:
        error = complaint(check_files, DoomSpec(wad=str(path)))
        assert place in error
        assert "maps/map01.wad" in error


@pytest.mark.parametrize("place", ["MAPS/Map01.WAD", "mine/mymap.wad", "mymod/maps/map01.wad", "maps/sub/map01.wad"])
def test_the_engine_loads_only_maps_that_count(tmp_path, place):
    path = archive(tmp_path / "mine.zip", {place: LEVEL})

    def set_up(game):
        configure(game, replace(BASIC[0], wad=str(path)), BASIC[1])
        game.set_objects_info_enabled(True)

    process = DoomProcess(set_up)
    names = {thing.name for thing in process.game.get_state().objects}
    process.close()
    assert (names == {"DoomPlayer", "HealthBonus"}) == PLACES[place]  # otherwise it loads Freedoom's first map


def test_a_wad_in_the_maps_folder_gives_its_name_to_its_map(tmp_path):
    path = archive(
        tmp_path / "mine.pk3", {"maps/hall.wad": wad_of(*text_map("MAP05", 1)), "maps/no.wad": wad("CREDIT", "MAP01", *MAP)}
    )
    assert list_maps(path) == ["HALL"]


def test_the_last_of_two_maps_with_the_same_name_counts(tmp_path):
    empty, playable = text_map("MAP01"), text_map("MAP01", 1)
    for name, order in (("first.wad", (playable, empty)), ("last.wad", (empty, playable))):
        (tmp_path / name).write_bytes(wad_of(*order[0], *order[1]))
    files = {"maps/map01.wad": wad_of(*empty), "a.wad": wad_of(*empty), "B.wad": wad_of(*playable)}
    check_files(DoomSpec(wad=str(archive(tmp_path / "mine.pk3", files))))
    check_files(DoomSpec(wad=str(tmp_path / "last.wad")))
    assert "player 1" in complaint(check_files, DoomSpec(wad=str(tmp_path / "first.wad")))


def test_a_nested_archive_gets_advice_to_unpack(tmp_path):
    inner = archive(tmp_path / "mymod.pk3", {"maps/map01.wad": LEVEL})
    outer = archive(tmp_path / "mymod.zip", {"mymod.pk3": inner.read_bytes(), "readme.txt": ""})
    assert "unpack mymod.pk3" in complaint(check_files, DoomSpec(wad=str(outer)))


# Games, and levels that look like games


def test_a_file_with_a_game_header_and_a_palette_is_a_game(tmp_path):
    game = ("PLAYPAL", bytes(768 * 14)), *binary_map("E1M1", 1)
    (tmp_path / "heretic.wad").write_bytes(wad_of(*game, kind=b"IWAD"))
    own, other = "doom_map = e1m1\navailable_buttons = { ATTACK }\n", "doom_game_path = freedoom2.wad\n"
    (tmp_path / "heretic.cfg").write_text(own)
    (tmp_path / "named.cfg").write_text(own + "doom_scenario_path = heretic.wad\n")
    (tmp_path / "both.cfg").write_text(own + "doom_scenario_path = heretic.wad\ndoom_game_path = heretic.wad\n")
    for name in ("heretic.wad", "named.cfg", "both.cfg"):
        spec = catalog.find(str(tmp_path / name)).game
        assert (spec.wad, spec.iwad) == ("", str(tmp_path / "heretic.wad"))
    (tmp_path / "heretic.cfg").write_text(own + other)
    for wrong in (partial(catalog.find, str(tmp_path / "heretic.wad")), partial(check_files, replace(spec, wad=spec.iwad))):
        assert "doom_game_path" in complaint(wrong)


@pytest.mark.parametrize("kind", [b"IWAD", b"PWAD"])
def test_a_lone_map_is_a_level_with_any_header(tmp_path, kind):
    (tmp_path / "mine.wad").write_bytes(wad_of(*text_map("MAP01", 1), kind=kind))
    (tmp_path / "mine.cfg").write_text("available_buttons = { ATTACK }\n")
    spec = catalog.find(str(tmp_path / "mine.wad")).game
    assert (spec.wad, spec.iwad) == (str(tmp_path / "mine.wad"), "")
    error = complaint(check_files, replace(spec, iwad=spec.wad, wad=""))
    assert "PLAYPAL" in error
    assert "mine.wad" in error
    assert "basic.wad" in complaint(check_files, replace(spec, iwad="basic.wad"))


# Starts

ALONE, SEVERAL, NONE = Starts(True, False), Starts(False, True), Starts(False, False)
DEATHMATCH = Starts(False, True, 2)


def starts(tmp_path, *lumps):
    (tmp_path / "mine.wad").write_bytes(wad_of(*lumps))
    return read_starts(tmp_path / "mine.wad", read_contents(tmp_path / "mine.wad").levels[0])


@pytest.mark.parametrize(
    ("types", "found"), [((2014, 1), ALONE), ((11, 11), DEATHMATCH), ((2, 3), SEVERAL), ((2014,), NONE), ((), None)]
)
def test_starts_are_found_in_every_format(tmp_path, types, found):
    for hexen in (False, True):
        lumps = binary_map("MAP01", *(types or (2014,)), hexen=hexen)
        assert starts(tmp_path, *lumps, *binary_map("MAP02", 1, hexen=True)) == (found or NONE)
    assert starts(tmp_path, *text_map("MAP01", *types)) == (found or NONE)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("THING { Type=1; }", ALONE),
        ("thing { type = 0x1; }", ALONE),
        ('thing // type = 11;\n{ /* } */ type = 1; comment = "}\\" // { type = 3; "; }', ALONE),
        ("// thing { type = 1; }\n", NONE),
        ("/* thing { type = 1; } */", NONE),
        ("linedef { type = 1; }", NONE),
        ("thing { type = 1; arg0 = 1; }", NONE),  # for arrivals from another map
        ("thing { type = 1; arg0 = 0; }", ALONE),
        ("thing { x = ; }", None),
        ("thing { type = 11; x = ; }", None),
        ("thing { type = 11; } oops", None),
        ("hello world", None),
        ("thing { type = 1.5; }", None),
        ("thing { type = 11; ", None),
    ],
)
def test_a_text_map_is_read_like_the_engine_does_or_left_to_it(tmp_path, text, found):
    lumps = ("MAP01", b""), ("TEXTMAP", f'namespace = "zdoom";\n{text}\n'.encode()), ("ENDMAP", b"")
    assert starts(tmp_path, *lumps) == found


def test_a_map_without_a_start_suggests_one_that_has_it(tmp_path):
    path = tmp_path / "mine.wad"
    path.write_bytes(wad_of(*text_map("MAP01", 11), *text_map("MAP02"), *text_map("MAP03", 1)))
    error = [complaint(check_files, DoomSpec(wad=str(path), map=name)) for name in ("map01", "map02")]
    assert "several players" in error[0]
    assert "several players" not in error[1]
    for each in error:
        assert "player 1" in each
        assert "doom_map = map03" in each
    check_files(DoomSpec(wad=str(path), map="map03"))
    for name in ("cig.wad", "multi_duel.wad"):
        assert f"map01 of {name}" in complaint(check_files, DoomSpec(wad=name))


def test_a_match_needs_a_start_for_each_player(tmp_path):
    path = tmp_path / "mine.wad"
    path.write_bytes(wad_of(*text_map("MAP01", 1, 2, 3, 4), *text_map("MAP02", 11, 11, 1), *text_map("MAP03", *[11] * 3)))

    def check(level, bots, wad=str(path)):
        return check_files(DoomSpec(wad=wad, map=level, match={"bots": bots}))

    check("map02", 1)
    check("map03", 2)
    error = complaint(check, "map01", 2)
    for words in ("[game.match]", "map01 of mine.wad has 0", "type 11", "3 players: map = 'map03'"):
        assert words in error
    error = complaint(check, "map02", 2)
    assert "let 2 play, or map = 'map03'" in error
    assert "let 3 play, or" not in (error := complaint(check, "map03", 3))
    assert "let 3 play" in error
    assert "has 0" in complaint(check, "map01", 1, "basic.wad")  # these two crash the engine
    assert "let 2 play" in complaint(check, "map01", 2, "multi_duel.wad")
    check("map01", 15, "cig.wad")


@pytest.mark.parametrize(
    "name", [name for name in sorted(shipped_folder().glob("*.wad")) if name.stem not in catalog._MATCHES]
)
def test_every_single_player_vizdoom_level_has_a_start(name):
    check_files(DoomSpec(wad=str(name)))


@pytest.mark.parametrize("text", ["/*" * 10**6, '"\\' * 10**6 + "\\", "thing { " * 10**6, " " * 10**6, "a" * 10**6])
def test_a_text_map_crafted_to_be_slow_is_still_handled(tmp_path, text):
    assert starts(tmp_path, ("MAP01", b""), ("TEXTMAP", text.encode()), ("ENDMAP", b"")) in (None, NONE)


def test_an_oversized_text_map_is_left_to_the_engine(tmp_path):
    path, size = tmp_path / "mine.wad", 2**31
    with path.open("wb") as file:
        entries = [(12, 0, b"MAP01"), (12, size, b"TEXTMAP")]
        file.write(struct.pack("<4sII", b"PWAD", 2, 12 + size))
        file.seek(12 + size)  # sparse: takes no disk space
        file.write(b"".join(struct.pack("<II8s", *entry) for entry in entries))
    assert read_starts(path, read_contents(path).levels[0]) is None
