"""The record of a run, and its conversion to plain data and back."""

import dataclasses
import json

import pytest
from fakes import changed
from run_fakes import run_record, settings

from doom_a3c.record.metrics.counters import EvaluationPoint
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.checkpoints.run_record import (
    FORMAT,
    MAX_EVALUATIONS,
    ActionSizes,
    Best,
    begin_run,
    record_from_plain,
    record_to_plain,
)
from doom_a3c.settings.errors import UserError

POINT = EvaluationPoint(80, 2.0, 0.5, 3.5, 0.25)


def read(data):
    return record_from_plain(json.loads(json.dumps(data)), "models/last.ckpt")


@pytest.mark.parametrize("scenario", ["basic", "cartpole", "pong", "predict_position", "my_way_home"])
def test_a_record_survives_conversion_to_plain_data(scenario):
    progress, record = Progress(), run_record(scenario)
    progress.add_steps(30, 120, [1.0, 3.5], ["engine_died"])
    config = changed(record.config, frames=77, minutes=1.5, final_learning_rate=0.0, learning_rate_frames=50)
    parts = {
        "restarts": 3,
        "config": config,
        "counters": progress.counters(),
        "actions": ActionSizes((2, 3), 1),
        "best": Best(3.5, "sample").add(POINT, is_best=True)._replace(confirmed=True),
    }
    assert read(record_to_plain(record)) == record
    assert read(record_to_plain(record._replace(**parts))) == record._replace(**parts)


def test_the_plain_form_has_its_format_and_the_games_frame_skip():
    data = record_to_plain(run_record("basic"))
    assert data["format"] == FORMAT
    assert data["scenario"]["game"]["frame_skip"] == 4
    assert "frame_skip" not in data["config"].keys() | data["scenario"]["training"].keys()
    assert data["config"]["max_policy_lag"] == 100


@pytest.mark.parametrize("data", [{"format": FORMAT - 1}, {"format": FORMAT + 1}, {"format": None}, {}, [1], "text", None])
def test_the_error_for_another_format_names_the_expected_one(data):
    message = complaint(data)
    assert "another version of doom_a3c" in message
    assert f"format {FORMAT}" in message


@pytest.mark.parametrize("actions", [3, [], [[2], 1, 1], [2, 1], [["2"], 1], [[0], 1], [[2], -1], [[2.0], 1], [{}, None]])
def test_actions_of_an_untrusted_record_are_checked(actions):
    assert "not a complete checkpoint" in complaint({**record_to_plain(run_record("cartpole")), "actions": actions})


def complaint(data):
    with pytest.raises(UserError, match=r"models/last\.ckpt") as raised:
        read(data)
    return str(raised.value)


@pytest.mark.parametrize("key", sorted(record_to_plain(run_record("basic")).keys() - {"format"}))
def test_a_record_with_a_missing_key_is_refused(key):
    data = record_to_plain(run_record("basic"))
    del data[key]
    assert f"not a complete checkpoint of doom_a3c (KeyError: '{key}')" in complaint(data)


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        (None, "evaluations", [[1, 2.0, 3.0, 4.0]], "not a complete checkpoint"),
        (None, "evaluations", [[1, 2.0, 3.0, 4.0, "many"]], "not a complete checkpoint"),
        (None, "evaluations", [[1, 2.0, -3.0, 4.0, 5.0]], "a standard deviation is below 0"),
        (None, "evaluations", [[1, 2.0, 3.0, 4.0, 5.0]] * (MAX_EVALUATIONS + 1), "too many evaluations"),
        ("progress", "frames", None, "not a complete checkpoint"),
        ("progress", "curve", [[1, 2]], "not a complete checkpoint"),
        ("progress", "frames", float("inf"), "not a complete checkpoint"),
        ("config", "discount", 2, "discount"),
        ("config", "frame_skip", "many", "frame_skip"),
        ("scenario", "training", None, "table"),
        ("scenario", "lesson", 1, "unknown setting 'lesson'"),
    ],
)
def test_a_wrong_value_in_a_record_gives_a_one_line_error(table, key, value, message):
    data = record_to_plain(run_record("basic"))
    (data[table] if table else data)[key] = value
    assert message in complaint(data)
    assert "\n" not in complaint(data)


@pytest.mark.parametrize("table", ["config", "scenario"])
def test_a_record_with_a_number_for_a_table_is_refused(table):
    data = record_to_plain(run_record("basic"))
    data[table] = 5
    assert "not a complete checkpoint" in complaint(data)


def test_a_scenario_name_that_is_too_long_asks_for_a_run_name():
    scenario, config = settings("cartpole")
    long = dataclasses.replace(scenario, name="a" * 190)
    with pytest.raises(UserError) as refused:
        begin_run(long, config)
    assert "None" not in str(refused.value)
    assert "--name" in str(refused.value)
    assert "a" * 40 in str(refused.value)
    assert begin_run(long, config, "short").name.startswith("short-seed")
    with pytest.raises(UserError, match="--name 'a/b'"):
        begin_run(scenario, config, "a/b")
