"""A stranger's checkpoint starts nothing, reads nothing and writes nothing that its user has not named."""

import dataclasses
import json
import os
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commands import call
from fakes import changed, complaint
from run_fakes import run_record, tiny_record

from doom_a3c.run.bundle import entries
from doom_a3c.run.checkpoint import label_of, load, record_of, save
from doom_a3c.run.run_record import record_from_plain, record_to_plain
from doom_a3c.settings import catalog
from doom_a3c.settings.fields import UserError
from doom_a3c.settings.games import shipped_folder
from doom_a3c.settings.scenarios import most_parameters
from doom_a3c.settings.trust import Named


def plain_record(scenario="basic", **game):
    """Returns a record as plain data, with some of its game's table changed."""
    data = json.loads(json.dumps(record_to_plain(run_record(scenario))))
    data["scenario"]["game"].update(game)
    return data


@pytest.fixture
def wad(tmp_path):
    """A file of a user's own with a map."""
    return Path(shutil.copy(shipped_folder() / "basic.wad", tmp_path / "mine.wad"))


@pytest.mark.parametrize(
    "key", ["vizdoom_path", "game_args", "doom_config_path", "doom_game_path", "doom_scenario_path", "config"]
)
def test_a_setting_that_names_a_program_or_a_file_is_refused(key):
    data = plain_record()
    data["scenario"]["game"]["settings"][key] = "/bin/true"
    assert f"unknown setting '{key}'" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize(
    ("game", "remedy"),
    [
        ({"wad": "/tmp/evil.wad"}, "--wad"),
        ({"wad": "../../evil.wad"}, "--wad"),
        ({"wad": "no_such.wad"}, "--wad"),
        ({"wad": ["basic.wad"]}, "--wad"),
        ({"wad": "/dev/zero"}, "--wad"),
        ({"iwad": "/tmp/doom2.wad"}, "--scenario"),
        ({"id": "evil:Game-v0"}, "--scenario"),
        ({"id": "os.path:Game-v0"}, "--scenario"),
        ({"id": "GymV26Environment-v0"}, "--scenario"),
        ({"id": "doom_a3c/Basic-v0"}, "--scenario"),
        ({"id": "../x-v0"}, "--scenario"),
        ({"iwad": "basic.cfg"}, "--scenario"),
        ({"id": 3}, "--scenario"),
    ],
)
def test_a_game_of_foreign_files_or_modules_is_named_by_its_user_or_not_played(game, remedy):
    message = complaint(record_from_plain, plain_record(**game), "x.ckpt")
    assert message.startswith("x.ckpt plays ")
    assert remedy in message


@pytest.mark.parametrize("config", ["basic.cfg", "/tmp/evil.cfg", "../../../etc/passwd", ["basic.cfg"]])
def test_a_cfg_is_not_a_checkpoints_to_name(config):
    assert "unknown setting 'config'" in complaint(record_from_plain, plain_record(config=config), "x.ckpt")


@pytest.mark.parametrize("value", ["/etc/passwd", "evil.xml", "~/x", ["a"], {"a": 1}])
def test_a_setting_of_an_environment_from_a_checkpoint_is_a_number_or_a_word(value):
    data = plain_record("cartpole")
    data["scenario"]["game"]["settings"] = {"xml_file": value}
    assert "--scenario" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("rules", [{"exec": 1}, {"sv_x;exec": 1}, {"sv_x": "1 +exec evil"}, {"sv_x": True}, {"logfile": 3}])
def test_rules_are_numbers_for_variables_of_the_games_server(rules):
    assert "[game.rules]" in complaint(record_from_plain, plain_record(rules=rules), "x.ckpt")


def test_a_wad_that_the_user_names_is_played(wad):
    data = plain_record(wad="/home/stranger/mine.wad")
    record = record_from_plain(data, "x.ckpt", Named(wad=str(wad)))
    assert record.scenario.game.wad == str(wad)
    assert "does not exist" in complaint(record_from_plain, data, "x.ckpt", Named(wad=str(wad.with_name("no.wad"))))


def test_a_scenario_that_the_user_names_is_played_with_the_runs_frame_skip():
    data = plain_record(id="evil:Game-v0", frame_skip=3)
    game = record_from_plain(data, "x.ckpt", Named(scenario="simpler_basic")).scenario.game
    assert game.wad == catalog.find("simpler_basic").game.wad
    assert game.frame_skip == 3


@pytest.mark.parametrize(
    "name", ["../../x", "/x", "..", ".x", "-x", "~x", "a/b", "a\\b", "", "x\n", "\x1b[2J", "x" * 300, 3, None]
)
def test_a_name_is_no_path(name):
    data = plain_record()
    data["run"] = name
    assert "not a complete checkpoint" in complaint(record_from_plain, data, "x.ckpt")
    data = plain_record()
    data["scenario"]["name"] = name
    assert "x.ckpt" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("network", {"hidden": [10**9]}),
        ("network", {"hidden": [], "core_size": 3_000}),
        ("network", {"hidden": [30_000, 30_000]}),
        ("network", {"variable_hidden": [30_000, 30_000]}),
        ("network", {"variable_hidden": [2**31 - 1]}),
        ("network", {"core_size": 10**6}),
        ("network", {"convolutions": [[10**6, 8, 4]]}),
        ("network", {"convolutions": [[16, 0, 4]]}),
        ("network", {"pixel_scale": 0}),
        ("network", {"pixel_scale": 1e-300}),
        ("network", {"hidden": [True]}),
        ("network", {"hidden": [1], "convolutions": [[2000, 1, 1], [1, 84, 1]]}),
        ("observation", {"size": [8000, 8000]}),
        ("observation", {"size": [84]}),
        ("observation", {"resolution": "99999999999999999999999999999x1"}),
        ("observation", {"crop": [0, 0, 0, 10**9]}),
        ("game", {"buttons": [[[[[[[[[[]]]]]]]]]]}),
        ("game", {"available_buttons": ["A"] * 10_000}),
        ("game", {"variable_scales": [10**400]}),
    ],
)
def test_sizes_beyond_reason_are_refused_before_anything_of_that_size_is_made(table, changes):
    data = plain_record()
    data["scenario"][table].update(changes)
    assert "x.ckpt" in complaint(record_from_plain, data, "x.ckpt")


def test_layers_for_variables_are_counted_with_the_variables_that_are_shown():
    data = plain_record()
    data["scenario"]["network"]["variable_hidden"] = [40_000]  # 40,000 weights of its own, and 41 million of the core's
    assert most_parameters(record_from_plain(data, "x.ckpt").scenario) < 5_000_000
    data["scenario"]["game"].update(variables=["HEALTH"], variable_scales=[0.01])
    data["scenario"]["network"]["core_size"] = 512
    assert "parameters or more" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("network", [{"hidden": [64, 2**31 - 1]}, {"hidden": [], "core": "lstm", "core_size": 10_000}])
def test_a_network_for_numbers_is_bounded_too(network):
    data = plain_record("cartpole")
    data["scenario"]["network"].update(network)
    assert "parameters or more" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("settings", [{"max_episode_steps": 2**31 - 1}, {"render_mode": "human"}])
def test_what_makes_a_game_last_or_show_is_not_a_checkpoints_to_say(settings):
    data = plain_record("cartpole")
    data["scenario"]["game"]["settings"] = settings
    assert "--scenario" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("scores", [[1.7e308] * 100, [1e200]])
def test_scores_of_which_a_mean_overflows_are_refused(scores):
    data = plain_record()
    data["progress"]["scores"] = scores
    assert "not a complete checkpoint" in complaint(record_from_plain, data, "x.ckpt")


# The archive


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.ckpt"
    save(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32(1)}, tiny_record())
    return path


def rewrite(path, compression=zipfile.ZIP_STORED, **members):
    """Writes an archive anew with some of its members changed."""
    with zipfile.ZipFile(path) as archive:
        old = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in old.items():
            archive.writestr(name, members.get(name.partition(".")[2].partition("-")[0], content))


@pytest.mark.parametrize("member", ["json", "index", "data"])
def test_a_compressed_member_is_refused_unread(saved, member):
    rewrite(saved, zipfile.ZIP_DEFLATED, **{member: bytes(10**7)})
    assert saved.stat().st_size < 10**5
    assert "compressed" in complaint(load, saved)


@pytest.mark.parametrize("member", ["json", "index"])
def test_a_member_larger_than_any_is_refused(saved, member):
    rewrite(saved, **{member: bytes(5 * 2**20)})
    assert "too large" in complaint(load, saved)


def test_data_that_is_short_or_long_is_refused(saved):
    for size in (0, 27, 29, 1000):
        rewrite(saved, data=bytes(size))
        assert "not a complete checkpoint" in complaint(load, saved)


def test_a_network_larger_than_the_weights_there_are_is_refused(saved):
    data = record_to_plain(tiny_record())
    data["scenario"]["network"]["hidden"] = [1000]
    rewrite(saved, json=json.dumps(data).encode())
    assert "it has 7 numbers, and its network 7,056,000 to" in complaint(load, saved)


def test_more_weights_than_any_network_of_the_record_has_are_refused(tmp_path):
    save(tmp_path / "fat.ckpt", {"a": np.zeros(30_000_000, np.float32)}, tiny_record())
    assert "it has 30,000,000 numbers" in complaint(load, tmp_path / "fat.ckpt")


def test_an_archive_of_many_members_is_refused_unread(saved):
    with zipfile.ZipFile(saved, "a") as archive:
        for number in range(200):
            archive.writestr(f"{number}", b"")
    assert "too large" in complaint(load, saved)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_not_read(tmp_path, kind):
    path = tmp_path / "best.ckpt"
    {"fifo": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    for read in (load, record_of, label_of):
        assert complaint(read, path)


def test_json_nested_without_end_is_refused(saved):
    rewrite(saved, json=b"[" * 10**6)
    assert "not a complete checkpoint" in complaint(load, saved)


def test_an_index_with_any_byte_changed_never_ends_in_a_traceback(saved):
    with zipfile.ZipFile(saved) as archive:
        index = archive.read("variables.index")
    known = entries(index)
    for place in range(len(index)):
        for value in (0, 1, 127, 128, 255):
            try:
                found = entries(index[:place] + bytes([value]) + index[place + 1 :])
            except ValueError:
                continue
            for entry in found.values():
                assert np.dtype(entry.type).itemsize * np.prod(entry.shape, dtype=object) == entry.size
    assert {name: entry.shape for name, entry in known.items()} == {"a": (2, 3), "b": ()}


def table(blocks, index):
    """Returns an index file of such blocks, and of an index block with such handles."""
    body = b"".join(block + bytes(5) for block in blocks)
    place = len(body)
    body += index + bytes(5)
    footer = bytes([0, 0]) + varint(place) + varint(len(index))
    return body + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def varint(number):
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def rows(*pairs):
    """Returns a block of keys and values."""
    return b"".join(bytes([0, len(key), len(value)]) + key + value for key, value in pairs) + struct.pack("<II", 0, 1)


def test_an_index_that_repeats_itself_is_refused_at_once():
    block = rows(*[(b"", b"")] * 9_000)
    handle = varint(0) + varint(len(block))
    with pytest.raises(ValueError, match="repeats itself"):
        entries(table([block], rows(*[(b"k", handle)] * 1_000)))
    with pytest.raises(ValueError, match="too many"):
        entries(table([rows(*[(b"", b"")] * 200_000)], rows((b"k", varint(0) + varint(600_008)))))


# The commands


@pytest.mark.parametrize("program", [("play", "--model", "models/last.ckpt"), ("train", "--resume")])
def test_a_checkpoint_that_starts_a_program_is_one_line_and_starts_nothing(tmp_path, program):
    (tmp_path / "models").mkdir()
    save(tmp_path / "models" / "last.ckpt", {"a": np.zeros(1, np.float32)}, tiny_record())
    data = plain_record()
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    launcher.chmod(0o700)
    data["scenario"]["game"]["settings"]["vizdoom_path"] = str(launcher)
    rewrite(tmp_path / "models" / "last.ckpt", json=json.dumps(data).encode())
    result = call(*program, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "vizdoom_path" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launcher", "models"]


def test_weights_that_are_not_finite_are_not_played(tmp_path):
    save(tmp_path / "bad.ckpt", {"a": np.float32([1, np.nan])}, tiny_record())
    with pytest.raises(UserError, match="not finite"):
        load(tmp_path / "bad.ckpt").check_finite(tmp_path / "bad.ckpt")


@pytest.mark.parametrize("folder", ["/", "~", "..", "logs/../.."])
def test_a_resumed_checkpoint_writes_nowhere_but_below_the_current_folder(tmp_path, folder):
    (tmp_path / "models").mkdir()
    record = tiny_record()
    record = record._replace(name="home", config=changed(record.config, logs_dir=folder))
    save(tmp_path / "models" / "last.ckpt", {"a": np.zeros(1, np.float32)}, record)
    (tmp_path / "home").mkdir()  # a name that could be any folder's
    result = call("train", "--resume", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "name a folder with --logs-dir" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "models"]


@pytest.mark.process
def test_a_model_of_a_users_own_wad_is_resumed_and_played_with_that_wad_alone(tmp_path, wad):
    (tmp_path / "mine.cfg").write_text("available_buttons = { MOVE_LEFT ATTACK }\nepisode_timeout = 300\n")
    small = ("--workers", "1", "--games", "2", "--evaluate-every", "0", "--evaluation-episodes", "1")
    made = call("train", "--scenario", wad.resolve(), *small, "--frames", "100", cwd=tmp_path)
    assert made.returncode == 0
    assert f"play.py --model models/best.ckpt --wad {wad.resolve()} --out" in made.stdout
    with zipfile.ZipFile(tmp_path / "models" / "last.ckpt") as archive:
        record = json.loads(archive.read("checkpoint.json"))
    assert (record["scenario"]["game"]["wad"], record["config"]["scenario"]) == (f"./{wad.name}",) * 2
    assert str(tmp_path) not in json.dumps(record)  # a model that is given away does not say where it was made
    named = ("--wad", str(wad.rename(tmp_path / "renamed.wad")))
    for program in (("train", "--resume", "--frames", "400"), ("play", "--episodes", "1", "--record", "0")):
        refused = call(*program, cwd=tmp_path)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "which is not ViZDoom's own" in refused.stderr
        taken = call(*program, *named, cwd=tmp_path)
        assert taken.returncode == 0, taken.stderr


@pytest.mark.process
def test_a_users_wad_of_a_shipped_name_is_not_taken_for_that(tmp_path):
    record = run_record("basic")
    game = dataclasses.replace(record.scenario.game, wad=str(tmp_path / "basic.wad"))
    plain = record_to_plain(record._replace(scenario=dataclasses.replace(record.scenario, game=game)))
    assert "plays 'basic.wad', which is not ViZDoom's own" in complaint(record_from_plain, plain, "x.ckpt")


def test_a_wad_that_has_no_effect_is_a_mistake(tmp_path):
    refused = call("train", "--scenario", "cartpole", "--wad", "mine.wad", cwd=tmp_path)
    assert (refused.returncode, "--wad goes with --resume" in refused.stderr) == (2, True)
    for named in (Named(scenario="basic", wad="x.wad"), Named(wad="x.wad")):
        assert "has no effect" in complaint(record_from_plain, plain_record("cartpole"), "x.ckpt", named)
