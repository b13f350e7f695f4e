"""Every known scenario can be played, and mistakes in scenario files give the fix."""

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from commands import ROOT
from fakes import complaint

from benchmarks.common.processes import engines
from doom_a3c.engines.updates import SharedStepSize
from doom_a3c.run.builder import Builder
from doom_a3c.run.play.trial_games import list_trials
from doom_a3c.settings import catalog
from doom_a3c.settings.checks import check_combinations
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import parse_values
from doom_a3c.settings.games import AtariSpec, DoomSpec, GymnasiumSpec
from doom_a3c.settings.interface import FAULTS
from doom_a3c.settings.scenarios import apply_overrides, from_plain, to_plain

NAMES = sorted(catalog.list_scenario_files())
OWN = [name for name in NAMES if catalog.list_scenario_files()[name].suffix == ".toml"]
TUNED = [name for name in OWN if not name.startswith("reference/")]


# Every scenario


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_loads_with_consistent_settings(name):
    scenario = catalog.find(name)
    assert scenario.name == name.rpartition("/")[2]
    assert scenario.description
    check_combinations(parse_values(Config, scenario.training, name))
    # Checkpoints store it as JSON.
    assert from_plain(json.loads(json.dumps(to_plain(scenario))), "the checkpoint") == scenario


@pytest.mark.parametrize("name", OWN)
def test_our_scenario_files_have_a_description_and_a_budget(name):
    own = catalog.tomllib.loads(catalog.list_scenario_files()[name].read_text())
    assert 10 < len(own["description"]) < 100  # its own, not its base's
    assert own["expected_score"]
    assert catalog.find(name).training["frames"] >= 10_000
    assert catalog.find(f"{name}.toml") == catalog.find(name)


@pytest.mark.parametrize("name", TUNED)
def test_the_budget_matches_the_expected_score(name):
    """The step size falls to 0 over the budget, so another budget is a different training."""
    scenario = catalog.find(name)
    measured = re.findall(r"(?:at|and) ([\d.]+)M", scenario.expected_score.partition(";")[0])
    assert not measured or scenario.training["frames"] / 1e6 == pytest.approx(max(map(float, measured)), rel=0.04)


@pytest.mark.parametrize("name", TUNED)
def test_mean_scores_match_the_expected_score_text(name):
    scenario = catalog.find(name)
    assert scenario.random_mean is not None
    if scenario.expected_mean is not None:
        measured = float(re.search(r"-?[\d.]+", scenario.expected_score)[0])
        assert scenario.expected_mean == pytest.approx(measured, abs=0.1 * abs(measured))
        assert scenario.random_mean < scenario.expected_mean
    if words := re.search(r"random play (-?[\d.]+\d)", scenario.expected_score):
        assert scenario.random_mean == pytest.approx(float(words[1]), abs=0.5)
    assert scenario.expected_mean is not None or not scenario.training.get("until_learned")


def short(scenario):
    """Returns the scenario with a timeout after a few steps."""
    game = scenario.game
    if isinstance(game, DoomSpec):
        frames = 8 * game.frame_skip
        match = {**game.match, "minutes": frames / 60 / 35} if game.match else {}
        game = replace(game, settings={**game.settings, "episode_timeout": frames}, match=match)
    elif isinstance(game, AtariSpec):
        game = replace(game, max_frames=5 * game.frame_skip)
    else:
        game = replace(game, settings={**game.settings, "max_episode_steps": 5 * game.frame_skip})
    return replace(scenario, game=game)


@pytest.fixture
def training_env():
    """Makes a vector of one game, and closes it after the test."""
    made = []

    def make(builder):
        made.append(builder.make_training_env(1))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_can_be_played_to_its_timeout(training_env, name):
    scenario = catalog.find(name)
    builder = Builder(*apply_overrides(short(scenario), scenario.training, name))
    network, env = builder.make_network("network", 0), training_env(builder)
    games = env.num_envs  # more than one where agents play each other
    core_state, resets = network.initial_state(games), tf.ones(games)
    seen, _ = env.reset(seed=np.full(games, 3))
    # The first action until the timeout, then each of the others.
    first, *others = [action for _, action in list_trials(env.single_action_space, builder.actions)]
    ends, actions = [], [first] * 8 + others
    for decision, action in enumerate(actions):
        assert env.single_observation_space.contains(tf.nest.map_structure(lambda batch: batch[0], seen))
        if decision < 2:
            output, core_state = network.step(tf.nest.map_structure(tf.constant, seen), resets, core_state)
            assert output.logits.shape == (games, builder.distribution.size)
            assert np.isfinite(output.logits).all()
            assert np.isfinite(output.values).all()
        seen, rewards, terminated, truncated, infos = env.step(np.stack([action] * games))
        assert rewards.shape == (games,)
        assert np.isfinite(rewards).all()
        assert FAULTS not in {**infos, **infos.get("final_info", {})}
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
def test_a_games_id_finds_its_tuned_file(name):
    scenario = catalog.find(name)
    if not isinstance(scenario.game, DoomSpec):
        assert catalog.find(scenario.game.id) == catalog.find(name.removesuffix("_lstm"))  # a variant of it
    else:
        assert catalog.find(name + ".cfg") == scenario


@pytest.mark.parametrize(
    ("name", "tuned"),
    [
        ("ALE/Pong-v5", "pong"),
        ("CartPole-v1", "cartpole"),
        ("basic.wad", "basic"),
        ("BASIC.WAD", "basic"),
        ("Basic.cfg", "basic"),
        ("Cartpole.toml", "cartpole"),
        ("PONG", "pong"),
    ],
)
def test_ids_files_and_names_in_any_case_find_the_tuned_scenario(name, tuned):
    assert catalog.find(name).name == tuned
    assert catalog.find(name) == catalog.find(tuned)


def test_files_are_found_in_any_case_and_exact_matches_win(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.setattr(catalog, "SCENARIO_FOLDERS", [tmp_path / "scenarios"])
    for name in ("bipA", "pair", "Pair"):
        (tmp_path / "scenarios" / f"{name}.toml").write_text('base = "basic"\n')
    for typed, name in [("bipA", "bipA"), ("BIPa", "bipA"), ("bipa.toml", "bipA"), ("pair", "pair"), ("Pair", "Pair")]:
        assert catalog.find(typed).name == name


@pytest.mark.parametrize(
    ("typed", "name", "kind", "stack", "frame_skip"),
    [
        ("ALE/MsPacman-v5", "MsPacman_v5", AtariSpec, 4, 4),
        ("Acrobot-v1", "Acrobot_v1", GymnasiumSpec, 1, 1),
        ("CartPole-v0", "CartPole_v0", GymnasiumSpec, 1, 1),  # of the reference scenarios, but untuned
        ("some_module:Mine", "Mine", GymnasiumSpec, 1, 1),  # Gymnasium finds its newest version
        ("some_module:MiniGrid-Empty-8x8-v0", "MiniGrid_Empty_8x8_v0", GymnasiumSpec, 1, 1),
    ],
)
def test_any_other_id_loads_untuned(typed, name, kind, stack, frame_skip):
    scenario = catalog.find(typed)
    assert (scenario.name, type(scenario.game), scenario.game.id) == (name, kind, typed)
    assert scenario.description == f"{typed}, untuned"
    assert (scenario.observation.stack, scenario.game.frame_skip) == (stack, frame_skip)
    assert scenario.network.core == "none"
    assert scenario.training.get("normalize_rewards", False) == (kind is GymnasiumSpec)  # rewards of Atari are clipped


@pytest.mark.parametrize(
    ("typed", "game"),
    [
        ("CartPole", "CartPole-v1"),
        ("MountainCar", "MountainCar-v0"),
        ("phys2d/CartPole", "phys2d/CartPole-v1"),
        ("ALE/Pong", "ALE/Pong-v5"),
    ],
)
def test_an_id_without_a_version_means_the_newest(typed, game):
    assert catalog.find(typed) == catalog.find(game)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ('[network]\nconvolutions = [["a", 8, 4]]', "1 or more"),
        ("[network]\nconvolutions = [[16.5, 8, 4]]", "1 or more"),
        ("[game]\nvariables = [3]", "variables"),
        ('[game]\nvariables = ["HEALTH"]\nvariable_scales = ["a"]', "variable_scales"),
        ('[game]\nvariables = ["HEALTH"]\nvariable_scales = [1e7]', "1,000,000"),
        ("[game]\nbuttons = [3]", "a button or a list of buttons"),
    ],
)
def test_invalid_values_give_a_one_line_error(tmp_path, line, remedy):
    (tmp_path / "mine.toml").write_text(f'base = "basic"\n{line}\n')
    assert remedy in complaint(lambda: Builder(catalog.find(str(tmp_path / "mine.toml")), Config()))


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
def test_a_misspelt_name_suggests_the_nearest(typed, meant):
    assert f"did you mean {meant}?" in complaint(catalog.find, typed)


@pytest.mark.parametrize("name", ["zzzzzz", "base/doom", "here/mine.toml"])
def test_an_unknown_scenario_is_refused(name):
    assert name in complaint(catalog.find, name)
    assert name not in NAMES


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "for several players") for name in catalog._MATCHES), *((name, f"{name}.wad") for name in catalog._SOLD)],
)
def test_unplayable_shipped_files_get_an_explanation(name, kind):
    for typed in (name, f"{name}.cfg", f"{name}.wad", name.upper(), f"{name.title()}.cfg", f"{name.upper()}.WAD"):
        message = complaint(catalog.find, typed)
        assert kind in message
        assert "unknown scenario" not in message
    assert name not in NAMES


@pytest.mark.parametrize("name", [name for name in OWN if name.startswith("reference/")])
def test_reference_scenarios_update_once_and_never_roll_back(name):
    scenario = catalog.find(name)
    _, config = apply_overrides(scenario, scenario.training, "test")
    assert config.updates_per_rollout == 1
    assert SharedStepSize.from_config(config).value == 1
    assert config.rollback_drop == 0 or config.engine == "cluster"
    assert config.uniform_cost == 0


def test_files_that_are_no_scenarios_get_a_suggestion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ten.py").touch()
    assert "ten:NAME-v0" in complaint(catalog.find, "ten.py")
    assert "there is no such file" in complaint(catalog.find, "mine.wad")
    assert "did you mean basic?" in complaint(catalog.find, "basik.wad")
