"""The Doom game that the tests play."""

from functools import partial

from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.settings import catalog

SCENARIO = catalog.find("basic")
BASIC = SCENARIO.game, SCENARIO.observation
GAMES = [partial(DoomEnv, *BASIC)]
