"""Scenario files: bases and overrides; a mistake gives one line with the fix."""

from dataclasses import replace

import pytest
from fakes import complaint

from doom_a3c.run.launch import make_new_run
from doom_a3c.settings import catalog
from doom_a3c.settings.checks import check_combinations
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import parse_values
from doom_a3c.settings.scenarios import apply_overrides


@pytest.fixture
def write(tmp_path):
    """Writes a scenario file; returns its path."""

    def make(text, name="mine"):
        path = tmp_path / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return make


def test_a_file_overrides_its_base(write):
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
    scenario = catalog.find(write(text))
    assert scenario == replace(
        base,
        name="mine",
        expected_score="12",
        expected_mean=None,
        random_mean=None,
        game=replace(base.game, settings={**base.game.settings, "render_hud": True, "living_reward": -2.0}),
        observation=replace(base.observation, stack=3),
        training={**base.training, "discount": 0.5},
    )
    assert base.game.settings["render_hud"] is False
    assert base.training["discount"] != 0.5


def test_a_file_cannot_set_its_own_name(write):
    assert "mine.toml: unknown setting 'name'" in complaint(catalog.find, write('base = "basic"\nname = "other"\n'))


def test_scores_are_not_inherited_from_the_base(write):
    own = catalog.find(write('base = "basic"\nexpected_mean = 12\n'))
    assert (own.expected_mean, own.random_mean) == (12.0, None)
    assert type(own.expected_mean) is float


def test_until_learned_needs_a_known_score_and_evaluations(write):
    path = write('base = "basic"\n')
    assert "--until-learned" in (message := complaint(make_new_run, {"scenario": path, "until_learned": True}))
    assert "mine" in message
    assert "expected_mean" in message
    settings = {"scenario": "basic", "until_learned": True, "evaluate_every": 0.0}
    assert "--evaluate-every" in complaint(make_new_run, settings)
    make_new_run({"scenario": path})  # its base's until_learned has no effect


def test_a_frame_or_episode_flag_turns_until_learned_off():
    def early(**settings):
        return make_new_run({"scenario": "basic", **settings}).config.until_learned

    assert [early(), early(minutes=1.0), early(frames=1000, until_learned=True)] == [True] * 3
    assert [early(frames=1000), early(episodes=10), early(until_learned=False)] == [False] * 3


# Frame skip


@pytest.mark.parametrize("base", ["cartpole", "basic", "reference/r1_a3c_doom"])
def test_the_frame_skip_belongs_to_the_game(write, base):
    scenario = catalog.find(write(f'base = "{base}"\n[game]\nframe_skip = 3\n'))
    assert scenario.game == replace(catalog.find(base).game, frame_skip=3)
    assert "frame_skip" not in scenario.training


@pytest.fixture
def two_frame_steps(write):
    """A scenario whose steps last two frames."""
    return catalog.find(write('base = "basic"\n[game]\nframe_skip = 2\n'))


def test_the_command_line_overrides_the_frame_skip(two_frame_steps):
    for values, skip in (({}, 2), ({"frame_skip": 7}, 7)):
        scenario, _ = apply_overrides(two_frame_steps, values, "flags")
        assert scenario.game.frame_skip == skip
    for wrong in (0, 65):
        assert "--frame-skip: " in complaint(apply_overrides, scenario, {"frame_skip": wrong}, "flags")


GAMES = {
    "base/doom": 'config = "basic.cfg"',
    "base/level": 'config = "basic.cfg"',
    "base/match": 'wad = "cig.wad"\n[game.match]\nbots = 7',
    "base/atari": 'id = "ALE/Pong-v5"',
    "base/gymnasium": 'id = "CartPole-v1"',
}


@pytest.mark.parametrize("name", [name for name in catalog._list_own_files() if name.startswith("base/")])
def test_a_base_makes_a_valid_scenario(write, name):
    scenario = catalog.find(write(f'base = "{name}"\n[game]\n{GAMES[name]}\n'))
    check_combinations(parse_values(Config, scenario.training, name))
    assert "frames" not in scenario.training  # the file sets it
    assert name not in catalog.list_scenario_files()


def test_a_scenario_file_may_use_a_cfg_beside_it(write, tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = basic.wad\navailable_buttons = { ATTACK }\n")
    game = catalog.find(write('[game]\nconfig = "mine.cfg"\n')).game
    assert (game.wad, game.available_buttons) == ("basic.wad", ("ATTACK",))


@pytest.mark.parametrize(("base", "wad"), [("duel_bots", "cig.wad"), ("freedoom1", "my_way_home.wad")])
def test_the_level_of_a_files_own_cfg_replaces_the_level_of_its_base(write, tmp_path, base, wad):
    (tmp_path / "mine.cfg").write_text(f"doom_scenario_path = {wad}\navailable_buttons = {{ ATTACK }}\n")
    game = catalog.find(write(f'base = "{base}"\n[game]\nconfig = "mine.cfg"\n')).game
    assert (game.wad, game.iwad, game.map_played) == (wad, "", "map01")


def test_the_map_of_a_files_own_cfg_replaces_the_map_of_its_base(write, tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_map = map02\n")
    game = catalog.find(write('base = "cig_bots"\n[game]\nconfig = "mine.cfg"\n')).game
    assert (game.wad, game.map_played) == ("cig.wad", "map02")


def test_an_unknown_base_is_named(write):
    message = complaint(catalog.find, path := write('base = "base/dom"\n[game]\nconfig = "basic.cfg"\n'))
    assert path in message
    assert "'base/dom'" in message
    assert "base/doom" in message


def cycle(write, tmp_path, monkeypatch, *names):
    """Writes files each based on the next, the last on the first; returns the error of loading the first."""
    for name, base in zip(names, (*names[1:], names[0]), strict=True):
        write(f'base = "{base}"\n[game]\nconfig = "basic.cfg"\n', name)
    monkeypatch.setattr(catalog, "SCENARIO_FOLDERS", (tmp_path,))
    return complaint(catalog.find, names[0])


def test_a_file_that_is_its_own_base_is_refused(write, tmp_path, monkeypatch):
    assert "'mine'" in cycle(write, tmp_path, monkeypatch, "mine")


def test_a_cycle_of_bases_is_refused(write, tmp_path, monkeypatch):
    assert "base" in cycle(write, tmp_path, monkeypatch, "one", "reference/two", "three")


@pytest.mark.parametrize(
    "base",
    [
        "3",
        "true",
        '["basic"]',
    ],
)
def test_a_base_must_be_a_name(write, base):
    assert "base" in complaint(catalog.find, write(f'base = {base}\n[game]\nconfig = "basic.cfg"\n'))


ATARI = 'base = "base/atari"\n[game]\nid = "ALE/Pong-v5"\n'


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (ATARI + "noop_mx = 3", ("[game]", "noop_mx", "did you mean noop_max?")),
        (ATARI + "life_loss = true", ("[game]", "'life_loss'", "did you mean life_loss_terminates?")),
        (ATARI + "sticky_action = 0.25", ("did you mean sticky_actions?",)),
        (ATARI + 'buttons = "single"', ("[game]", "'buttons'")),
        (ATARI + "sticky_actions = 1.5", ("sticky_actions", "0 to 1")),
        (ATARI + "noop_max = -1", ("noop_max", "0 to 10,000")),
        (ATARI + "max_frames = 0", ("max_frames", "1 or more")),
        (ATARI + "frame_skip = 65", ("[game]", "frame_skip", "65", "1 to 64")),
        (ATARI + "frame_skip = 2.5", ("frame_skip", "a whole number", "2.5")),
        (ATARI + "[training]\nframe_skip = 2", ("frame_skip", "[training]", "belongs in [game]")),
        (ATARI + "full_actions = 1", ("full_actions", "true or false")),
        (ATARI + 'fire_on_reset = ""', ("fire_on_reset", "true or false")),
        ('[game]\nid = "CartPole-v1"\nsetings = {}', ("did you mean settings?",)),
        ("[game]\nid = 3", ("id", "a text")),
        (ATARI + "[network]\nhidden = 64", ("hidden", "a list", "[256]", "64")),
        ("[game]\n", ("[game]", "config", "wad", "id")),
        ('base = "basic"\ngame = 3', ("[game]", "a table")),
        ('[game]\nbase = "base/doom"', ("base", "[game]", "belongs above the first table")),
        ('core = "none"\nbase = "basic"', ("core", "belongs in [network]")),
        ('base = "basic"\n[training]\ncore = "none"', ("core", "[training]", "belongs in [network]")),
        ('base = "base/atari"\n[network]\nid = "ALE/Pong-v5"', ("id", "[network]", "belongs in [game]")),
        ('config = "basic.cfg"\nbase = "base/doom"', ("config", "belongs in [game]")),
        (
            'base = "basic"\n[network]\nfinal_learning_rate = 0.0',
            ("[network]", "belongs in [training]"),
        ),
        ('base = "basic"\n[game]\nkill_reward = 1.0', ("kill_reward", "in [game]", "belongs in [game.settings]")),
        ('base = "basic"\n[trainin]', ("'trainin'", "did you mean training?")),
        ('base = "basic"\n[training]\nepoch = 3', ("'epoch'", "did you mean epochs?")),
        ('base = "basic"\n[training]\ngames = 3', ("'games'", "envs_per_worker")),
        ('base = "basic"\n[training]\nn_envs = 3', ("'n_envs'", "envs_per_worker (per worker)")),
        ('base = "basic"\n[training]\nmax_staleness = 3', ("'max_staleness'", "max_policy_lag")),
        ('base = "basic"\ngamma = 0.5', ("'gamma'", "discount", "[training]")),
        ('base = "basic"\n[training]\nenv_framestack = 4', ("'env_framestack'", "stack", "[observation]")),
        ('base = "base/atari"\n[game]\nenv_id = "ALE/Pong-v5"', ("'env_id'", "id")),
        ('base = "basic"\n[training]\nscenario = "basic"', ("'scenario'",)),
        ('base = "basic"\n[observation]\nstack = 17', ("stack", "1 to 16")),
        ('base = "car_racing"\n[observation]\ncrop = [-5, 0, 0, 0]', ("crop", "whole numbers")),
        ('base = "car_racing"\n[observation]\ncrop = [1, 2]', ("crop", "[top, bottom, left, right]")),
        (ATARI + "[observation]\ncrop = [34, 16, 0, 0]", ("crop", "no effect")),
        (ATARI + '[observation]\nresolution = "320x240"', ("resolution", "no effect")),
        ('base = "cartpole"\n[observation]\nresolution = "320x240"', ("resolution", "no effect")),
        ('base = "basic"\n[observation]\nscale_numbers = true', ("scale_numbers", "no effect")),
        ('base = "basic"\n[game]\nmirror = true', ("[game]", "'mirror'", "removed")),
        ('base = "basic"\n[game]\nvariables = ["HEALTH", "AMMO2", "HEALTH"]', ("variables", "HEALTH twice")),
        ('base = "basic"\n[game]\nframe_skip = []', ("frame_skip", "a whole number", "[]")),
        (
            'base = "basic"\n[training]\nshaping = ["HEALTH=1"]',
            ("shaping", "[training]", "table of its own, [shaping]"),
        ),
        ('base = "basic"\nexpected_mean = "80"', ("expected_mean", "a number", '"80"')),
        ('base = "basic"\nrandom_mean = true', ("random_mean", "a number", "true")),
        ('base = "basic"\nexpected_mean = nan', ("expected_mean", "nan")),
        ('base = "basic"\n[training]\nexpected_mean = 80', ("expected_mean", "[training]", "above the first table")),
        ("[game", ("TOML",)),
        ("\x00", ("text file",)),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_the_fix(write, text, tokens):
    message = complaint(catalog.find, write(text))
    assert [token for token in ("mine", *tokens) if token not in message] == []
