"""The training plan of every game, and the finished trainings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import results
from benchmarks.common.paths import PAGES
from benchmarks.common.trainings import reaches_target

FIRST_SEED = 1_000_000  # of the episodes played after training
LEARNED = PAGES / "learned.jsonl"
DOOM, ATARI, CLASSIC, SLOW = 700_000, 900_000, 1_200_000, 100_000  # frames per minute of a plan
NUMBERS = (11, 12, 13)  # seeds of games with continuous actions


class Plan(NamedTuple):
    """A game's training time and its target score."""

    minutes: float
    target: float | None = None  # for the mean score of the best checkpoint
    seeds: Sequence[int] = (1, 2)
    rate: int = DOOM


PLANS = {
    "basic": Plan(0.86, 80, (101, 102, 103)),
    "cartpole": Plan(1.5, 475, (1, 2, 3, 4, 5), CLASSIC),
    "simpler_basic": Plan(3),
    "rocket_basic": Plan(6),
    "my_way_home": Plan(8, 0.95),
    "health_gathering": Plan(10, 2050),
    "take_cover": Plan(15, 1050),
    "pong": Plan(18, 20, rate=ATARI),
    "pong_lstm": Plan(25, 16, rate=ATARI),  # four fifths of the feed-forward target, as for breakout
    "defend_the_center": Plan(20, 20),
    "predict_position": Plan(20, 0.80),
    "defend_the_line": Plan(25, 28),
    "deadly_corridor": Plan(30, 1300),
    "deathmatch": Plan(30, 20),
    "health_gathering_supreme": Plan(30, 1900),
    "freedoom1": Plan(30),
    "breakout": Plan(45, 150, (1,), ATARI),
    "breakout_lstm": Plan(60, 120, (1,), ATARI),
    "space_invaders": Plan(45, 550, (1,), ATARI),
    "pendulum": Plan(1.5, -200, NUMBERS, SLOW),
    "mountain_car": Plan(3, 88, NUMBERS, SLOW),
    "lunar_lander": Plan(10, 240, NUMBERS, SLOW),
    "bipedal_walker": Plan(30, 270, NUMBERS, SLOW),
    "car_racing": Plan(40, 800, (1, 12, 13), SLOW),
    "cig_bots": Plan(60, 2, (11, 12), rate=250_000),  # the bots' mean
    "deathmatch_bots": Plan(24, None, (11,), rate=250_000),
    "duel": Plan(40, None, (11, 12), rate=250_000),
    "duel_bots": Plan(16, 20, (11, 12), rate=250_000),
}


class Learned(NamedTuple):
    """A finished training: a line of the results file."""

    game: str
    seed: int
    budget: int  # frames planned
    frames: int
    minutes: float  # wall-clock, all sessions together
    commit: str
    greedy: list[float]  # scores of the best checkpoint
    sample: list[float]
    random: float | None  # the mean of random play, None if it timed out
    curve: list[tuple[int, float]]  # frames and mean of the last 100 episodes
    policy: str | None = None  # named by the best checkpoint; None in older lines

    @property
    def counting(self) -> list[list[float]]:
        """The scores that may count: the ones of the checkpoint's policy, or of both policies if that is unknown."""
        scores = {"greedy": self.greedy, "sample": self.sample}
        return [scores[self.policy]] if self.policy else list(scores.values())

    def verdict(self, target: float) -> str:
        """Returns whether the lower end of the interval meets a target; if both policies may count, both must."""
        met = [reaches_target(scores, target) for scores in self.counting]
        return "met" if all(met) else "by one policy alone" if any(met) else "not met"


def training_folder(work: Path, game: str, seed: int, budget: int) -> Path:
    """Returns a training's folder."""
    return work / f"{game}-seed{seed}-{budget}"


def read_learned() -> list[Learned]:
    """Returns all finished trainings, oldest first."""
    return [Learned(**line) for line in results.read_results(LEARNED)]


def select_shown_trainings() -> list[Learned]:
    """Returns the longest training of each game and seed, the newest of equals: older settings may differ."""
    found: dict[tuple[str, int], Learned] = {}
    for one in read_learned():
        if one.budget >= found.get((one.game, one.seed), one).budget:
            found[one.game, one.seed] = one
    return list(found.values())


def find_best(runs: Iterable[Learned]) -> Learned | None:
    """Returns the best-scoring training, None if there is none; selection biases its score: play other games for it."""
    return max(runs, key=lambda one: max(map(statistics.mean, one.counting)), default=None)


def film_path(work: Path, one: Learned) -> Path:
    """Returns a training's film path, which may not exist."""
    return training_folder(work, one.game, one.seed, one.budget) / "filmed" / "episodes.mp4"
