"""What a scenario says of a Doom game reaches ViZDoom, and mistakes in it are told before anything starts."""

import zipfile
from dataclasses import replace

import pytest
import vizdoom

from doom_a3c.envs.doom_setup import button_actions, check
from doom_a3c.settings import catalog
from doom_a3c.settings.fields import UserError

SCENARIO = catalog.find("basic")


def test_buttons_single_combined_and_listed():
    buttons = [vizdoom.Button.MOVE_LEFT, vizdoom.Button.ATTACK, vizdoom.Button.TURN_LEFT_RIGHT_DELTA]
    game = SCENARIO.game
    assert button_actions(game, buttons) == [[1, 0, 0], [0, 1, 0]]
    combined = button_actions(replace(game, buttons="combinations"), buttons)
    assert combined == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert button_actions(replace(game, buttons=["ATTACK", ["MOVE_LEFT", "ATTACK"]]), buttons) == [[0, 1, 0], [1, 1, 0]]
    with pytest.raises(UserError, match=r"did you mean ATTACK"):
        button_actions(replace(game, buttons=["ATACK"]), buttons)
    many = [button for button in vizdoom.Button.__members__.values() if not vizdoom.is_delta_button(button)][:8]
    with pytest.raises(UserError, match="256 combinations"):
        button_actions(replace(game, buttons="combinations"), many)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"render_hd": True}}, "did you mean render_hud"),
        ({"settings": {"render_hud": "yes"}}, "'yes' is not a bool"),
        ({"variables": ("HELTH",), "variable_scales": (1.0,)}, "did you mean HEALTH"),
    ],
)
def test_mistakes_in_the_game_table_name_what_is_right(change, message):
    with pytest.raises(UserError, match=message):
        check(replace(SCENARIO.game, **change), SCENARIO.observation)


def test_a_broken_cfg_is_named_with_its_line(tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = basic.wad\nliving_rewrd = -1\n")
    with pytest.raises(UserError, match=r"line 2: unknown setting 'living_rewrd' \(did you mean living_reward\?\)"):
        catalog.find(str(tmp_path / "mine.cfg"))


def test_a_wad_that_a_cfg_names_is_looked_at_too(tmp_path):
    (tmp_path / "empty.wad").touch()
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = empty.wad\navailable_buttons = { ATTACK }\n")
    with pytest.raises(UserError, match=r"empty\.wad is not a complete WAD"):
        catalog.find(str(tmp_path / "mine.cfg"))


def test_the_maps_of_an_archive_are_those_that_can_be_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("maps/map07.wad", b"")
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = mine.pk3\ndoom_map = map77\navailable_buttons = { ATTACK }\n")
    with pytest.raises(UserError, match=r"no map 'map77' in mine\.pk3, which has map07"):
        check(catalog.find(str(tmp_path / "mine.cfg")).game, SCENARIO.observation)


def test_a_map_that_does_not_exist_is_told_before_anything_starts():
    with pytest.raises(UserError, match=r"no map 'map77'.*map01"):
        check(replace(SCENARIO.game, map="map77"), SCENARIO.observation)
