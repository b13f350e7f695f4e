"""Gymnasium environments with known frames; importing this registers them."""

import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text

LENGTH = 10  # frames in an episode


class Toy(gymnasium.Env):
    """Shows the colour (10 t, 20 t, 0) and pays t at frame t, ends after 10 frames, and records its actions."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  # Gymnasium's interface

    def __init__(self, render_mode=None, shape=(30, 40, 3), actions=3, start=0, space=None, actions_space=None, ends=True):
        self.render_mode, self.shape, self.ends = render_mode, shape, ends
        self.observation_space = space or Box(0, 255, shape, np.uint8)
        self.action_space = actions_space or Discrete(actions, start=start)
        self.taken = []

    def see(self):
        frame = np.zeros((*self.shape[:2], 3), np.uint8)
        frame[...] = 10 * min(self.time, LENGTH), 20 * min(self.time, LENGTH), 0
        return frame if self.shape[2:] == (3,) else frame[..., 1].reshape(self.shape)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.see(), {}

    def step(self, action):
        self.time += 1
        self.taken.append(action)
        return self.see(), self.time, self.ends and self.time >= LENGTH, False, {}

    def render(self):
        return np.full((12, 16, 3), self.time, np.uint8)


class Numbers(Toy):
    """Shows the time as float64 numbers."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode, space=Box(-9, 9, (5,), np.float64))

    def see(self):
        return np.arange(5) + self.time / 3


class Reusing(Toy):
    """Paints every frame into the same array."""

    def __init__(self, render_mode=None, shape=(84, 84, 3)):
        super().__init__(render_mode, shape)
        self.canvas = np.zeros(shape, np.uint8)

    def see(self):
        np.copyto(self.canvas, super().see())
        return self.canvas


class Unseen(Toy):
    """Renders nothing."""

    def render(self):
        return None


class Failing(Toy):
    """Raises in its constructor, without a message."""

    def __init__(self, render_mode=None):
        raise ValueError


class Plain(gymnasium.Env):
    """Has no pictures: its constructor takes no render_mode, and it defines no render()."""

    observation_space, action_space = Box(-9, 9, (2,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(2, self.time, np.float32), 1.0, self.time >= LENGTH, False, {}


class Slow(Plain):
    """Takes at least 5 ms for each step."""

    def step(self, action):
        time.sleep(0.005)
        return super().step(action)


class Picky(Plain):
    """Refuses every render mode."""

    metadata = {"render_modes": [], "render_fps": None}  # noqa: RUF012  # Gymnasium's interface

    def __init__(self, render_mode=None):
        if render_mode:
            raise ValueError(f"there is no {render_mode}")


class Blind(Toy):
    """Declares a render mode, but fails to render."""

    def render(self):
        raise RuntimeError("no display")


class Grey(Toy):
    """Renders grey pictures."""

    def render(self):
        return np.zeros((8, 8), np.uint8)


class Floats(Toy):
    """Renders RGB pictures of floats."""

    def render(self):
        return np.zeros((8, 8, 3))


class Shown(Toy):
    """Declares a space, and shows a function of the time or samples of the space."""

    def __init__(self, render_mode=None, space=None, show=None):
        super().__init__(render_mode, space=space)
        self.show = show

    def see(self):
        return self.show(self.time) if self.show else self.observation_space.sample()


class Rover(Toy):
    """Shows a picture, a large number, a heading and a text."""

    def __init__(self, render_mode=None):
        camera = Box(0, 255, (84, 84), np.uint8)
        super().__init__(
            render_mode, space=Dict(camera=camera, speed=Box(-99, 99, (2,)), heading=Discrete(4), task=Text(9))
        )

    def see(self):
        speed = np.array([0, 50 + self.time], np.float32)
        return {"camera": np.eye(84, dtype=np.uint8) * 255, "speed": speed, "heading": self.time % 4, "task": "go"}


class Talking(Toy):
    """Uses info keys that mean something else to Gymnasium and to this library."""

    words = {  # noqa: RUF012  # a constant
        "life_lost": 7,
        "cut_short": True,
        "faults": ["bad_luck"],
        "seed": "none",
        "final_obs": "later",
        "_final_obs": 3,
        "final_info": {"cut_short": True, "faults": [1]},
    }

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0], dict(self.words)

    def step(self, action):
        return *super().step(action)[:4], dict(self.words)


class Coin(Plain):
    """Flips a coin at reset, and pays 1 for the right guess."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.side = int(self.np_random.random() < 0.5)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(action == self.side), True, False, {}


class Mixture(Numbers):
    """Takes a choice of three and two numbers, and pays for the second gear and the first number."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = Dict(gear=Discrete(3), pedals=Box(-1, 1, (2,)))

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, float(action["gear"] == 2) + float(action["pedals"][0]), *rest


class Barred(Numbers):
    """Takes two choices, of which half are forbidden at odd times; raises if one of those is taken."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = MultiDiscrete([3, 2])

    def action_masks(self):
        odd = self.time % 2
        return np.array([1, 1 - odd, 1, 1 - odd, 1], np.int8)

    def step(self, action):
        if self.time % 2 and (action[0] == 1 or action[1] == 0):
            raise ValueError(f"{action} is forbidden")
        return super().step(action)


PLAIN = (Plain, Slow, Picky, Coin)
PICTURED = (Toy, Numbers, Reusing, Unseen, Failing, Blind, Grey, Floats, Shown, Rover, Talking, Mixture, Barred)
for toy in (*PLAIN, *PICTURED):
    gymnasium.register(f"tests/{toy.__name__}-v0", toy)
