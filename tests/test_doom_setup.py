"""A scenario's settings reach ViZDoom, and mistakes in them are found before anything starts."""

import itertools
import json
import re
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import vizdoom
from fakes import complaint
from gymnasium.spaces import MultiDiscrete
from wad_files import text_map, wad, wad_of

from doom_a3c.envs.doom.buttons import build_actions, make_actions
from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.setup import check, configure, describe_game
from doom_a3c.settings import catalog
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import shipped_folder
from doom_a3c.settings.scenarios import from_plain, to_plain

SCENARIO = catalog.find("basic")


def test_buttons_can_be_single_combined_or_listed():
    buttons = [vizdoom.Button.MOVE_LEFT, vizdoom.Button.ATTACK, vizdoom.Button.TURN_LEFT_RIGHT_DELTA]
    assert build_actions("single", buttons) == [[1, 0, 0], [0, 1, 0]]
    combined = build_actions("combinations", buttons)
    assert combined == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert build_actions(["ATTACK", ["MOVE_LEFT", "ATTACK"]], buttons) == [[0, 1, 0], [1, 1, 0]]
    with pytest.raises(UserError, match=r"did you mean ATTACK"):
        build_actions(["ATACK"], buttons)
    many = [button for button in vizdoom.Button.__members__.values() if not vizdoom.is_delta_button(button)][:8]
    with pytest.raises(UserError, match="256 combinations"):
        build_actions("combinations", many)


def test_together_combines_only_buttons_that_go_together():
    names = ["ATTACK", "TURN_RIGHT", "MOVE_FORWARD", "USE", "TURN_LEFT", "TURN_LEFT_RIGHT_DELTA"]
    buttons = [getattr(vizdoom.Button, name) for name in names]
    actions = build_actions("together", buttons)
    pressed = [{name for name, on in zip(names, action, strict=True) if on} for action in actions]
    walks, turns, shots = (set(), {"MOVE_FORWARD"}), (set(), {"TURN_LEFT"}, {"TURN_RIGHT"}), (set(), {"ATTACK"})
    assert pressed == [walk | turn | shot for walk in walks for turn in turns for shot in shots] + [{"USE"}]
    every = [button for button in vizdoom.Button.__members__.values() if not vizdoom.is_delta_button(button)]
    assert len(build_actions("together", every)) == 3 * 3 * 3 * 2 + len(every) - 7
    alone = build_actions("together", [vizdoom.Button.USE])
    assert alone == [[0], [1]]


def test_few_buttons_combine_by_default_and_many_get_heads(own):
    spec = own("available_buttons = { MOVE_LEFT ATTACK }")
    few, many = [vizdoom.Button.MOVE_LEFT, vizdoom.Button.ATTACK], [vizdoom.Button.ATTACK, vizdoom.Button.USE]
    assert make_actions(spec, few) == make_actions(replace(spec, buttons="together"), few)
    assert make_actions(spec, many) == make_actions(replace(spec, buttons="heads"), many)
    assert make_actions(spec, many).joint is False


def test_groups_combine_one_choice_from_each():
    buttons = [vizdoom.Button.TURN_LEFT, vizdoom.Button.TURN_RIGHT, vizdoom.Button.ATTACK]
    groups = [["TURN_LEFT", "TURN_RIGHT", []], ["ATTACK", []]]
    expected = [[1, 0, 1], [1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert build_actions(groups, buttons) == expected
    both = [[["TURN_LEFT", "ATTACK"], []]]
    assert build_actions(both, buttons) == [[1, 0, 1], [0, 0, 0]]
    for words, wrong in {
        "all must be": ["ATTACK", ["TURN_LEFT", []]],
        "none empty": [["TURN_LEFT", []], []],
        "243": [["ATTACK", [], "TURN_LEFT"]] * 5,
        "did you mean ATTACK": [["ATACK", []]],
        "not 5": [["ATTACK", 5]],
    }.items():
        with pytest.raises(UserError, match=words):
            build_actions(wrong, buttons)


def test_a_delta_button_takes_an_amount():
    buttons = [vizdoom.Button.TURN_LEFT_RIGHT_DELTA, vizdoom.Button.ATTACK]
    turns = ["TURN_LEFT_RIGHT_DELTA=-4", "TURN_LEFT_RIGHT_DELTA=0.5", []]
    expected = [[-4, 1], [-4, 0], [0.5, 1], [0.5, 0], [0, 1], [0, 0]]
    assert build_actions([turns, ["ATTACK", []]], buttons) == expected
    for wrong, words in {
        "TURN_LEFT_RIGHT_DELTA": "per frame",
        "TURN_LEFT_RIGHT_DELTA=far": "per frame",
        "TURN_LEFT_RIGHT_DELTA=0": "per frame",
        "TURN_LEFT_RIGHT_DELTA=nan": "per frame",
        "TURN_LEFT_RIGHT_DELTA=181": "180 at most",
        "TURN_LEFT_RIGT_DELTA=1": "did you mean TURN_LEFT_RIGHT_DELTA",
        "ATTACK=2": "ATTACK is pressed or not",
        "ATTACK=": "ATTACK is pressed or not",
    }.items():
        with pytest.raises(UserError, match=words):
            build_actions([wrong, "ATTACK"], buttons)
    with pytest.raises(UserError, match="pressed twice"):
        build_actions([turns[:2]], buttons)


def list_buttons(*names):
    return [getattr(vizdoom.Button, name) for name in names]


def test_each_head_picks_one_of_its_choices_or_nothing():
    buttons = list_buttons("MOVE_FORWARD", "ATTACK", "USE", "TURN_LEFT_RIGHT_DELTA")
    turns = {"TURN_LEFT_RIGHT_DELTA": {"steps": 5, "most": 10}}
    heads = {"heads": [["MOVE_FORWARD"], ["ATTACK", ["ATTACK", "USE"]], turns]}
    actions = make_actions(replace(SCENARIO.game, buttons=heads), buttons)
    assert actions.space == MultiDiscrete([2, 3, 5])
    assert actions.press(np.array([0, 0, 0])) == [0, 0, 0, 0]
    assert actions.press(np.array([1, 2, 1])) == [1, 1, 1, -10]
    assert actions.press(np.array([0, 1, 4])) == [0, 1, 0, 10]
    named = [f"TURN_LEFT_RIGHT_DELTA={amount}" for amount in (-10, -5, 5, 10)]
    expected = ["no MOVE_FORWARD", "MOVE_FORWARD", "no ATTACK ...", "ATTACK", "ATTACK+USE", "no TURN_LEFT_RIGHT_DELTA"]
    assert actions.flat_names == [*expected, *named]
    assert actions.describe() == "3 choices: 2 of MOVE_FORWARD, 3 of ATTACK ..., 5 of TURN_LEFT_RIGHT_DELTA"


@pytest.mark.parametrize("wrong", [[0, 3], [0, -1], [0, 0.5], [0, np.nan], [0], [0, 0, 0], [0, [1]], 0, "no", None])
def test_an_action_outside_the_heads_gives_a_one_line_error(wrong):
    heads = {"heads": [["ATTACK"], ["MOVE_LEFT", "MOVE_RIGHT"]]}
    actions = make_actions(replace(SCENARIO.game, buttons=heads), list_buttons("ATTACK", "MOVE_LEFT", "MOVE_RIGHT"))
    assert "is not whole numbers, each from 0 to below 2, 3" in complaint(actions.press, wrong)


@pytest.mark.parametrize("wrong", [3, -1, 0.5, np.nan, [0, 0], "no", None])
def test_an_action_outside_a_single_choice_gives_a_one_line_error(wrong):
    actions = make_actions(SCENARIO.game, list_buttons("ATTACK", "MOVE_LEFT", "MOVE_RIGHT"))
    assert actions.press(np.int64(2)) == [0, 0, 1]
    assert "is not a whole number from 0 to below 3" in complaint(actions.press, wrong)


def test_duplicate_choices_in_a_head_are_merged():
    """Each head already begins with []; only groups of buttons have to list it."""
    heads = {"heads": [["ATTACK", []], ["MOVE_LEFT", "MOVE_RIGHT", "MOVE_LEFT"]]}
    actions = make_actions(replace(SCENARIO.game, buttons=heads), list_buttons("ATTACK", "MOVE_LEFT", "MOVE_RIGHT"))
    assert actions.flat_names == ["no ATTACK", "ATTACK", "no MOVE_LEFT ...", "MOVE_LEFT", "MOVE_RIGHT"]


def test_heads_are_derived_from_the_games_buttons():
    names = ("MOVE_FORWARD", "MOVE_BACKWARD", "MOVE_LEFT", "TURN_LEFT", "TURN_RIGHT", "ATTACK", "SELECT_WEAPON1", "SPEED")
    actions = make_actions(replace(SCENARIO.game, buttons="heads"), list_buttons(*names))
    assert actions.space == MultiDiscrete([3, 2, 3, 2, 2, 2])
    smooth = make_actions(replace(SCENARIO.game, buttons="heads"), list_buttons(*names, "TURN_LEFT_RIGHT_DELTA"))
    assert smooth.space == MultiDiscrete([3, 2, 2, 2, 2, 21])
    assert {"TURN_LEFT_RIGHT_DELTA=-12.5", "TURN_LEFT_RIGHT_DELTA=1.25"} < set(smooth.flat_names)
    assert "TURN_LEFT" not in smooth.flat_names


STEPS = {"steps": 21, "most": 12.5}


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([], "1 to 32 groups"),
        ([["ATTACK"]] * 33, "1 to 32 groups"),
        ("ATTACK", "1 to 32 groups"),
        ([[]], "a head is a list of buttons"),
        (["ATTACK"], "a head is a list of buttons"),
        ([["ATACK"]], "did you mean ATTACK"),
        ([["ATTACK"], [["USE", "ATTACK"]]], "ATTACK is in two heads"),
        ([["ATTACK"], [[]]], "a head is a list of buttons"),
        ([[[], []]], "a head is a list of buttons"),
        ([["ATTACK", 5]], "not 5"),
        ([[["ATTACK", 5]]], "5 is none of"),
        ([[["ATTACK", ["USE"]]]], "is none of"),
        ([{"TURN_LEFT_RIGHT_DELTA": {}}], "needs { steps = 21, most = 12.5 }"),
        ([{"TURN_LEFT_RIGHT_DELTA": {"steps": 21}}], "needs { steps"),
        ([{"TURN_LEFT_RIGHT_DELTA": {**STEPS, "steps": 1}}], "2 to 255 steps"),
        ([{"TURN_LEFT_RIGHT_DELTA": {**STEPS, "steps": 2.5}}], "2 to 255 steps"),
        ([{"TURN_LEFT_RIGHT_DELTA": {**STEPS, "most": 0}}], "180 at most"),
        ([{"TURN_LEFT_RIGHT_DELTA": {**STEPS, "most": float("nan")}}], "180 at most"),
        ([{"TURN_LEFT_RIGHT_DELTA": {**STEPS, "most": 181}}], "180 at most"),
        ([{"TURN_LEFT_RIGHT_DELTA": {**STEPS, "most": True}}], "180 at most"),
        ([{"ATTACK": STEPS}], "_DELTA"),
        ([{"LOOK_UP_DOWN_DELTA": STEPS}], "_DELTA: add one, such as TURN_LEFT_RIGHT_DELTA, to available_buttons"),
        ([{"TURN_LEFT_RIGHT_DELTA": STEPS, "ATTACK": STEPS}], "a head is a list of buttons"),
    ],
)
def test_invalid_heads_give_a_one_line_error(heads, words):
    buttons = list_buttons("ATTACK", "USE", "TURN_LEFT_RIGHT_DELTA")
    with pytest.raises(UserError, match=re.escape(words)) as error:
        make_actions(replace(SCENARIO.game, buttons={"heads": heads}), buttons)
    assert "\n" not in str(error.value)


def test_a_buttons_table_may_only_contain_heads():
    with pytest.raises(UserError, match="a table has heads"):
        make_actions(replace(SCENARIO.game, buttons={"heads": [["ATTACK"]], "more": 1}), list_buttons("ATTACK"))


def test_heads_survive_serialization():
    heads = {"heads": [["ATTACK"], ["MOVE_LEFT", "MOVE_RIGHT"]]}
    scenario = replace(SCENARIO, game=replace(SCENARIO.game, buttons=heads))
    assert from_plain(json.loads(json.dumps(to_plain(scenario))), "test").game.buttons == heads


def test_a_turn_in_degrees_turns_the_player_that_far():
    heads = {"heads": [{"TURN_LEFT_RIGHT_DELTA": {"steps": 3, "most": 5}}]}
    spec = replace(SCENARIO.game, buttons=heads, available_buttons=("TURN_LEFT_RIGHT_DELTA",), variables=("ANGLE",))
    env = DoomEnv(replace(spec, variable_scales=(1.0,)), SCENARIO.observation)
    try:
        (seen, _), angles = env.reset(seed=1), []
        for action in (0, 1, 2, 2):
            angles.append(float(seen["variables"][0]))
            seen, *_ = env.step(np.array([action]))
        angles.append(float(seen["variables"][0]))
        turned = [(after - before + 180) % 360 - 180 for before, after in itertools.pairwise(angles)]
        np.testing.assert_allclose(turned, [0, 20, -20, -20], atol=0.1)  # 5 degrees in each of 4 frames; left is positive
    finally:
        env.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"render_hd": True}}, "did you mean render_hud"),
        ({"settings": {"render_hud": "yes"}}, '"yes" is not true or false'),
        ({"variables": ("HELTH",), "variable_scales": (1.0,)}, "did you mean HEALTH"),
        ({"variables": ("PLACES",), "variable_scales": (1.0,)}, r"\[shaping\]"),
    ],
)
def test_errors_in_the_game_table_suggest_a_fix(change, message):
    with pytest.raises(UserError, match=message):
        check(replace(SCENARIO.game, **change), SCENARIO.observation)


def test_an_error_in_a_cfg_names_the_line(tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = basic.wad\nliving_rewrd = -1\n")
    with pytest.raises(UserError, match=r"line 2.*'living_rewrd'.*did you mean living_reward"):
        catalog.find(str(tmp_path / "mine.cfg"))


def test_a_wad_named_in_a_cfg_is_checked(tmp_path):
    (tmp_path / "empty.wad").touch()
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = empty.wad\navailable_buttons = { ATTACK }\n")
    with pytest.raises(UserError, match=r"empty\.wad"):
        catalog.find(str(tmp_path / "mine.cfg"))


def test_a_map_missing_from_an_archive_lists_its_maps(tmp_path):
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("maps/map07.wad", wad_of(*text_map("MAP01", 1)))
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = mine.pk3\ndoom_map = map77\navailable_buttons = { ATTACK }\n")
    with pytest.raises(UserError, match=r"'map77'.*mine\.pk3.*map07"):
        catalog.find(str(tmp_path / "mine.cfg"))


@pytest.fixture
def own(tmp_path):
    """Returns a function that writes a cfg with more lines beside a copy of basic.wad, and returns its game."""
    shutil.copy(shipped_folder() / "basic.wad", tmp_path)

    def write(*lines):
        buttons = "available_buttons = { MOVE_LEFT ATTACK }"
        (tmp_path / "mine.cfg").write_text("\n".join((buttons, "episode_timeout = 300", *lines)))
        return catalog.find(str(tmp_path / "mine.cfg")).game

    return write


@pytest.mark.parametrize("name", ["map77", "map02", "e1m1", "map01 +quit"])  # Freedoom has a map02
def test_a_map_missing_from_the_wad_is_refused_early(own, name):
    game = replace(own(), wad=str(shipped_folder() / "basic.wad"), map=name)
    for message in (
        complaint(check, replace(SCENARIO.game, map=name), SCENARIO.observation),
        complaint(own, "doom_scenario_path = basic.wad", f"doom_map = {name}"),
        complaint(check, game, SCENARIO.observation),
    ):
        assert all(word in message for word in (repr(name), "basic.wad", "has map01"))


@pytest.mark.parametrize("name", ["map01", "MAP01", ""])
def test_map_names_ignore_case(name):
    assert len(check(replace(SCENARIO.game, map=name), SCENARIO.observation).heads[0]) == 3


def test_a_truncated_game_wad_is_refused(tmp_path, own):
    (tmp_path / "game.wad").write_bytes(b"IWAD")
    lines = ("doom_scenario_path = basic.wad", "doom_game_path = game.wad")
    assert "game.wad" in complaint(own, *lines)


def test_a_wad_without_a_map_is_refused(tmp_path, own):
    (tmp_path / "mine.wad").write_bytes(wad("DECORATE", "CREDIT"))
    assert "mine.wad has no map" in complaint(own, "doom_scenario_path = mine.wad")


def test_without_a_wad_the_games_own_maps_are_used(own):
    assert len(check(own("doom_map = map32"), SCENARIO.observation).heads[0]) == 4
    message = complaint(own, "doom_map = map77")
    assert all(word in message for word in ("'map77'", "freedoom2.wad", "map01, map02,", "24 more"))
    message = complaint(own, "doom_game_path = freedoom1.wad")
    assert all(word in message for word in ("'map01'", "freedoom1.wad", "e1m1"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("doom_scenario_path = none.wad", "none.wad does not exist"),
        ("doom_scenario_path = folder.wad", "folder.wad is a folder"),
        ("doom_game_path = doom2.wad", "doom2.wad does not exist"),
        ("doom_game_path = folder.wad", "folder.wad is a folder"),
    ],
)
def test_paths_in_a_cfg_must_be_files(tmp_path, own, line, words):
    (tmp_path / "folder.wad").mkdir()
    assert words in complaint(own, line)


def test_a_file_that_vanishes_later_is_named(own):
    def later(game):
        configure(game, own(), SCENARIO.observation)
        game.set_doom_scenario_path("/nowhere/basic.wad")

    assert "/nowhere/basic.wad" in complaint(DoomProcess, later)


def test_a_disabled_time_out_is_refused(own):
    endless = replace(SCENARIO.game, settings={**SCENARIO.game.settings, "episode_timeout": 0})
    assert "episode_timeout = 0" in complaint(from_plain, to_plain(replace(SCENARIO, game=endless)), "mine")
    assert "episode_timeout = 0" in complaint(own, "episode_timeout = 0")


def test_an_unknown_resolution_lists_the_known_ones():
    observation = replace(SCENARIO.observation, resolution="99999x99999")
    message = complaint(check, SCENARIO.game, observation)
    assert all(word in message for word in ("'99999x99999'", "160x120"))


def test_the_title_names_game_wad_map_and_actions(tmp_path, own, monkeypatch):
    basic = "freedoom2.wad with basic.wad, map01, 3 actions: MOVE_LEFT MOVE_RIGHT ATTACK"
    assert describe_game(SCENARIO.game, SCENARIO.observation) == basic
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doom2.wad").touch()  # ViZDoom's own default would be this one
    actions = "4 actions: NOTHING ATTACK MOVE_LEFT MOVE_LEFT+ATTACK"
    assert describe_game(own(), SCENARIO.observation) == f"freedoom2.wad, map01, {actions}"
    (tmp_path / "mine.cfg").write_text("available_buttons = { ATTACK }\ndoom_map = MAP05")
    game = catalog.find("mine.cfg").game
    assert describe_game(game, SCENARIO.observation) == "freedoom2.wad, map05, no time-out, 2 actions: NOTHING ATTACK"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("game_args = +sv_noautoaim ²", "game_args"),
        ("game_args = +sv_noautoaim " + "9" * 5000, "game_args"),
        ("game_args = +logfile /tmp/x", "game_args"),
        ("vizdoom_path = /bin/true", "vizdoom_path"),
        ("living_reward += 2", "use ="),
        ("living_reward = 1_000", "it takes a number"),
        ("living_reward = two", "it takes a number"),
        ("render_hud = maybe", "true or false"),
        ("available_buttons = ATTACK", "a list looks like"),
        ("available_buttons = {", "does not end"),
    ],
)
def test_an_invalid_cfg_line_is_refused_with_its_number(own, line, words):
    message = complaint(own, line)
    assert words in message
    assert "line 3" in message


@pytest.mark.parametrize(
    "line",
    [
        "living_reward = -1 // every tic",
        "living_reward = -1;",
        "render_hud = true /* wide */",
        "available_buttons = { ATTACK // one",
        "available_buttons = { ATTACK // one\nMOVE_LEFT }",
        "doom_map = map01 // the first",
        "doom_scenario_path = basic.wad // the level",
        "doom_game_path = freedoom2.wad; the game",
        "game_args = +sv_noautoaim 1 // a rule",
        "// a line of its own",
        "// living_reward = -1",
    ],
)
def test_other_comment_styles_in_a_cfg_suggest_the_hash(own, line):
    message = complaint(own, line)
    assert "mine.cfg, line 3" in message
    assert "comments begin with #" in message


def test_a_double_slash_in_a_path_is_not_a_comment(own, tmp_path):
    assert own(f"doom_scenario_path = {tmp_path}//basic.wad").wad == str(tmp_path / "basic.wad")
    message = complaint(own, f"doom_scenario_path = {tmp_path}//none.wad")
    assert "none.wad does not exist" in message
    assert "#" not in message


@pytest.mark.parametrize("names", [["__members__"], ["name"], ["__init__"]])
def test_python_attribute_names_are_not_buttons_or_variables(names):
    for change in ({"available_buttons": tuple(names)}, {"variables": tuple(names), "variable_scales": (1.0,)}):
        assert "unknown" in complaint(check, replace(SCENARIO.game, **change), SCENARIO.observation)


def test_a_cfg_is_read_as_vizdoom_reads_it(own, tmp_path):
    shutil.copy(shipped_folder() / "basic.wad", tmp_path / "a#b.wad")
    lines = ("doomScenarioPath = a#b.wad", "  # a comment", "livingReward=-1.5", "render_messages = True")
    game = own(*lines, "available_buttons += { ATTACK", "SPEED }")
    assert game.wad == str(tmp_path / "a#b.wad")
    assert game.available_buttons == ("MOVE_LEFT", "ATTACK", "SPEED")
    assert (game.settings["living_reward"], game.settings["render_messages"]) == (-1.5, True)


@pytest.mark.parametrize(
    ("cfg", "file", "paid"),
    [
        ("death_reward = -7", "death_penalty = 2.0", {"get_death_reward": -2.0}),
        ("death_penalty = 7", "death_reward = -2.0", {"get_death_penalty": 2.0}),
        ("hit_taken_penalty = 7", "hit_taken_reward = -2.0", {"get_hit_taken_penalty": 2.0}),
        ("damage_taken_penalty = 7", "damage_taken_reward = -2.0", {"get_damage_taken_penalty": 2.0}),
        ("death_penalty = 7\ndeath_reward = -2", "", {"get_death_penalty": 2.0}),
        ("death_reward = -7\ndeath_penalty = 2", "", {"get_death_penalty": 2.0}),
    ],
)
def test_of_a_reward_and_its_opposite_the_last_counts(own, tmp_path, cfg, file, paid):
    own(*cfg.splitlines())
    (tmp_path / "mine.toml").write_text(f'[game]\nconfig = "mine.cfg"\n[game.settings]\n{file}\n')
    game = vizdoom.DoomGame()
    configure(game, catalog.find(str(tmp_path / "mine.toml")).game, SCENARIO.observation)
    assert {name: getattr(game, name)() for name in paid} == paid


def test_a_reward_and_its_opposite_in_one_file_are_refused(own, tmp_path):
    own()
    both = "death_penalty = 2.0\ndeath_reward = -2.0"
    (tmp_path / "mine.toml").write_text(f'[game]\nconfig = "mine.cfg"\n[game.settings]\n{both}\n')
    said = complaint(catalog.find, str(tmp_path / "mine.toml"))
    assert all(word in said for word in ("mine.toml", "death_reward and death_penalty", "leave one out"))


COMMENTED = """
# as ViZDoom's own guide writes them
doom_scenario_path = basic.wad  # the level
doom_game_path = # the game\nfreedoom2.wad
doom_map = map01#the first
living_reward = -1\t# every tic
episode_start_time = 0 # at once
render_all_frames = true#yes
available_buttons = { # three = of them { as } well
    MOVE_LEFT  # to the left
    # MOVE_FORWARD
    MOVE_RIGHT#right
    ATTACK
} # no more
game_args = +sv_noautoaim 1 # a rule
depth_buffer_enabled = true  # depth, too
"""


def test_comments_may_follow_values(own):
    game = own(*COMMENTED.splitlines())
    assert (game.wad.rpartition("/")[2], game.iwad, game.map) == ("basic.wad", "freedoom2.wad", "map01")
    assert game.available_buttons == ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK")
    assert game.rules == {"sv_noautoaim": 1}
    expected = {"living_reward": -1, "episode_start_time": 0, "render_all_frames": True}
    assert {key: game.settings[key] for key in expected} == expected
    ready = vizdoom.DoomGame()
    configure(ready, game, SCENARIO.observation)
    assert ready.get_episode_start_time() == 1  # ViZDoom turns 0 into 1


@pytest.mark.parametrize(
    ("name", "comment"), [("hash#tag.wad", ""), ("hash#tag.wad", "\t# that one"), ("level #1.wad", "")]
)
def test_a_file_name_may_contain_a_hash(tmp_path, own, name, comment):
    shutil.copy(tmp_path / "basic.wad", tmp_path / name)
    assert own(f"doom_scenario_path = {name}{comment}").wad == str(tmp_path / name)


def test_delta_buttons_alone_need_amounts(own):
    spec = replace(SCENARIO.game, available_buttons=("TURN_LEFT_RIGHT_DELTA", "MOVE_FORWARD_BACKWARD_DELTA"))
    for buttons in ("single", "together", "combinations"):
        error = complaint(check, replace(spec, buttons=buttons), SCENARIO.observation)
        assert "no button to press" not in error
        assert "TURN_LEFT_RIGHT_DELTA=-5" in error
    proposed = error[error.index("buttons = ") + len("buttons = ") : error.index("]", error.index("buttons = ")) + 1]
    assert len(check(replace(spec, buttons=eval(proposed)), SCENARIO.observation).heads[0]) == 4
