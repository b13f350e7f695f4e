"""Keys of this program's games in `info`. Keys of other environments are ignored."""

LIFE_LOST = "doom_a3c.life_lost"  # bool: terminal for learning, although the episode continues
CUT_SHORT = "doom_a3c.cut_short"  # bool: ended by a fault, so the episode has no score
SHAPING = "doom_a3c.shaping"  # extra reward for learning, absent if 0
FAULTS = "doom_a3c.faults"  # list of fault kinds since the previous step
