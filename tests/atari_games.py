"""Atari games for the tests."""

import numpy as np

from doom_a3c.envs.atari import AtariGames
from doom_a3c.settings.games import AtariSpec, Observation

GREY = Observation(stack=4)
PLAIN = {"life_loss_terminates": False, "noop_max": 0}


def spec(name, **game):
    """Returns the plain game, without anything that was tuned for it."""
    return AtariSpec(id=f"ALE/{name}-v5", **{**PLAIN, **game})


def course(env, seed, decisions):
    """Plays some decisions; returns the observations and the rewards."""
    seen, paid = [env.reset(seed=seed)[0]], []
    for decision in decisions:
        observation, rewards, *_ = env.step(np.atleast_1d(decision))
        seen.append(observation)
        paid.append(rewards)
    return np.array(seen), np.array(paid)


def some(count, games=1, choices=4, seed=0):
    """Returns random actions, [count, games]."""
    return np.random.default_rng(seed).integers(choices, size=(count, games))


def to_the_end(env, decide=lambda: 0, limit=2000):
    """Plays until the first game's episode ends; returns the observation before its last step, and that step's result."""
    before = None
    for _ in range(limit):
        step = env.step(np.full(env.num_envs, decide()))
        if step[2][0] or step[3][0]:
            return before, step
        before = step[0]
    raise AssertionError("the episode does not end")


def games(name="Breakout", count=1, observation=GREY, **game):
    """Returns a vector of games."""
    return AtariGames(spec(name, **game), observation, count)
