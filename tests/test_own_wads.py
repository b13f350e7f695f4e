"""The levels of benchmarks.own_wads, on real ViZDoom."""

import math

import pytest
import vizdoom

from benchmarks.own_wads import WADS

pytestmark = pytest.mark.tools
POSE = [vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y, vizdoom.GameVariable.ANGLE]


class Walker:
    """Walks through a level from point to point."""

    def __init__(self, game):
        self._game = game

    def walk(self, x, y):
        for _ in range(200):
            own_x, own_y, angle = self._game.get_state().game_variables
            if math.hypot(x - own_x, y - own_y) < 24:
                return
            turn = (math.degrees(math.atan2(y - own_y, x - own_x)) - angle + 180) % 360 - 180
            self._game.make_action([abs(turn) < 20, turn > 5, turn < -5, False])

    def open_door(self):
        self._game.make_action([False, False, False, True], 4)
        self._game.make_action([False] * 4, 40)


@pytest.mark.parametrize("has_key", [True, False])
def test_only_the_key_opens_the_vault(tmp_path, has_key):
    make_vault, config = WADS["vault"]
    make_vault(7).to_file(str(tmp_path / "vault.wad"))
    (tmp_path / "vault.cfg").write_text(config)
    game = vizdoom.DoomGame()
    game.load_config(str(tmp_path / "vault.cfg"))
    game.set_doom_scenario_path(str(tmp_path / "vault.wad"))
    game.set_available_game_variables(POSE)
    game.set_window_visible(False)
    game.init()
    walker = Walker(game)
    if has_key:
        for place in ((128, 384), (-185, 384), (128, 384), (128, 128)):
            walker.walk(*place)
    walker.walk(228, 128)
    walker.open_door()
    walker.walk(420, 128)
    assert (game.get_total_reward() > 0) == has_key
    game.close()
