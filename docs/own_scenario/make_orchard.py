"""Makes a level of its own: orchard.wad, a room with things to gather, and orchard.cfg, which says how it is played.

python docs/own_scenario/make_orchard.py [FOLDER]

A map needs no more than a room, a place to begin, and something that pays. It is made with omgifol here; any Doom editor
(SLADE, Ultimate Doom Builder) makes one by hand.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from omg import WAD
from omg.mapedit import MapEditor, Sector, Sidedef, Thing

HALF = 384  # of the room's side, in the map's units; the player is 32 wide
PLAYER_START, HEALTH_BONUS = 1, 2014  # numbers of things: https://zdoom.org/wiki/Standard_editor_numbers
FLASKS = 30

CONFIG = """\
doom_scenario_path = orchard.wad
doom_map = map01
available_buttons = { MOVE_FORWARD TURN_LEFT TURN_RIGHT }
# in frames: ten seconds
episode_timeout = 350
# the score: how many flasks are gathered
item_reward = 1
render_hud = false
"""


def orchard(seed: int) -> WAD:
    """Returns the level: one room, lit, with flasks in it and a player in the middle."""
    editor = MapEditor()
    corners = [(-HALF, -HALF), (-HALF, HALF), (HALF, HALF), (HALF, -HALF)]
    room = Sector(z_floor=0, z_ceil=160, tx_floor="FLOOR0_1", tx_ceil="CEIL1_1", light=200)
    editor.draw_sector(corners, room, Sidedef(tx_mid="STARTAN2"))
    places = random.Random(seed)
    for _ in range(FLASKS):
        x, y = (places.randrange(-HALF + 40, HALF - 40) for _ in range(2))
        editor.things.append(Thing(x=x, y=y, type=HEALTH_BONUS, flags=7))
    editor.things.append(Thing(x=0, y=0, type=PLAYER_START, angle=90, flags=7))
    wad = WAD()
    wad.maps["MAP01"] = editor.to_lumps()
    return wad


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    orchard(seed=7).to_file(str(folder / "orchard.wad"))
    (folder / "orchard.cfg").write_text(CONFIG)
    print(f"{folder / 'orchard.wad'} and {folder / 'orchard.cfg'} are made")
