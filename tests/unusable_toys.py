"""Gymnasium environments that cannot be learned from; importing this registers them."""

import subprocess
import sys
from pathlib import Path

import gymnasium
from registered_toys import Numbers, Toy


class NanRewards(Toy):
    """Pays NaN."""

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, float("nan"), *rest


class HugeNumbers(Numbers):
    """Shows numbers so large that the loss overflows."""

    def see(self):
        return super().see() + 1e30


class NanObservations(Numbers):
    """Observes NaN."""

    def see(self):
        return super().see() * float("nan")


class NoLevel(Toy):
    """Lacks a file, and raises at reset."""

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no level file\nand more")


class FailsLater(Toy):
    """Has a level that cannot be played past its fifth frame."""

    def step(self, action):
        if self.time == 5:
            self.fail()
        return super().step(action)

    def fail(self):
        raise RuntimeError("the level has an end")


class QuitsLater(FailsLater):
    """Exits the program instead of raising."""

    def fail(self):
        sys.exit(3)


class OldStep(Toy):
    """Knows no truncation, as in the old Gym."""

    def step(self, action):
        return super().step(action)[:4]


class ChangesShape(Numbers):
    """Shows fewer numbers than declared, after a while."""

    def see(self):
        return super().see()[: 4 if self.time == 5 else 5]


class UnitPixels(Toy):
    """Declares bytes, but shows numbers from 0 to 1 after a while."""

    def see(self):
        return super().see() / (1 if self.time < 2 else 255)


class Starts(Toy):
    """Starts a program, as environments with external engines do, and notes its process id in a file name."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.program = subprocess.Popen(["sleep", "100"])
        Path(f"program-{self.program.pid}").touch()

    def close(self):
        self.program.kill()


for toy in (
    NanRewards,
    NanObservations,
    HugeNumbers,
    NoLevel,
    FailsLater,
    QuitsLater,
    OldStep,
    ChangesShape,
    UnitPixels,
    Starts,
):
    gymnasium.register(f"{toy.__name__}-v0", toy)
