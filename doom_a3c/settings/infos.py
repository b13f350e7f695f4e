"""The keys of infos by which games tell the agent more than Gymnasium has words for.

They are the program's own: what somebody else's environment has in its infos, whatever it is called, means nothing here.
"""

LIFE_LOST = "doom_a3c.life_lost"  # true: a death for learning, though the episode goes on
CUT_SHORT = "doom_a3c.cut_short"  # true: a fault has ended the episode, which has no score
SHAPING = "doom_a3c.shaping"  # what the step is paid for learning besides its reward, absent where that is nothing
FAULTS = "doom_a3c.faults"  # the kinds of the faults since the info before, a list
