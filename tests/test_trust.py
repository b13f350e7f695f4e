"""A stranger's checkpoint starts, reads and writes nothing that the user has not named."""

import dataclasses
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import join, record_in, replace_record, split
from commands import call
from fakes import changed, complaint
from run_fakes import run_record, tiny_record

from doom_a3c.run.checkpoints.checkpoint import MAX_ARRAYS, MAX_HEADER, is_whole, load, read_label, read_record, save
from doom_a3c.run.checkpoints.run_record import record_from_plain, record_to_plain
from doom_a3c.settings import catalog
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import shipped_folder
from doom_a3c.settings.scenarios import most_parameters
from doom_a3c.settings.trust import GameOverride


def plain_record(scenario="basic", **game):
    """Returns a record as plain data, with changes to its game's table."""
    data = json.loads(json.dumps(record_to_plain(run_record(scenario))))
    data["scenario"]["game"].update(game)
    return data


@pytest.fixture
def wad(tmp_path):
    """A user's own WAD file with a map."""
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
def test_a_foreign_file_or_module_must_be_named_by_the_user(game, remedy):
    message = complaint(record_from_plain, plain_record(**game), "x.ckpt")
    assert message.startswith("x.ckpt plays ")
    assert remedy in message


@pytest.mark.parametrize("config", ["basic.cfg", "/tmp/evil.cfg", "../../../etc/passwd", ["basic.cfg"]])
def test_a_checkpoint_cannot_name_a_cfg(config):
    assert "unknown setting 'config'" in complaint(record_from_plain, plain_record(config=config), "x.ckpt")


@pytest.mark.parametrize("value", ["/etc/passwd", "evil.xml", "~/x", ["a"], {"a": 1}])
def test_a_checkpoint_cannot_give_an_environment_paths_or_tables(value):
    data = plain_record("cartpole")
    data["scenario"]["game"]["settings"] = {"xml_file": value}
    assert "--scenario" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("rules", [{"exec": 1}, {"sv_x;exec": 1}, {"sv_x": "1 +exec evil"}, {"sv_x": True}, {"logfile": 3}])
def test_rules_accept_only_numbers_for_sv_variables(rules):
    assert "[game.rules]" in complaint(record_from_plain, plain_record(rules=rules), "x.ckpt")


@pytest.mark.parametrize(
    "match",
    [
        {"args": "-file evil.wad"},
        {"bots": "7 -file evil.wad"},
        {"agents": 2**70},
        {"bots": 1, "bot_names": ["Rambo +exec evil"]},
        {"bots": 1, "minutes": float("nan")},
        {"bots": 1, "minutes": "1 +exec evil"},
        {"bots": 1, "bot_skill": 1e300},
        {"bots": 1, "force_respawn": "+exec evil"},
        {"bots": 1, "bot_names": {"a": 1}},
        ["-file evil.wad"],
        "-file evil.wad",
    ],
)
def test_a_match_table_names_no_file_or_argument(match):
    data = plain_record("cig_bots")
    data["scenario"]["game"]["match"] = match
    said = complaint(record_from_plain, data, "x.ckpt")
    assert said.startswith("x.ckpt")
    assert "\n" not in said


def test_a_wad_named_by_the_user_is_played(wad):
    data = plain_record(wad="/home/stranger/mine.wad")
    record = record_from_plain(data, "x.ckpt", GameOverride(wad=str(wad)))
    assert record.scenario.game.wad == str(wad)
    assert "does not exist" in complaint(record_from_plain, data, "x.ckpt", GameOverride(wad=str(wad.with_name("no.wad"))))


def test_a_scenario_named_by_the_user_keeps_the_runs_frame_skip():
    data = plain_record(id="evil:Game-v0", frame_skip=3)
    game = record_from_plain(data, "x.ckpt", GameOverride(scenario="simpler_basic")).scenario.game
    assert game.wad == catalog.find("simpler_basic").game.wad
    assert game.frame_skip == 3


@pytest.mark.parametrize(
    "name", ["../../x", "/x", "..", ".x", "-x", "~x", "a/b", "a\\b", "", "x\n", "\x1b[2J", "x" * 300, 3, None]
)
def test_a_name_cannot_be_a_path(name):
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
def test_excessive_sizes_are_refused_before_allocation(table, changes):
    data = plain_record()
    data["scenario"][table].update(changes)
    assert "x.ckpt" in complaint(record_from_plain, data, "x.ckpt")


def test_variable_layers_count_only_if_variables_are_shown():
    data = plain_record()
    data["scenario"]["network"]["variable_hidden"] = [40_000]  # 40,000 weights of its own, and 41 million of the core's
    assert most_parameters(record_from_plain(data, "x.ckpt").scenario) < 5_000_000
    data["scenario"]["game"].update(variables=["HEALTH"], variable_scales=[0.01])
    data["scenario"]["network"]["core_size"] = 512
    assert "parameters or more" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("network", [{"hidden": [64, 2**31 - 1]}, {"hidden": [], "core": "lstm", "core_size": 10_000}])
def test_a_network_for_vector_observations_is_bounded_too(network):
    data = plain_record("cartpole")
    data["scenario"]["network"].update(network)
    assert "parameters or more" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("settings", [{"max_episode_steps": 2**31 - 1}, {"render_mode": "human"}])
def test_a_checkpoint_cannot_set_arguments_of_gymnasium_make(settings):
    data = plain_record("cartpole")
    data["scenario"]["game"]["settings"] = settings
    assert "--scenario" in complaint(record_from_plain, data, "x.ckpt")


@pytest.mark.parametrize("scores", [[1.7e308] * 100, [1e200]])
def test_scores_with_an_overflowing_mean_are_refused(scores):
    data = plain_record()
    data["progress"]["scores"] = scores
    assert "not a complete checkpoint" in complaint(record_from_plain, data, "x.ckpt")


# The file


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.ckpt"
    save(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32(1)}, tiny_record())
    return path


def test_an_oversized_header_is_refused_unread(saved):
    content = saved.read_bytes()
    for length in (MAX_HEADER + 1, 2**40, 2**64 - 1):
        saved.write_bytes(length.to_bytes(8, "little") + content[8:])
        for read in (load, read_record, read_label):
            assert "not a complete checkpoint" in complaint(read, saved)


A, B = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, {"dtype": "F32", "shape": [], "data_offsets": [24, 28]}


@pytest.mark.parametrize(
    "arrays",
    [
        {"a": A},  # bytes that belong to no array
        {"a": A, "b": B | {"data_offsets": [20, 24]}},  # an overlap
        {"a": A, "b": A},
        {"a": A, "b": B, "c": B},
        {"a": A, "b": B | {"data_offsets": [28, 32]}},  # a hole
        {"a": A, "b": B | {"data_offsets": [28, 24]}},
        {"a": A | {"data_offsets": [-4, 24]}, "b": B},
        {"a": A | {"data_offsets": [0, 2**62]}, "b": B},
        {"a": A | {"data_offsets": [0, 10**400]}, "b": B},
        {"a": A | {"data_offsets": [0.0, 24.0]}, "b": B},
        {"a": A | {"data_offsets": ["0", "24"]}, "b": B},
        {"a": A | {"data_offsets": [False, 24]}, "b": B},
        {"a": A | {"data_offsets": 24}, "b": B},
        {"a": A | {"data_offsets": [0, 12, 24]}, "b": B},
        {"a": A | {"shape": [3, 3]}, "b": B},
        {"a": A | {"shape": [3, 2]}, "b": B},  # the same bytes: caught by the checksum
        {"a": A | {"shape": [-2, -3]}, "b": B},
        {"a": A | {"shape": [2**62, 3]}, "b": B},
        {"a": A, "b": B, "c": B | {"shape": [2**62, 0, 2**62], "data_offsets": [28, 28]}},
        {"a": A, "b": B, "c": B | {"shape": [1] * 100, "data_offsets": [28, 28]}},
        {"a": A | {"shape": [6.0]}, "b": B},
        {"a": A | {"shape": None}, "b": B},
        {"a": A | {"dtype": "F16"}, "b": B},
        {"a": A | {"dtype": "F64"}, "b": B},
        {"a": A | {"dtype": "BF16", "shape": [12]}, "b": B},
        {"a": A | {"dtype": "I32"}, "b": B},
        {"a": A | {"dtype": "object"}, "b": B},
        {"a": A | {"dtype": ["F32"]}, "b": B},
        {"b": A, "a": B},
        {"a": [A], "b": B},
        {"A" * 100_000: A | {"dtype": "I8"}},
    ],
)
def test_arrays_must_be_floats_without_gaps_or_overlaps(saved, arrays):
    header, content = split(saved)
    join(saved, {"__metadata__": header["__metadata__"], "a": A, "b": B}, content)
    assert is_whole(saved)
    join(saved, {"__metadata__": header["__metadata__"], **arrays}, content)
    message = complaint(load, saved)
    assert "not a complete checkpoint" in message
    assert len(message) < 500
    assert not is_whole(saved)


def test_data_of_the_wrong_length_is_refused(saved):
    header, content = split(saved)
    for size in (0, 27, 29, 1000):
        join(saved, header, content.ljust(size, b"\0")[:size])
        for read in (load, read_record, read_label):
            message = complaint(read, saved)
            assert "not a complete checkpoint" in message
            assert ("longer" if size > 28 else "cut off") in message


def test_too_many_arrays_are_refused(saved):
    header, content = split(saved)
    empty = {f"{number}": {"dtype": "F32", "shape": [0], "data_offsets": [28, 28]} for number in range(MAX_ARRAYS)}
    join(saved, header | empty, content)
    assert f"{MAX_ARRAYS + 2:,} arrays" in complaint(load, saved)


def test_a_file_that_claims_gigabytes_takes_no_memory(saved):
    header, content = split(saved)
    header["a"]["data_offsets"] = [0, 2**31]
    join(saved, header, content)
    with saved.open("ab") as file:
        file.truncate(2**32)  # sparse, but as long as it claims
    tracemalloc.start()
    try:
        assert "numbers" in complaint(load, saved)
        assert not is_whole(saved)
        assert tracemalloc.get_traced_memory()[1] < 10 * MAX_HEADER
    finally:
        tracemalloc.stop()


def test_a_network_larger_than_the_stored_weights_is_refused(saved):
    data = record_to_plain(tiny_record())
    data["scenario"]["network"]["hidden"] = [1000]
    replace_record(saved, data)
    assert "it has 7 numbers, and its network 7,056,000 to" in complaint(load, saved)


def test_more_weights_than_the_network_can_have_are_refused(tmp_path):
    save(tmp_path / "fat.ckpt", {"a": np.zeros(30_000_000, np.float32)}, tiny_record())
    assert "it has 30,000,000 numbers" in complaint(load, tmp_path / "fat.ckpt")


def test_networks_with_heads_may_have_more_weights(tmp_path):
    record = tiny_record()
    game = dataclasses.replace(record.scenario.game, buttons="heads")
    record = record._replace(scenario=dataclasses.replace(record.scenario, game=game))
    save(tmp_path / "heads.ckpt", {"a": np.zeros(30_000_000, np.float32)}, record)
    assert load(tmp_path / "heads.ckpt").variables["a"].size == 30_000_000


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_only_regular_files_are_read(tmp_path, kind):
    path = tmp_path / "best.ckpt"
    {"fifo": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    for read in (load, read_record, read_label):
        assert complaint(read, path)


@pytest.mark.parametrize("nested", ["[", '{"a":', '{"format": [', '{"__metadata__": {"record": ['])
def test_deeply_nested_json_is_refused(saved, nested):
    for write in (replace_record, lambda path, text: join(path, text.encode(), bytes(100))):
        write(saved, nested * 100_000)
        for read in (load, read_record, read_label):
            assert "not a complete checkpoint" in complaint(read, saved)


# The commands


@pytest.mark.parametrize("program", [("play", "--model", "models/last.ckpt"), ("train", "--resume")])
def test_a_checkpoint_that_names_a_program_starts_nothing(tmp_path, program):
    (tmp_path / "models").mkdir()
    save(tmp_path / "models" / "last.ckpt", {"a": np.zeros(1, np.float32)}, tiny_record())
    data = plain_record()
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    launcher.chmod(0o700)
    data["scenario"]["game"]["settings"]["vizdoom_path"] = str(launcher)
    replace_record(tmp_path / "models" / "last.ckpt", data)
    result = call(*program, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "vizdoom_path" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launcher", "models"]


def test_non_finite_weights_are_not_played(tmp_path):
    save(tmp_path / "bad.ckpt", {"a": np.float32([1, np.nan])}, tiny_record())
    with pytest.raises(UserError, match="not finite"):
        load(tmp_path / "bad.ckpt").check_finite(tmp_path / "bad.ckpt")


@pytest.mark.parametrize("folder", ["/", "~", "..", "logs/../.."])
def test_a_resumed_run_writes_only_below_the_current_folder(tmp_path, folder):
    (tmp_path / "models").mkdir()
    record = tiny_record()
    record = record._replace(name="home", config=changed(record.config, logs_dir=folder))
    save(tmp_path / "models" / "last.ckpt", {"a": np.zeros(1, np.float32)}, record)
    (tmp_path / "home").mkdir()  # a run's name could be the name of any folder
    result = call("train", "--resume", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "name a folder with --logs-dir" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "models"]


@pytest.mark.process
def test_a_model_of_a_custom_wad_needs_that_wad_to_run(tmp_path, wad):
    (tmp_path / "mine.cfg").write_text("available_buttons = { MOVE_LEFT ATTACK }\nepisode_timeout = 300\n")
    small = ("--workers", "1", "--envs-per-worker", "2", "--evaluate-every", "0", "--evaluation-episodes", "1")
    made = call("train", "--scenario", wad.resolve(), *small, "--frames", "100", cwd=tmp_path)
    assert made.returncode == 0
    assert f"/best.ckpt --wad {wad.resolve()} --out" in made.stdout
    record = record_in(tmp_path / "models" / "last.ckpt")
    assert (record["scenario"]["game"]["wad"], record["config"]["scenario"]) == (f"./{wad.name}",) * 2
    assert str(tmp_path) not in json.dumps(record)  # a shared model does not reveal where it was made
    named = ("--wad", str(wad.rename(tmp_path / "renamed.wad")))
    for program in (("train", "--resume", "--frames", "400"), ("play", "--episodes", "1", "--record-episodes", "0")):
        refused = call(*program, cwd=tmp_path)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "which is not ViZDoom's own" in refused.stderr
        taken = call(*program, *named, cwd=tmp_path)
        assert taken.returncode == 0, taken.stderr


@pytest.mark.process
def test_a_custom_wad_with_a_shipped_name_is_not_the_shipped_one(tmp_path):
    record = run_record("basic")
    game = dataclasses.replace(record.scenario.game, wad=str(tmp_path / "basic.wad"))
    plain = record_to_plain(record._replace(scenario=dataclasses.replace(record.scenario, game=game)))
    assert "plays 'basic.wad', which is not ViZDoom's own" in complaint(record_from_plain, plain, "x.ckpt")


def test_a_wad_without_effect_is_refused(tmp_path):
    refused = call("train", "--scenario", "cartpole", "--wad", "mine.wad", cwd=tmp_path)
    assert (refused.returncode, "--wad goes with --resume" in refused.stderr) == (2, True)
    for named in (GameOverride(scenario="basic", wad="x.wad"), GameOverride(wad="x.wad")):
        assert "has no effect" in complaint(record_from_plain, plain_record("cartpole"), "x.ckpt", named)
