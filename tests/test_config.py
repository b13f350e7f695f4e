"""Settings: one declaration gives flag, help, type and range; a mistake gives one line with the fix."""

import dataclasses
import json
import re

import pytest
from fakes import complaint

from doom_a3c.cli import play, train
from doom_a3c.cli.flags import make_flag_parser
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.run.launch import make_new_run
from doom_a3c.settings import config as config_module
from doom_a3c.settings.catalog import find
from doom_a3c.settings.checks import check_combinations
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import suggest
from doom_a3c.settings.fields import Schedule, parse_values, schedule, select, setting, settings_of, to_flat
from doom_a3c.settings.games import AtariSpec, DoomSpec, GameSettings, GymnasiumSpec, Observation
from doom_a3c.settings.network import Network
from doom_a3c.settings.playing import PlaySettings
from doom_a3c.settings.renames import FOREIGN, find_new_name
from doom_a3c.settings.scenarios import from_plain
from doom_a3c.settings.shaping import parse_shaping, parse_weights
from doom_a3c.settings.vizdoom import VizdoomSettings

SETTINGS = settings_of(Config)


def parser():
    return make_flag_parser("train.py", "Trains.", Config)


def parse(*arguments):
    return parser().parse(list(arguments))


def build(**values):
    return parse_values(Config, values, "basic.toml")


def example(name):
    """Returns a valid value of a setting that is not its default."""
    one = SETTINGS[name]
    return one.choices[-1] if one.choices else {bool: not one.default, int: 7, float: 0.5, str: "elsewhere"}[one.kind]


def test_the_defaults_are_valid():
    assert build(**to_flat(Config())) == Config()


def test_parsing_returns_only_the_given_flags():
    assert parse() == {}
    assert parse("--workers", "3", "--learning-rate=0.01") == {"workers": 3, "learning_rate": 0.01}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_a_flag_of_its_type(name):
    flag, value = "--" + name.replace("_", "-"), example(name)
    if isinstance(value, bool):
        assert parse(flag) == {name: True}
        assert parse("--no-" + flag[2:]) == {name: False}
    else:
        parsed = parse(flag, str(value))
        assert parsed == {name: value}
        assert type(parsed[name]) is SETTINGS[name].kind
        assert to_flat(build(**parsed))[name] == value


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_help(name):
    action = next(action for action in parser()._actions if action.dest == name)
    text = SETTINGS[name].text
    assert action.help.replace("%%", "%").startswith(text)


@pytest.mark.parametrize("record", [Config, GameSettings, PlaySettings, VizdoomSettings, train.Options, play.Options])
def test_the_help_of_a_setting_is_one_short_sentence(record):
    for one in settings_of(record).values():
        assert 1 <= len(one.text.split()) <= 20, one.flag
        assert one.text[0].isupper()
        assert not one.text.endswith(".")
        assert not re.search(r"[.!?] [A-Z]", one.text), one.flag


def test_help_names_defaults_ranges_and_units():
    words = " ".join(parser().format_help().split())
    assert "[default 0.99; 0 to 1]" in words
    assert "[default 0.0001; above 0, to 1]" in words
    assert "[default 30; steps; 1 to 1,024]" in words
    assert "[default adam; adam or rmsprop]" in words
    assert "[default 30.0; seconds; 0 or more]" in words
    assert "[default 0.0; 0 to 1]" in words  # a number, not "off"
    assert "[default off]" in words
    assert "[default 1; threads; 1 to 64; goes with --engine queue]" in words
    assert "[default 1; steps; 1 to 1,048,576; goes with --engine queue, or --engine cluster" in words


def test_a_schedules_length_applies_only_with_its_end_value():
    for name in ("learning_rate", "entropy_cost", "epsilon"):
        group = SETTINGS[f"{name}_frames"].goes_with
        assert group.words == SETTINGS[f"final_{name}"].flag
        assert not group.applies(Config())
        assert group.applies(build(**{f"final_{name}": 0.5}))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--learnin-rate=1", "--learning-rate"), ("--worker", "--workers"), ("--entropy_cost", "--entropy-cost")],
)
def test_an_unknown_flag_suggests_the_nearest(typed, meant):
    message = complaint(parse, typed, "3")
    assert typed in message
    assert f"did you mean {meant}?" in message


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--games", "--envs-per-worker"),
        ("--passes=3", "--epochs"),
        ("--gamma", "--discount"),
        ("--ent_coef", "--entropy-cost"),
        ("--num-envs=8", "--envs-per-worker (per worker)"),
        ("--batch_size", "--minibatches (how many, not how large)"),
        ("--env", "--scenario"),
        ("--algo=PPO", "--epochs (1 is A3C, more are PPO)"),
        ("--wandb-project-name", "--wandb-project"),
        ("--wandb_user", "--wandb-entity"),
        ("-lr", "--learning-rate"),
        ("--no-norm-adv", "--no-normalize-advantages"),
        ("--no-cuda", "--device"),
        ("--no-capture_video=1", "--gif-every"),
        ("--no-anneal-lr", "--final-learning-rate (0 anneals to zero)"),
        ("--Gamma", "--discount"),
        ("--N_ENVS=8", "--envs-per-worker (per worker)"),
    ],
)
def test_a_former_or_foreign_flag_names_the_current_one(typed, meant):
    message = complaint(parse, typed, "3")
    assert typed in message
    assert f"here is {meant}" in message


@pytest.mark.parametrize("typed", ["--replay", "--replay_size=9", "--replay-by-advantage", "--no-replay-by-advantage"])
def test_a_removed_flag_is_reported_as_removed(typed):
    message = complaint(parse, typed)
    assert typed in message
    assert "removed" in message
    assert "did you mean" not in message


def test_foreign_names_map_to_settings_and_clash_with_none():
    records = {"train.py": (Config, GameSettings, train.Options), "play.py": (PlaySettings, play.Options)}
    known = {place: {name.rstrip("_") for one in kinds for name in settings_of(one)} for place, kinds in records.items()}
    tables = {"[game]": (DoomSpec, AtariSpec, GymnasiumSpec), "[observation]": (Observation,), "[network]": (Network,)}
    known |= {
        place: {field.name for kind in kinds for field in dataclasses.fields(kind)} for place, kinds in tables.items()
    }
    assert not FOREIGN.keys() & {*set().union(*known.values()), *settings_of(VizdoomSettings)}
    for word, names in FOREIGN.items():
        for one in names:
            assert one.name in known[one.place], word
            assert find_new_name(word, {one.name}) == one
        assert find_new_name(word, ["colour"]) is None


# The names in the issue, and the rows of docs/coming-from.md.
NEIGHBOURS = {
    "--gamma": ("--discount",),
    "--lr": ("--learning-rate",),
    "--env": ("--scenario",),
    "--env-id": ("--scenario",),
    "--n-envs": ("--envs-per-worker", "per worker"),
    "--num-envs": ("--envs-per-worker", "per worker"),
    "--total-timesteps": ("--frames", "steps x frame skip"),
    "--n-steps": ("--rollout-length",),
    "--batch-size": ("--minibatches", "how many"),
    "--n-epochs": ("--epochs",),
    "--ent-coef": ("--entropy-cost",),
    "--vf-coef": ("--value-cost", "twice"),
    "--track": ("--logger", "wandb"),
    "--deterministic": ("--policy", "greedy"),
    "--render": ("--window",),
    "--checkpoint": ("--from", "--resume"),
    "--num-env-runners": ("--workers",),
    "--train_batch_size": ("--rollout-length", "batch"),
    "--rollout_fragment_length": ("--rollout-length",),
    "--exploration_loss_coeff": ("--entropy-cost",),
    "--capture-video": ("--gif-every",),
    "--no-cuda": ("--device", "cpu"),
    "--frame-stack": ("[observation] stack",),
    "--use_rnn": ("[network] core",),
}


def complain(program, *arguments):
    """Returns the line with which a program rejects its arguments before it does anything else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "make_new_run", None)
        patch.setattr(play, "import_tensorflow", None)
        return complaint({"train": train._train, "play": play._play}[program], list(arguments))


@pytest.mark.parametrize("flag", NEIGHBOURS)
def test_a_foreign_flag_names_ours_in_train_and_play(flag):
    said = complain("train", flag, "3")
    assert [token for token in (flag, *NEIGHBOURS[flag]) if token not in said] == []
    said = complain("play", flag, "3")
    for_play = {"--checkpoint": ("--model",), "--capture-video": ("--record-episodes",)}
    assert [token for token in (flag, *for_play.get(flag, NEIGHBOURS[flag])) if token not in said] == []


@pytest.mark.parametrize("flag", NEIGHBOURS)
def test_a_foreign_key_names_ours_in_files_and_calls(flag):
    key, meant = flag[2:].replace("-", "_"), NEIGHBOURS[flag][0].rpartition(" ")[2].strip("-").replace("-", "_")
    assert meant in complaint(make_new_run, {key: 3}).replace("-", "_")
    file = {"game": {"wad": "basic.wad"}, "training": {key: 3}}
    assert (meant if meant != "scenario" else "[game]") in complaint(from_plain, file, "mine").replace("-", "_")


def test_foreign_arguments_of_play_calls_name_ours():
    for key, meant in {"deterministic": "policy (greedy)", "n_eval_episodes": "episodes", "gamma": "train.py"}.items():
        said = complaint(parse_values, PlaySettings, {key: True}, "settings")
        assert key in said
        assert meant in said


def test_all_unknown_flags_are_explained_without_their_values():
    said = complain("train", "--gamma", "0.9", "--lr=1e-3", "basic", "--env", "pong")
    for token in ("--discount", "--learning-rate", "--scenario basic", "--env: its name here is --scenario"):
        assert token in said
    assert "pong" not in said


@pytest.mark.parametrize(
    ("program", "flag", "has"),
    [("train", "--window", "play.py"), ("train", "--model", "play.py"), ("play", "--learning-rate", "train.py")],
)
def test_a_flag_of_the_other_program_names_that_program(program, flag, has):
    assert f"{has} has {flag}" in complain(program, flag, "3")


@pytest.mark.parametrize(
    ("program", "words", "meant"),
    [
        ("train", "basic", "--scenario basic"),
        ("train", "basik", "--scenario basic"),
        ("train", "CartPole-v1", "--scenario CartPole-v1"),
        ("train", "my_module:Mine-v0", "--scenario my_module:Mine-v0"),
        ("train", "basic 1M", "--scenario basic --frames 1M"),
        ("train", "basic 90s", "--scenario basic --minutes 90s"),
        ("train", "basic pong", "one game"),
        ("train", "resume", "--resume"),
        ("train", "models/last.ckpt", "--from models/last.ckpt"),
        ("train", "cuda:1", "--device gpu:1"),
        ("train", "scenario=basic frames=1e6", "--scenario basic --frames 1e6"),
        ("train", "env=pong training.gamma=0.9 +lr=1e-3", "--scenario pong --discount 0.9 --learning-rate 1e-3"),
        ("train", "vtrace=false resume=true", "--no-vtrace --resume"),
        ("train", "fraems=3", "--frames"),
        ("train", "--vtrace False", "--no-vtrace"),
        ("train", "--vtrace=true", "--vtrace takes no value"),
        ("train", "--quiet true", "--quiet takes no value"),
        ("play", "models/last.ckpt", "--model models/last.ckpt"),
        ("play", "basic", "--model basic"),
        ("play", "basic 10", "--model basic --episodes 10"),
        ("play", "a.ckpt b.ckpt", "--compare a.ckpt b.ckpt"),
        ("play", "episodes=3 deterministic=true", "--episodes 3 --policy (greedy)"),
    ],
)
def test_a_word_without_a_flag_suggests_the_flag(program, words, meant):
    said = complain(program, *words.split())
    assert meant in said
    assert words.split()[0].partition("=")[0] in said


# Numbers

COUNTS = {
    **{"1e6": 10**6, "1M": 10**6, "1m": 10**6, "2,000,000": 2 * 10**6, "2_000_000": 2 * 10**6, "1.5M": 1_500_000},
    **{"2k": 2000, "2K": 2000, "0.5M": 500_000, "1B": 10**9, "2.5e3": 2500, "1,000.0e3": 10**6, " 7 ": 7, "1 M": 10**6},
}
TIMES = {
    **{"90s": 1.5, "1h30m": 90, "1m": 1, "10 minutes": 10, "1h": 60, "1.5h": 90, "1d": 1440, "2": 2, "1,000": 1000},
    **{"1 h 30 min": 90, "1h30m15s": 90.25, "30sec": 0.5, "500ms": 0.5 / 60, "0.5": 0.5, "1e1": 10},
}


@pytest.mark.parametrize("text", COUNTS)
def test_counts_accept_common_notations_everywhere(text, tmp_path):
    (tmp_path / "mine.toml").write_text(f'base = "cartpole"\n[training]\nframes = "{text}"\n')
    assert parse("--frames", text) == {"frames": COUNTS[text]}
    assert build(frames=text).frames == COUNTS[text]
    file = find(str(tmp_path / "mine.toml"))
    assert file.training["frames"] == make_new_run({"frames": text}).config.frames == COUNTS[text]
    assert type(file.training["frames"]) is int


@pytest.mark.parametrize("text", TIMES)
def test_times_are_converted_to_the_unit_of_their_setting(text):
    assert parse("--minutes", text)["minutes"] == pytest.approx(TIMES[text])
    seconds = TIMES[text] * (60 if text[-1].isalpha() else 1)
    assert build(checkpoint_every=text).checkpoint_every == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("key", "text", "token"),
    [
        *(("frames", text, "whole number") for text in ("1.5", "2.5e0", "2.000", "1.0", "1e-3", "", "many", "1MM", "0x10")),
        *(("frames", text, "ambiguous") for text in ("1,5", "2.000.000", "10,00", "1.000,5", "1,5M", "0,500")),
        *(("frames", text, "--minutes") for text in ("90s", "1h30m", "2 hours")),
        *(("minutes", text, "1h30m") for text in ("1M", "1:30", "1m30", "30m1h", "1x", "5k", "soon", "-90s", "1h1h")),
        *(("target_score", text, "ambiguous") for text in ("1m", "1,5", "0,001", "0,5")),
        *(("target_score", text, "a number") for text in ("nan", "inf", "1 2", "--1", "5%", "1/2", ".", "e5")),
        ("frames", "9" * 400, "out of range"),
        ("frames", "1e9999", "out of range"),
        ("workers", "1M", "0 to 1,024"),
    ],
)
def test_text_that_is_no_number_or_ambiguous_is_refused(key, text, token):
    said = complaint(lambda: build(**{key: text}))
    assert said.startswith(f"basic.toml: {key}: ")
    assert token in said
    assert len(said) < 250


def test_flags_take_negative_numbers_in_any_notation():
    for text, score in (("-1e2", -100), ("-1,000", -1000), ("-2k", -2000), ("-.5", -0.5)):
        assert parse("--target-score", text) == {"target_score": score}


def test_whole_floats_count_as_whole_numbers():
    assert (build(frames=1e6).frames, type(build(frames=1e6).frames)) == (10**6, int)


def test_scenario_files_accept_the_same_notations(tmp_path):
    text = """
        base = "basic"
        [game]
        frame_skip = "2"
        [game.settings]
        episode_timeout = "2,100"
        living_reward = "-1e0"
        [shaping]
        HEALTH = "2k"
        [network]
        core_size = 1e2
        pixel_mean = "1k"
    """
    (tmp_path / "mine.toml").write_text(text)
    scenario = find(str(tmp_path / "mine.toml"))
    assert (scenario.game.frame_skip, scenario.network.core_size, scenario.network.pixel_mean) == (2, 100, 1000.0)
    assert parse_weights(scenario.game.shaping) == parse_weights(parse_shaping(["HEALTH=2k"]))
    assert parse_weights(scenario.game.shaping)["HEALTH"].gain == 2000
    assert (scenario.game.settings["episode_timeout"], scenario.game.settings["living_reward"]) == (2100, -1.0)


@pytest.mark.parametrize(("device", "meant"), [("cuda", "gpu"), ("cuda:1", "gpu:1"), ("GPU", "gpu"), ("CPU", "cpu")])
def test_a_foreign_device_name_suggests_ours_at_once(device, meant):
    said = complaint(make_new_run, {"device": device})
    assert f"'{device}'" in said
    assert f"--device {meant}?" in said
    assert complaint(import_tensorflow, 1, False, device) == said


def test_flags_cannot_be_abbreviated():
    # An abbreviation that works today becomes ambiguous, or another flag, tomorrow.
    complaint(parse, "--work", "3")


@pytest.mark.parametrize(
    "arguments", [["--workers", "three"], ["--workers"], ["--workers", "1.5"], ["--discount", "a"], ["stray"]]
)
def test_a_bad_flag_gives_a_one_line_error_that_names_it(arguments):
    assert arguments[0] in complaint(parse, *arguments)


def test_a_foreign_key_names_the_current_one():
    said = complaint(lambda: build(vf_coef=1))
    assert said.startswith("basic.toml: ")
    assert "'vf_coef'" in said
    assert "value_cost" in said


def test_an_unknown_key_suggests_the_nearest_and_names_its_file():
    message = complaint(lambda: build(learning_rat=0.1))
    assert "basic.toml" in message
    assert "'learning_rat'" in message
    assert "did you mean learning_rate?" in message
    assert "did you mean" not in complaint(lambda: build(zzzzzz=1))


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_text_is_refused(value):
    # As from --models-dir "$UNSET" in a shell; as a path it would mean the current folder.
    said = complaint(lambda: build(models_dir=value))
    assert said.startswith("basic.toml: models_dir: ")
    assert "empty" in said


@pytest.mark.parametrize(
    ("key", "value", "range_"),
    [
        ("workers", -1, "0 to 1,024"),
        ("envs_per_worker", 0, "1 to 4,096"),
        ("rollout_length", 0, "1 to 1,024"),
        ("discount", 1.01, "0 to 1"),
        ("discount", -0.01, "0 to 1"),
        ("gae_lambda", 2, "0 to 1"),
        ("learning_rate", 0.0, "above 0, to 1"),
        ("learning_rate", 1.5, "above 0, to 1"),
        ("final_learning_rate", -1e-9, "0 to 1"),
        ("entropy_cost", -0.1, "0 or more"),
        ("max_grad_norm", 0, "above 0"),
        ("seed", 2**31, "0 to"),
        ("frames", 0, "1 or more"),
        ("minutes", 0.0, "above 0"),
        ("optimizer", "sgd", "adam or rmsprop"),
        ("engine", "", "threads"),
        ("entropy_cost", float("inf"), "0 or more"),
        ("target_score", float("nan"), "it takes a number"),
        ("discount", 10**400, "0 to 1"),
        ("discount", -(10**400), "0 to 1"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(key, value, range_):
    message = complaint(lambda: build(**{key: value}))
    assert message.startswith(f"basic.toml: {key}: ")
    assert range_ in message


@pytest.mark.parametrize(
    ("key", "value"),
    [("discount", 0), ("discount", 1), ("learning_rate", 1), ("rollout_length", 1), ("envs_per_worker", 4096)],
)
def test_ranges_include_their_limits(key, value):
    assert to_flat(build(**{key: value}))[key] == value


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("workers", 1.5, "a whole number"),
        ("workers", True, "a whole number"),
        ("workers", "two", "a whole number"),
        ("workers", None, "a whole number"),
        ("learning_rate", "high", "a number"),
        ("learning_rate", True, "a number"),
        ("learning_rate", None, "a number"),
        ("learning_rate", [0.1], "a number"),
        ("normalize_advantages", 1, "true or false"),
        ("scenario", 3, "a text"),
        ("minutes", [1], "a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_right_one(key, value, kind):
    message = complaint(lambda: build(**{key: value}))
    assert message.startswith(f"basic.toml: {key}: ")
    assert json.dumps(value) in message.replace("'", '"')
    assert f"takes {kind}" in message


def test_an_int_is_accepted_as_a_float():
    value = build(entropy_cost=1).entropy_cost.start
    assert type(value) is float


@pytest.mark.parametrize("key", ["final_learning_rate", "minutes", "target_score"])
def test_optional_settings_can_be_unset(key):
    assert to_flat(build(**{key: None}))[key] is None
    assert to_flat(build(**{key: 0.5}))[key] == 0.5


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().workers = 3


@pytest.mark.parametrize(
    ("frames", "expected"),
    [(0, 1e-3), (250, 7.75e-4), (500, 5.5e-4), (1000, 1e-4), (5000, 1e-4)],
)
def test_a_schedule_falls_linearly_then_stays_constant(frames, expected):
    assert Schedule(1e-3, 1e-4).at(frames, 1000) == pytest.approx(expected)
    assert Schedule(1e-3, 1e-4, 1000).at(frames, 10**6) == pytest.approx(expected)


def test_a_schedule_can_reach_zero_or_rise_or_stay_constant():
    assert Schedule(1e-3, 0.0).at(100, 100) == 0
    assert Schedule(1e-3, 3e-3).at(50, 100) == pytest.approx(2e-3)
    assert Schedule(1e-3).at(99, 100) == 1e-3


def test_the_maximum_of_a_schedule_is_at_one_of_its_ends():
    assert [Schedule(0.5).maximum, Schedule(0.5, 0.0).maximum, Schedule(0.0, 0.2, 10).maximum] == [0.5, 0.5, 0.2]


@pytest.mark.parametrize("name", ["learning_rate", "entropy_cost", "epsilon"])
def test_a_schedule_is_three_flat_settings(name):
    flat = {name: 0.5, f"final_{name}": 0.25, f"{name}_frames": 100}
    config = build(**flat)
    assert getattr(config, name) == Schedule(0.5, 0.25, 100)
    assert to_flat(config).items() >= flat.items()
    assert list(flat) == [key for key in to_flat(config) if key in flat]
    assert getattr(build(**{f"final_{name}": 0.25}), name) == Schedule(getattr(Config(), name).start, 0.25)


def test_a_schedule_can_end_at_its_exclusive_start_limit():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Speeds:
        speed: Schedule = schedule(2.0, "a speed", above=1, high=3)

    assert parse_values(Speeds, {"final_speed": 1}, "here").speed == Schedule(2.0, 1.0)
    assert "above 1, to 3" in complaint(lambda: parse_values(Speeds, {"speed": 1}, "here"))
    assert "1 to 3" in complaint(lambda: parse_values(Speeds, {"final_speed": 0}, "here"))


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"engine": "queue", "advantage": "n_step"}, "--no-vtrace"),
        ({"epsilon": 0.1, "advantage": "n_step"}, "--advantage gae"),
        ({"epsilon": 0.1, "vtrace": False}, "--vtrace"),
        ({"final_epsilon": 0.1, "vtrace": False}, "--vtrace"),
        ({"engine": "queue", "min_batch": 2000, "max_batch": 1000}, "--max-batch"),
        ({"engine": "queue", "min_batch": 4000, "max_batch": 5000}, "--queue-size 9"),
        ({"engine": "cluster", "transport": "rollouts", "min_batch": 4000, "max_batch": 5000}, "--queue-size 9"),
        ({"engine": "cluster", "device": "gpu:1"}, "use --device gpu"),
    ],
)
def test_conflicting_settings_name_the_fix(settings, remedy):
    assert remedy in complaint(check_combinations, build(**settings))


def test_compatible_settings_pass():
    for settings in ({}, {"advantage": "n_step"}, {"engine": "queue"}, {"epsilon": 0.1}):
        assert check_combinations(build(**settings)) == build(**settings)


@pytest.mark.parametrize(
    ("name", "settings", "remedy"),
    [
        ("n_step", {}, {"advantage": "n_step"}),
        ("sequence_length", {"minibatches": 4, "engine": "queue"}, {"engine": "threads"}),
        ("gae_lambda", {"advantage": "n_step"}, {"advantage": "gae"}),
        ("rho_clip", {"engine": "queue", "vtrace": False}, {"vtrace": True}),
        ("learning_rate_frames", {}, {"final_learning_rate": 0.0}),
        ("entropy_cost_frames", {}, {"final_entropy_cost": 0.0}),
        ("epsilon_frames", {"epsilon": 0.5}, {"final_epsilon": 0.0}),
        ("epsilon_spread", {}, {"final_epsilon": 0.1}),
        ("predictors", {"engine": "cluster", "transport": "rollouts"}, {"engine": "queue"}),
        ("min_batch", {"engine": "cluster"}, {"transport": "rollouts"}),
        ("address", {"engine": "queue"}, {"engine": "cluster"}),
        ("push_rollouts", {"engine": "cluster", "transport": "rollouts"}, {"transport": "gradients"}),
    ],
)
def test_a_flag_without_effect_is_refused(name, settings, remedy):
    flag = "--" + name.replace("_", "-")
    assert f"{flag} has no effect here" in complaint(lambda config: check_combinations(config, {name}), build(**settings))
    assert check_combinations(build(**settings))  # a scenario file may hold settings without effect
    fixed = build(**{**settings, **remedy})
    assert check_combinations(fixed, {name}) == fixed


def test_minibatches_are_limited_to_the_number_of_games():
    few = build(envs_per_worker=3, minibatches=4, epochs=2)
    assert "--envs-per-worker is 3" in complaint(lambda config: check_combinations(config, {"minibatches"}), few)
    assert check_combinations(few) == few  # from a scenario file, which must not make `--envs-per-worker 3` an error
    assert few.minibatch_count == 3
    assert few.updates_per_rollout == 6


@pytest.mark.parametrize("changes", [{"envs_per_worker": 1}, {"envs_per_worker": 3, "minibatches": 3, "epochs": 2}])
def test_normalizing_the_advantage_of_a_single_step_is_refused(changes):
    config = build(rollout_length=1, normalize_advantages=True, **changes)
    assert "--normalize-advantages" in complaint(check_combinations, config)
    assert check_combinations(build(**{**changes, "envs_per_worker": 6, "rollout_length": 1, "normalize_advantages": True}))


@pytest.mark.parametrize("changes", [{"engine": "cluster"}, {"epsilon": 0.1}])
def test_a_rollout_of_one_update_has_no_minibatches(changes):
    config = build(minibatches=4, **changes)
    assert config.minibatch_count == config.updates_per_rollout == 1
    assert "--minibatches has no effect here" in complaint(
        lambda config: check_combinations(config, {"minibatches"}), config
    )


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({}, 8),
        ({"sequence_length": 0}, 32),
        ({"minibatches": 1}, 32),
        ({"engine": "queue"}, 32),
        ({"engine": "queue", "vtrace": False}, 8),
        ({"engine": "cluster"}, 32),
    ],
)
def test_minibatches_are_sequences_if_targets_are_precomputed(changes, length):
    config = build(**{"rollout_length": 32, "minibatches": 4, "sequence_length": 8, **changes})
    assert config.sequence_steps == length
    assert check_combinations(config) == config


def test_0_workers_means_one_per_cpu_and_is_saved_as_0(monkeypatch):
    monkeypatch.setattr(config_module, "cpu_count", lambda: 5)
    config = build(workers=0, envs_per_worker=5)
    assert (config.worker_count, config.env_count, to_flat(config)["workers"]) == (5, 25, 0)
    assert build(workers=2, envs_per_worker=5).env_count == 10
    host = build(engine="cluster", hosts=2)
    assert (host.worker_count, build(engine="cluster", hosts=9).worker_count) == (2, 1)
    monkeypatch.setattr(config_module, "cpu_count", lambda: 64)
    assert (config.worker_count, host.worker_count) == (5, 2)  # counted once
    assert build(**to_flat(config)).worker_count == 64  # for a run that is resumed elsewhere


def test_sequences_must_divide_the_rollout():
    config = build(rollout_length=30, minibatches=4, sequence_length=8)
    said = complaint(check_combinations, config)
    assert "--sequence-length 8" in said
    assert "--rollout-length 30" in said
    assert check_combinations(build(rollout_length=30, sequence_length=8))  # where sequences have no effect


def test_suggest_is_silent_without_a_close_name():
    assert suggest("workrs", ["workers", "games"]) == " (did you mean workers?)"
    assert suggest("xyz", ["workers", "games"]) == ""


def test_two_records_can_share_a_parser():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        color: str = setting("red", "a colour")

    values = make_flag_parser("x", "y", Config, Options).parse(["--color", "blue", "--envs-per-worker", "2"])
    assert select(values, Options) == {"color": "blue"}
    assert select(values, Config) == {"envs_per_worker": 2}


def test_help_exits_with_status_0(capsys):
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    assert ended.value.code == 0
    assert "--workers" in capsys.readouterr().out


def test_saliency_is_refused_with_the_queue_engine():
    config = build(gif_overlay="saliency", engine="queue")
    assert "use plain" in complaint(check_combinations, config)
