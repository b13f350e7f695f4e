"""Scenario files: one is based on another, and a mistake in one is a line that says what is right."""

from dataclasses import replace

import pytest
from fakes import complaint

from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.consistency import check_combinations
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
    scenario = catalog.find(write(text))
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


@pytest.mark.parametrize("base", ["cartpole", "basic", "reference/r1_a3c_doom"])
def test_the_frame_skip_is_the_games(write, base):
    scenario = catalog.find(write(f'base = "{base}"\n[game]\nframe_skip = 3\n'))
    assert scenario.game == replace(catalog.find(base).game, frame_skip=3)
    assert "frame_skip" not in scenario.training


@pytest.fixture
def every_second(write):
    """A scenario whose steps last two frames."""
    return catalog.find(write('base = "basic"\n[game]\nframe_skip = 2\n'))


def test_the_command_line_goes_before_the_scenarios_frame_skip(every_second):
    for values, skip in (({}, 2), ({"frame_skip": 7}, 7)):
        scenario, _ = apply_overrides(every_second, values, "flags")
        assert scenario.game.frame_skip == skip
    for wrong in (0, 65):
        assert "--frame-skip: " in complaint(apply_overrides, scenario, {"frame_skip": wrong}, "flags")


GAMES = {"base/doom": 'config = "basic.cfg"', "base/atari": 'id = "ALE/Pong-v5"', "base/gymnasium": 'id = "CartPole-v1"'}


@pytest.mark.parametrize("name", [name for name in catalog._list_own_files() if name.startswith("base/")])
def test_a_base_is_a_valid_start(write, name):
    scenario = catalog.find(write(f'base = "{name}"\n[game]\n{GAMES[name]}\n'))
    check_combinations(parse_values(Config, scenario.training, name))
    assert "frames" not in scenario.training  # that is for the file to say
    assert name not in catalog.list_scenario_files()


def test_a_files_own_cfg_may_lie_beside_it(write, tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = basic.wad\navailable_buttons = { ATTACK }\n")
    game = catalog.find(write('[game]\nconfig = "mine.cfg"\n')).game
    assert (game.wad, game.available_buttons) == ("basic.wad", ("ATTACK",))


def test_an_unknown_base_is_named(write):
    message = complaint(catalog.find, path := write('base = "base/dom"\n[game]\nconfig = "basic.cfg"\n'))
    assert path in message
    assert "'base/dom'" in message
    assert "base/doom" in message


def cycle(write, tmp_path, monkeypatch, *names):
    """Writes files each of which is based on the next and the last on the first; returns the complaint about one."""
    for name, base in zip(names, (*names[1:], names[0]), strict=True):
        write(f'base = "{base}"\n[game]\nconfig = "basic.cfg"\n', name)
    monkeypatch.setattr(catalog, "SCENARIO_FOLDERS", (tmp_path,))
    return complaint(catalog.find, names[0])


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
    assert "base" in complaint(catalog.find, write(f'base = {base}\n[game]\nconfig = "basic.cfg"\n'))


ATARI = 'base = "base/atari"\n[game]\nid = "ALE/Pong-v5"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ATARI + "noop_mx = 3", "[game]: unknown setting 'noop_mx' (did you mean noop_max?)"),
        (ATARI + "life_loss = true", "[game]: unknown setting 'life_loss' (did you mean life_loss_terminates?)"),
        (ATARI + "sticky_action = 0.25", "(did you mean sticky_actions?)"),
        (ATARI + 'buttons = "single"', "[game]: unknown setting 'buttons'"),
        (ATARI + "sticky_actions = 1.5", "sticky_actions is a probability, 0 to 1"),
        (ATARI + "noop_max = -1", "noop_max must be 0 to 10,000"),
        (ATARI + "max_frames = 0", "max_frames must be 1 or more"),
        (ATARI + "frame_skip = 65", "[game]: frame_skip: 65 is out of range; it takes a whole number, 1 to 64"),
        (ATARI + "frame_skip = 2.0", "frame_skip must be a whole number, such as 4, not 2.0"),
        (ATARI + "[training]\nframe_skip = 2", "frame_skip stands in [training], and belongs in [game]"),
        (ATARI + "full_actions = 1", "full_actions must be true or false, not 1"),
        ('[game]\nid = "CartPole-v1"\nsetings = {}', "(did you mean settings?)"),
        ("[game]\nid = 3", "id must be a text"),
        (ATARI + "[network]\nhidden = 64", "hidden must be a list, such as [256], not 64"),
        ("[game]\n", "[game] needs a config or a wad, or the id of a Gymnasium environment"),
        ('base = "basic"\ngame = 3', "[game] must be a table"),
        ('[game]\nbase = "base/doom"', "base stands in [game], and belongs above the first table"),
        ('core = "none"\nbase = "basic"', "core stands above the first table, and belongs in [network]"),
        ('base = "basic"\n[training]\ncore = "none"', "core stands in [training], and belongs in [network]"),
        ('base = "base/atari"\n[network]\nid = "ALE/Pong-v5"', "id stands in [network], and belongs in [game]"),
        ('config = "basic.cfg"\nbase = "base/doom"', "config stands above the first table, and belongs in [game]"),
        ('base = "basic"\n[network]\nfinal_learning_rate = 0.0', "stands in [network], and belongs in [training]"),
        ('base = "basic"\n[game]\nkill_reward = 1.0', "kill_reward stands in [game], and belongs in [game.settings]"),
        ('base = "basic"\n[trainin]', "unknown setting 'trainin' (did you mean training?)"),
        ('base = "basic"\n[training]\nepoch = 3', "unknown setting 'epoch' (did you mean epochs?)"),
        ('base = "basic"\n[training]\ngames = 3', "unknown setting 'games': its name here is envs_per_worker"),
        ('base = "basic"\n[training]\nn_envs = 3', "'n_envs': its name here is envs_per_worker (per worker)"),
        ('base = "basic"\n[training]\nmax_staleness = 3', "'max_staleness': its name here is max_policy_lag"),
        ('base = "basic"\ngamma = 0.5', "'gamma': its name here is discount, in [training]"),
        ('base = "basic"\n[training]\nenv_framestack = 4', "'env_framestack': its name here is stack, in [observation]"),
        ('base = "base/atari"\n[game]\nenv_id = "ALE/Pong-v5"', "'env_id': its name here is id"),
        ('base = "basic"\n[training]\nscenario = "basic"', "unknown setting 'scenario'"),
        ('base = "basic"\n[observation]\nstack = 17', "stack must be 1 to 16"),
        ('base = "basic"\n[game]\nmirror = ""', 'mirror must be true or false, not ""'),
        ('base = "basic"\n[game]\nframe_skip = []', "frame_skip must be a whole number, such as 4, not []"),
        (
            'base = "basic"\n[training]\nshaping = ["HEALTH=1"]',
            "shaping stands in [training], and belongs in a table of its own, [shaping]",
        ),
        ("[game", "not a readable TOML file"),
        ("\x00", "is no text file"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_says_what_is_right(write, text, message):
    assert message in (said := complaint(catalog.find, write(text)))
    assert "mine" in said
