"""Anything but a readable file is refused by name, with the reason, before anything starts."""

import os
import shutil
from pathlib import Path

import pytest
from fakes import complaint

from doom_a3c.settings import catalog
from doom_a3c.settings.games import shipped_folder
from doom_a3c.settings.inputs import check_file, read_text

CFG = "available_buttons = { ATTACK }\n"
THINGS = {
    "is a folder": lambda path: path.mkdir(),
    "Too many levels of symbolic links": lambda path: path.symlink_to(path.name),
    "is a link to nowhere, which does not exist": lambda path: path.symlink_to("nowhere"),
    "is a pipe or a device": os.mkfifo,
    "a device, and": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("reason", THINGS)
@pytest.mark.parametrize("name", ["mine.toml", "mine.cfg", "mine.wad", "mine.pk3"])
def test_a_path_that_is_no_file_is_refused_with_the_reason(here, reason, name):
    THINGS[reason](here / name)
    (here / "named.toml").write_text(f'[game]\nwad = "{name}"\nconfig = "basic.cfg"\n')
    for scenario in (name, f"./{name}", "named.toml"):
        assert reason in complaint(catalog.find, scenario)


@pytest.mark.parametrize("reason", THINGS)
def test_the_cfg_beside_a_wad_is_checked_too(here, reason):
    shutil.copy(shipped_folder() / "basic.wad", here / "mine.wad")
    THINGS[reason](here / "mine.cfg")
    said = complaint(catalog.find, "mine.wad")
    assert "mine.cfg" in said
    assert reason in said


@pytest.mark.parametrize("name", ["c" * 300 + ".toml", "a/" * 3000 + "x.cfg", "~nobody/mine.toml", "./"])
def test_odd_file_names_give_a_one_line_error(here, name):
    assert name in complaint(catalog.find, name)
    (here / "named.toml").write_text(f'[game]\nconfig = "{name}"\n')
    assert "named" in complaint(catalog.find, "named.toml")


def test_a_null_character_in_a_name_gives_a_one_line_error(here):
    (here / "named.toml").write_text('[game]\nconfig = "mine\\u0000.cfg"\n')
    assert "does not exist" in complaint(catalog.find, "named.toml")
    assert "not a file name" in complaint(check_file, here / "mine\0.cfg")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xef\xbb\xbf" + CFG.encode(), "byte order mark"),
        (CFG.encode("utf-16"), "UTF-16"),
        (CFG.encode("utf-16-le"), "text file"),
        (os.urandom(1000) + b"\0", "text file"),
        (b"# much\n" * 10**5, "256 KiB"),
    ],
    ids=["mark", "UTF-16", "UTF-16 without mark", "binary", "large"],
)
@pytest.mark.parametrize("name", ["mine.cfg", "mine.toml"])
def test_a_file_that_is_not_text_is_refused_with_the_reason(here, data, reason, name):
    (here / name).write_bytes(data)
    said = complaint(catalog.find, name)
    assert name in said
    assert reason in said


def test_a_huge_file_is_not_read_to_its_end(here):
    with (here / "mine.cfg").open("wb") as file:
        file.write(b"#" * 10**6)
        file.truncate(2**40)
    assert "is larger" in complaint(read_text, here / "mine.cfg")


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 10**5, "x = " + "9" * 10**4, "[game", "\x80".encode("latin1").decode("latin1")]
)
def test_an_unreadable_toml_gives_a_one_line_error(here, text):
    (here / "mine.toml").write_text(text, encoding="latin1")
    assert "mine.toml: not a readable TOML file" in complaint(catalog.find, "mine.toml")


@pytest.mark.parametrize("comment", ["// mine", "/* mine */", "; mine"])
def test_a_foreign_comment_in_a_toml_suggests_the_hash_sign(here, comment):
    (here / "mine.toml").write_text(f'base = "basic" {comment}\n')
    said = complaint(catalog.find, "mine.toml")
    assert "not a readable TOML file" in said
    assert "comments begin with #" in said


@pytest.mark.parametrize(("wad", "cfg"), [("mine.wad", "mine.cfg"), ("MINE.WAD", "MINE.cfg"), ("MINE.WAD", "MINE.CFG")])
def test_a_wad_and_its_cfg_are_found_in_upper_case_too(here, wad, cfg):
    shutil.copy(shipped_folder() / "basic.wad", here / wad)
    (here / cfg).write_bytes(CFG.encode() + b"# \xe4\xf6\xfc in Latin 1\n")
    game = catalog.find(wad).game
    assert (game.wad, game.available_buttons) == (str(here / wad), ("ATTACK",))


@pytest.mark.parametrize("named", ["mine.wad", "mine.cfg", "mine.toml"])
def test_the_files_beside_a_link_are_found(here, named):
    (here / "store").mkdir()
    (here / "mine.toml").write_text('base = "base/doom"\n[game]\nconfig = "mine.cfg"\n')
    (here / "mine.cfg").write_text("doom_scenario_path = mine.wad\n" + CFG)
    shutil.copy(shipped_folder() / "basic.wad", here / "mine.wad")
    for number, file in enumerate(("mine.toml", "mine.cfg", "mine.wad")):  # as in Hugging Face's cache
        (here / file).rename(here / "store" / str(number))
        (here / file).symlink_to(here / "store" / str(number))
    found = catalog.find(named)
    assert (found.name, found.game.wad) == ("mine", str(here / "mine.wad"))


@pytest.mark.parametrize("named", ["mine.wad", "mine.cfg", "mine.toml"])
def test_the_files_beside_the_target_of_a_link_are_found(here, named):
    (here / "store").mkdir()
    (here / "store" / "mine.toml").write_text('base = "base/doom"\n[game]\nconfig = "mine.cfg"\n')
    (here / "store" / "mine.cfg").write_text("doom_scenario_path = mine.wad\n" + CFG)
    shutil.copy(shipped_folder() / "basic.wad", here / "store" / "mine.wad")
    (here / named).symlink_to(here / "store" / named)
    game = catalog.find(named).game
    assert (Path(game.wad).resolve(), game.available_buttons) == (here / "store" / "mine.wad", ("ATTACK",))


def test_the_name_of_a_link_decides_its_file_type(here):
    (here / "text").write_text('base = "basic"\n')
    (here / "mine.toml").symlink_to("text")
    assert catalog.find("mine.toml").game == catalog.find("basic").game


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("resolution = '²x²'", "'²x²'"),
        ("resolution = 'big'", "160x120"),
        ("size = [8000, 8000]", "1 to 1024, not [8000, 8000]"),
        ("size = [84]", "[height, width]"),
        ("size = [true, true]", "takes whole numbers"),
        ("crop = [true, 0, 0, 0]", "takes whole numbers"),
    ],
)
def test_the_error_for_a_bad_size_says_what_is_allowed(here, line, reason):
    (here / "mine.toml").write_text(f'base = "basic"\n[observation]\n{line}\n')
    assert reason in complaint(catalog.find, "mine.toml")
