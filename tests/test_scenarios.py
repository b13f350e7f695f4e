"""Every scenario that can be named is playable as it says, and mistakes in scenario files say what is right."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.processes import engines
from doom_a3c import catalog
from doom_a3c.cli.build import Builder
from doom_a3c.config import Config, consistent
from doom_a3c.rollouts import met_faults
from doom_a3c.scenarios import AtariSpec, DoomSpec, GymnasiumSpec, from_record, record, resolved
from doom_a3c.settings import UserError, validated

NAMES = sorted(catalog.available())
OWN = [name for name in NAMES if catalog.available()[name].suffix == ".toml"]
TUNED = [name for name in OWN if not name.startswith("reference/")]


# Every scenario


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_loads_and_its_settings_fit_each_other(name):
    scenario = catalog.find(name)
    assert scenario.name == name.rpartition("/")[2]
    assert scenario.description
    consistent(validated(Config, scenario.training, name))
    # A checkpoint holds it as JSON.
    assert from_record(json.loads(json.dumps(record(scenario))), "the checkpoint") == scenario


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_the_project_describes_its_game_and_sets_a_budget(name):
    own = catalog.tomllib.loads(catalog.available()[name].read_text())
    assert 10 < len(own["description"]) < 100  # its own words, not those of its base
    assert own["expected_score"]
    assert catalog.find(name).training["frames"] >= 10_000
    assert catalog.find(f"{name}.toml") == catalog.find(name)


def short(scenario):
    """Returns the scenario with a time-out after a few steps."""
    game = scenario.game
    if isinstance(game, DoomSpec):
        game = replace(game, settings={**game.settings, "episode_timeout": 8 * game.frame_skip})
    elif isinstance(game, AtariSpec):
        game = replace(game, max_frames=5 * game.frame_skip)
    else:
        game = replace(game, settings={**game.settings, "max_episode_steps": 5 * game.frame_skip})
    return replace(scenario, game=game)


@pytest.fixture
def training_env():
    """Makes a vector of one game; closes it."""
    made = []

    def make(builder):
        made.append(builder.training_env(1))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_can_be_played_to_its_time_out(training_env, name):
    scenario = catalog.find(name)
    builder = Builder(*resolved(short(scenario), scenario.training, name))
    network, env = builder.network("network", 0), training_env(builder)
    core_state, resets = network.initial_state(1), tf.ones(1)
    seen, _ = env.reset(seed=np.array([3]))
    # The first action until the time-out, which none of them ends before, then each of the others.
    ends, actions = [], [0] * 8 + list(range(1, builder.actions))
    for decision, action in enumerate(actions):
        assert env.single_observation_space.contains(tf.nest.map_structure(lambda batch: batch[0], seen))
        if decision < 2:
            output, core_state = network.step(tf.nest.map_structure(tf.constant, seen), resets, core_state)
            assert output.logits.shape == (1, builder.actions)
            assert np.isfinite(output.logits).all()
            assert np.isfinite(output.values).all()
        seen, rewards, terminated, truncated, infos = env.step(np.array([action]))
        assert rewards.shape == (1,)
        assert np.isfinite(rewards).all()
        assert met_faults(infos) == []
        if terminated[0] or truncated[0]:
            ends.append((decision, bool(terminated[0]), bool(truncated[0])))
            assert env.single_observation_space.contains(infos["final_obs"][0])
    is_doom = isinstance(scenario.game, DoomSpec)
    assert ends[0] == (7 if is_doom else 4, False, True)
    assert bool(engines(os.getpid())) == is_doom
    env.close()
    assert not engines(os.getpid())


# Names


@pytest.mark.parametrize("name", TUNED)
def test_a_games_id_finds_the_file_that_is_tuned_for_it(name):
    scenario = catalog.find(name)
    if not isinstance(scenario.game, DoomSpec):
        assert catalog.find(scenario.game.id) == scenario
    else:
        assert catalog.find(name + ".cfg") == scenario


@pytest.mark.parametrize(("name", "tuned"), [("ALE/Pong-v5", "pong"), ("CartPole-v1", "cartpole"), ("basic.wad", "basic")])
def test_these_have_been_tuned(name, tuned):
    assert catalog.find(name).name == tuned
    assert catalog.find(name) == catalog.find(tuned)


@pytest.mark.parametrize(
    ("typed", "name", "kind", "stack", "frame_skip"),
    [
        ("ALE/MsPacman-v5", "MsPacman_v5", AtariSpec, 4, 4),
        ("Acrobot-v1", "Acrobot_v1", GymnasiumSpec, 1, 1),
        ("CartPole-v0", "CartPole_v0", GymnasiumSpec, 1, 1),  # which reference scenarios are for, but untuned
        ("some_module:MiniGrid-Empty-8x8-v0", "MiniGrid_Empty_8x8_v0", GymnasiumSpec, 1, 1),
    ],
)
def test_any_other_id_loads_untuned(typed, name, kind, stack, frame_skip):
    scenario = catalog.find(typed)
    assert (scenario.name, type(scenario.game), scenario.game.id) == (name, kind, typed)
    assert scenario.description == f"{typed}, untuned"
    assert (scenario.observation.stack, scenario.game.frame_skip) == (stack, frame_skip)
    assert scenario.network.core == "none"


def complaint(name):
    with pytest.raises(UserError) as raised:
        catalog.find(str(name))
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ('[network]\nconvolutions = [["a", 8, 4]]', "each 1 or more"),
        ("[network]\nconvolutions = [[16.5, 8, 4]]", "each 1 or more"),
        ("[game]\nvariables = [3]", "takes names"),
        ('[game]\nvariables = ["HEALTH"]\nvariable_scales = ["a"]', "one number a variable"),
        ("[game]\nbuttons = [3]", "a button or a list of buttons"),
    ],
)
def test_values_of_a_wrong_kind_are_a_line(tmp_path, line, remedy):
    (tmp_path / "mine.toml").write_text(f'base = "basic"\n{line}\n')
    with pytest.raises(UserError, match=remedy):
        Builder(catalog.find(str(tmp_path / "mine.toml")), Config())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("bsic", "basic"),
        ("cartpol", "cartpole"),
        ("deadly_coridor", "deadly_corridor"),
        ("basik.toml", "basic"),
        *((name[:-1] + "_", name) for name in OWN if name.startswith("reference/")),
    ],
)
def test_a_misspelt_name_names_the_nearest(typed, meant):
    assert f"did you mean {meant}?" in complaint(typed)


@pytest.mark.parametrize("name", ["zzzzzz", "base/doom", "here/mine.toml", "cig", "doom2"])
def test_what_is_none_is_refused(name):
    assert name in complaint(name)
    assert name not in NAMES


# Files


@pytest.fixture
def write(tmp_path):
    """Writes a scenario file; returns its path."""

    def make(text, name="mine"):
        path = tmp_path / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return make


def test_a_file_changes_what_it_names_and_keeps_the_rest_of_its_base(write):
    base = catalog.find("basic")
    text = """
        base = "basic"
        expected_score = "12"
        [game.settings]
        render_hud = true
        living_reward = -2.0
        [observation]
        stack = 3
        [training]
        discount = 0.5
    """
    scenario = catalog.find(str(write(text)))
    assert scenario == replace(
        base,
        name="mine",
        expected_score="12",
        game=replace(base.game, settings={**base.game.settings, "render_hud": True, "living_reward": -2.0}),
        observation=replace(base.observation, stack=3),
        training={**base.training, "discount": 0.5},
    )
    assert base.game.settings["render_hud"] is False
    assert base.training["discount"] != 0.5


# Frame skip


@pytest.mark.parametrize(("base", "skip"), [("cartpole", 1), ("basic", 4), ("predict_position", 2)])
def test_a_file_may_have_its_frame_skip_in_either_table(write, base, skip):
    assert catalog.find(base).game.frame_skip == skip
    for table in ("game", "training"):
        scenario = catalog.find(str(write(f'base = "{base}"\n[{table}]\nframe_skip = 3\n')))
        assert scenario.game == replace(catalog.find(base).game, frame_skip=3)
        assert "frame_skip" not in scenario.training


def test_the_command_line_goes_before_the_scenarios_frame_skip():
    for values, skip in (({}, 2), ({"frame_skip": 7}, 7)):
        scenario, config = resolved(catalog.find("predict_position"), values, "flags")
        assert (scenario.game.frame_skip, config.frame_skip) == (skip, skip)


def test_a_checkpoint_that_has_its_frame_skip_among_the_settings_keeps_it():
    data = record(catalog.find("predict_position"))
    del data["game"]["frame_skip"]
    data["training"]["frame_skip"] = 2  # of the scenario, and 5 of the command line
    scenario, config = resolved(from_record(data, "the checkpoint"), {"frame_skip": 5}, "the checkpoint")
    assert (scenario.game.frame_skip, config.frame_skip) == (5, 5)
    assert from_record(data, "the checkpoint") == catalog.find("predict_position")


GAMES = {"base/doom": 'config = "basic.cfg"', "base/atari": 'id = "ALE/Pong-v5"', "base/gymnasium": 'id = "CartPole-v1"'}


@pytest.mark.parametrize("name", [name for name in catalog._own_files() if name.startswith("base/")])
def test_a_base_is_a_valid_start(write, name):
    scenario = catalog.find(str(write(f'base = "{name}"\n[game]\n{GAMES[name]}\n')))
    consistent(validated(Config, scenario.training, name))
    assert "frames" not in scenario.training  # that is for the file to say
    assert name not in NAMES


def test_a_files_own_cfg_may_lie_beside_it(write, tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = basic.wad\navailable_buttons = { ATTACK }\n")
    assert catalog.find(str(write('[game]\nconfig = "mine.cfg"\n'))).game.config == str(tmp_path / "mine.cfg")


def test_an_unknown_base_is_named(write):
    message = complaint(path := write('base = "base/dom"\n[game]\nconfig = "basic.cfg"\n'))
    assert str(path) in message
    assert "'base/dom'" in message
    assert "base/doom" in message


def cycle(write, tmp_path, monkeypatch, *names):
    """Writes files each of which is based on the next and the last on the first; returns the complaint about one."""
    for name, base in zip(names, (*names[1:], names[0]), strict=True):
        write(f'base = "{base}"\n[game]\nconfig = "basic.cfg"\n', name)
    monkeypatch.setattr(catalog, "SCENARIO_FOLDERS", (tmp_path,))
    return complaint(names[0])


def test_a_file_that_is_its_own_base_is_refused(write, tmp_path, monkeypatch):
    assert "'mine'" in cycle(write, tmp_path, monkeypatch, "mine")


def test_a_circle_of_bases_is_refused(write, tmp_path, monkeypatch):
    assert "base" in cycle(write, tmp_path, monkeypatch, "one", "reference/two", "three")


@pytest.mark.parametrize(
    "base",
    [
        "3",
        "true",
        '["basic"]',
    ],
)
def test_a_base_that_is_no_name_is_refused(write, base):
    assert "base" in complaint(write(f'base = {base}\n[game]\nconfig = "basic.cfg"\n'))


ATARI = 'base = "base/atari"\n[game]\nid = "ALE/Pong-v5"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ATARI + "noop_mx = 3", "[game]: unknown setting 'noop_mx' (did you mean noop_max?)"),
        (ATARI + "life_loss = true", "[game]: unknown setting 'life_loss' (did you mean life_loss_terminates?)"),
        (ATARI + "sticky_action = 0.25", "(did you mean sticky_actions?)"),
        (ATARI + 'buttons = "single"', "[game]: unknown setting 'buttons'"),
        (ATARI + "sticky_actions = 1.5", "sticky_actions is a probability, 0 to 1"),
        (ATARI + "noop_max = -1", "noop_max must be 0 or more"),
        (ATARI + "max_frames = 0", "max_frames must be 1 or more"),
        (ATARI + "frame_skip = 65", "frame_skip must be 1 to 64"),
        (ATARI + "frame_skip = 2.0", "frame_skip must be a int, such as 4, not 2.0"),
        (ATARI + "[training]\nframe_skip = 0", "frame_skip must be 1 to 64"),
        (ATARI + "frame_skip = 2\n[training]\nframe_skip = 2", "[game] and [training] both have a frame_skip"),
        (ATARI + "full_actions = 1", "full_actions must be a bool, such as False, not 1"),
        ('[game]\nid = "CartPole-v1"\nsetings = {}', "(did you mean settings?)"),
        ("[game]\nid = 3", "id must be a str"),
        ("[game]\n", "[game] needs a config or a wad, or the id of a Gymnasium environment"),
        ('base = "basic"\ngame = 3', "[game] must be a table"),
        ('base = "basic"\n[trainin]', "unknown setting 'trainin' (did you mean training?)"),
        ('base = "basic"\n[training]\ngame = 3', "unknown setting 'game' (did you mean games?)"),
        ('base = "basic"\n[observation]\nstack = 17', "stack must be 1 to 16"),
        ('base = "basic"\n[network]\ncore = "gru"', "core must be 'lstm' or 'none'"),
        ("[game", "not a readable TOML file"),
        ("\x00", "not a readable TOML file"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_says_what_is_right(write, text, message):
    assert message in (said := complaint(write(text)))
    assert "mine" in said
