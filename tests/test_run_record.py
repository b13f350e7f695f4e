"""The record of a run: plain and back it is the same, and those of yesterday's checkpoints are read."""

import dataclasses
import json

import pytest
from fakes import changed
from run_fakes import run_record, settings

from doom_a3c.record.progress import Counters, EvaluationPoint, Point, Progress
from doom_a3c.run.run_record import FORMAT, MAX_EVALUATIONS, Best, begun, record_from_plain, record_to_plain
from doom_a3c.settings import catalog
from doom_a3c.settings.fields import UserError

# Of format 2, as this program wrote it before a frame skip was the game's own, and max_policy_lag had that name. The run's
# scenario file has a frame skip of 2, the command line had 3.
YESTERDAY = """
{"format": 2, "run": "mine-20261122-085429", "restarts": 0, "scenario": {"name": "mine", "description":
"Keep a pole on a cart upright", "expected_score": "475 (mean of 100 episodes), 500 at most", "game": {"id":
"CartPole-v1", "settings": {}}, "observation": {"resolution": "160x120", "color": false, "crop": [0, 0, 0, 0], "size":
[84, 84], "stack": 1}, "network": {"pixel_mean": 64.0, "pixel_scale": 64.0, "convolutions": [[16, 8, 4], [32, 4, 2]],
"hidden": [64, 64], "activation": "tanh", "core": "none", "core_size": 256, "shared": false}, "training": {"frame_skip":
2, "rollout_length": 16, "games": 16, "gae_lambda": 0.95, "normalize_advantages": true, "learning_rate": 0.003,
"final_learning_rate": 0.0, "entropy_cost": 0.001, "max_grad_norm": 0.5, "frames": 2000000, "reward_scale": 0.1,
"learning_rate_frames": 600000, "max_staleness": 7}}, "config": {"scenario": "mine.toml", "engine": "threads",
"workers": 1, "games": 2, "game_processes": null, "rollout_length": 8, "frame_skip": 3, "discount": 0.99, "advantage":
"gae", "gae_lambda": 0.95, "n_step": 5, "n_step_tail": "bootstrap", "normalize_advantages": true, "accumulate": 1,
"learning_rate": 0.003, "final_learning_rate": 0.0, "learning_rate_frames": 600000, "optimizer": "adam",
"optimizer_epsilon": null, "entropy_cost": 0.001, "final_entropy_cost": 0.0, "entropy_cost_frames": null, "value_cost":
0.5, "max_grad_norm": 0.5, "reward_scale": 0.1, "reward_clip": null, "epsilon": 0.0, "final_epsilon": null,
"epsilon_frames": null, "epsilon_spread": 0.0, "vtrace": false, "rho_clip": 1.0, "c_clip": 1.0, "predictors": 1,
"trainers": 1, "min_batch": 1, "max_batch": 1024, "queue_size": 4, "address": null, "hosts": 1, "transport":
"gradients", "push_rollouts": 1, "max_staleness": 7, "seed": 3, "precision": "auto", "device": "auto", "frames": 300,
"episodes": null, "minutes": null, "target_score": null, "models_dir": "models", "frames_dir": "frames", "logs_dir":
"logs", "gif_every": 25, "checkpoint_every": 60.0, "evaluate_every": 30.0, "evaluation_episodes": 1,
"evaluation_epsilon": 0.0}, "progress": {"frames": 336, "steps": 112, "updates": 7, "episodes": 15, "faults": {},
"scores": [10.0, 17.0, 11.0, 12.0, 17.0, 9.0, 10.0, 18.0, 18.0, 8.0, 8.0, 12.0, 30.0, 39.0, 15.0], "curve": [[1, 48,
10.0, 10.0], [2, 48, 17.0, 13.5], [3, 48, 11.0, 12.666666666666666], [4, 96, 12.0, 12.5], [5, 96, 17.0, 13.4], [6, 96,
9.0, 12.666666666666666], [7, 96, 10.0, 12.285714285714286], [8, 144, 18.0, 13.0], [9, 144, 18.0, 13.555555555555555],
[10, 144, 8.0, 13.0], [11, 192, 8.0, 12.545454545454545], [12, 192, 12.0, 12.5], [13, 240, 30.0, 13.846153846153847],
[14, 288, 39.0, 15.642857142857142], [15, 288, 15.0, 15.6]], "stride": 1}, "best_evaluation": 62.0, "policy": "sample"}
"""


POINT = EvaluationPoint(80, 2.0, 0.5, 3.5, 0.25)


def read(data):
    return record_from_plain(json.loads(json.dumps(data)), "models/last.ckpt")


@pytest.mark.parametrize("scenario", ["basic", "cartpole", "pong", "predict_position", "my_way_home"])
def test_a_record_is_the_same_after_it_was_plain(scenario):
    progress, record = Progress(), run_record(scenario)
    progress.add_steps(30, 120, [1.0, 3.5], ["engine_died"])
    config = changed(record.config, frames=77, minutes=1.5, final_learning_rate=0.0, learning_rate_frames=50)
    parts = {
        "restarts": 3,
        "config": config,
        "counters": progress.counters(),
        "best": Best(3.5, "sample").after(POINT, is_best=True)._replace(confirmed=True),
    }
    assert read(record_to_plain(record)) == record
    assert read(record_to_plain(record._replace(**parts))) == record._replace(**parts)


def test_the_plain_form_says_its_format_and_has_the_games_frame_skip_with_the_game():
    data = record_to_plain(run_record("basic"))
    assert data["format"] == FORMAT == 5
    assert data["scenario"]["game"]["frame_skip"] == 4
    assert "frame_skip" not in data["config"].keys() | data["scenario"]["training"].keys()
    assert data["config"]["max_policy_lag"] == 100


def test_a_record_of_yesterday_is_read():
    record = read(json.loads(YESTERDAY))
    assert (record.name, record.restarts, record.best) == ("mine-20261122-085429", 0, Best(62.0, "sample"))
    assert record.scenario.name == "mine"
    assert record.scenario.game.frame_skip == 3  # of the command line
    assert record.scenario.network == catalog.find("cartpole").network
    assert (record.config.max_policy_lag, record.scenario.training["max_policy_lag"]) == (7, 7)
    assert (record.config.workers, record.config.games, record.config.vtrace, record.config.seed) == (1, 2, False, 3)
    assert (record.config.entropy_cost.start, record.config.entropy_cost.final) == (0.001, 0.0)
    assert (record.config.learning_rate.start, record.config.learning_rate.frames) == (0.003, 600_000)
    assert isinstance(record.counters, Counters)
    assert record.counters[:5] == (336, 112, 7, 15, {})
    assert (len(record.counters.scores), record.counters.stride) == (15, 1)
    assert record.counters.curve[1] == Point(2, 48, 17.0, 13.5)


def test_a_record_of_yesterday_goes_on_in_the_format_of_today():
    record = read(json.loads(YESTERDAY))
    assert read(record_to_plain(record)) == record


def test_the_frame_skip_of_yesterdays_scenario_counts_where_the_settings_have_none():
    data = json.loads(YESTERDAY)
    del data["config"]["frame_skip"]
    assert read(data).scenario.game.frame_skip == 2


def test_a_record_without_a_policy_plays_greedily():
    data = json.loads(YESTERDAY)
    del data["policy"]
    assert read(data).best == Best(62.0, "greedy")


@pytest.mark.parametrize("data", [{"format": 1}, {"format": 6}, {"format": None}, {}, [1], "text", None])
def test_another_format_is_one_line_that_says_which_are_read(data):
    with pytest.raises(UserError, match=r"^models/last\.ckpt .* reads the formats 2, 3, 4, 5$"):
        read(data)


def complaint(data):
    with pytest.raises(UserError, match=r"models/last\.ckpt") as raised:
        read(data)
    return str(raised.value)


@pytest.mark.parametrize("key", ["run", "restarts", "scenario", "config", "progress", "best_evaluation"])
def test_a_record_that_lacks_something_is_no_whole_checkpoint(key):
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
def test_a_record_with_a_wrong_value_is_one_line(table, key, value, message):
    data = record_to_plain(run_record("basic"))
    (data[table] if table else data)[key] = value
    assert message in complaint(data)
    assert "\n" not in complaint(data)


def test_records_of_yesterday_without_their_tables_are_no_whole_checkpoints():
    for table in ("config", "scenario"):
        data = json.loads(YESTERDAY)
        data[table] = 5
        assert "not a complete checkpoint" in complaint(data)
    data = json.loads(YESTERDAY)
    data["scenario"]["training"] = None
    assert "[training] must be a table" in complaint(data)


def test_a_run_whose_scenarios_name_is_too_long_for_it_is_to_be_given_one():
    scenario, config = settings("cartpole")
    long = dataclasses.replace(scenario, name="a" * 190)
    with pytest.raises(UserError) as refused:
        begun(long, config)
    assert "None" not in str(refused.value)
    assert "--name" in str(refused.value)
    assert "a" * 40 in str(refused.value)
    assert begun(long, config, "short").name.startswith("short-seed")
    with pytest.raises(UserError, match="--name 'a/b'"):
        begun(scenario, config, "a/b")
