"""Games simple enough to understand at a glance, which game servers can import quickly."""

import os
import signal
import time
from functools import partial

import gymnasium
import numpy as np

from doom_a3c.settings.errors import UserError
from doom_a3c.settings.interface import LIFE_LOST


class Counter(gymnasium.Env):
    """Shows game, seed, time and the last action; step n of an episode pays n, and the last step ends it."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, game=0, length=3, truncates=False):
        self.game, self.length, self.truncates = game, length, truncates
        self.time = 0

    def observe(self, action):
        return np.float32([self.game, self.seed, self.time, action])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.seed = 0, int(self.np_random.integers(1000))
        return self.observe(-1), {"seed": self.seed, **(options or {})}

    def step(self, action):
        self.time += 1
        over = self.time == self.length
        return self.observe(action), float(self.time), over and not self.truncates, over and self.truncates, {}

    def picture(self, final):
        return None if final else np.full((2, 2, 3), self.time, np.uint8)


class Nested(Counter):
    """A Counter whose observations are a dictionary of pixels and numbers."""

    observation_space = gymnasium.spaces.Dict(
        pixels=gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8), variables=gymnasium.spaces.Box(0, 1000, (2,), np.float32)
    )

    def observe(self, action):
        return {"pixels": np.full((2, 2, 1), self.time, np.uint8), "variables": np.float32([self.game, self.seed])}


class Lively(Counter):
    """Shows the time as 8 x 8 pixels, and loses a life in its second step; its info also has a meaningless `life_lost`."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def observe(self, action):
        return np.full((8, 8, 1), self.time, np.uint8)

    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "life_lost": 1, **({LIFE_LOST: True} if self.time == 2 else {})}


class Slow(Counter):
    """A Counter that takes more than a second to be made, and for every step."""

    def __init__(self, game=0):
        super().__init__(game)
        time.sleep(1.2)

    def step(self, action):
        time.sleep(1.2)
        return super().step(action)


class Troubled(Counter):
    """A Counter with trouble at step `at` of its lifetime, or in its constructor if `at` is 0."""

    def __init__(self, game=0, trouble="raise", at=2):
        super().__init__(game)
        self.trouble, self.at, self.steps = trouble, at, 0
        if at == 0:
            self.befall()

    def step(self, action):
        self.steps += 1
        if self.steps == self.at:
            self.befall()
        result = super().step(action)
        if self.steps == self.at and self.trouble == "unpicklable":
            result[-1]["excuse"] = lambda: None
        if self.steps == self.at and self.trouble == "shape":
            result = (np.float32([5]), *result[1:])
        return result

    def befall(self):
        if self.trouble == "raise":
            raise RuntimeError(f"game {self.game} broke")
        if self.trouble == "exit":
            print("no reactor, no game", flush=True)
            os._exit(3)
        if self.trouble == "sleep":
            time.sleep(60)
        if self.trouble == "mistake":
            raise UserError("no such level")
        if self.trouble.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.trouble))


def counters(count=3, make=Counter, **options):
    """Returns the factories of `count` games, numbered from 0."""
    return [partial(make, game, **options) for game in range(count)]


def one_step(env):
    """Steps all games with their first action."""
    return env.step(np.zeros(env.num_envs, int))
