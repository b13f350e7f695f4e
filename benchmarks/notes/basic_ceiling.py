"""Finds the ceiling of ViZDoom's basic: the score of a player that knows where the monster stands.

    python -m benchmarks.notes.basic_ceiling --episodes 100

In each episode it tries every number of frames to walk to either side, and then shoots, standing or still walking, until
the monster is dead. The means of the best scores are the ceiling of an agent's, with steps of one, two or four frames.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import vizdoom

from benchmarks.common.command import make_parser, run_command
from benchmarks.notes.engines import start_engine

MOST_WALKED, MOST_SHOOTING = 40, 14  # frames; 30 reach the monster from anywhere, and a shot takes 4
STEPS = (1, 2, 4)  # frames
LEFT, RIGHT = 0, 1


class Plan(NamedTuple):
    """A way to play an episode."""

    side: int
    frames: int  # walked
    walks_on: bool  # while shooting


PLANS = [Plan(*each) for each in itertools.product((LEFT, RIGHT), range(MOST_WALKED + 1), (False, True))]


def play_plan(game: vizdoom.DoomGame, seed: int, plan: Plan) -> float:
    """Returns the score of a plan; an unfinished game's is its cost so far."""
    game.set_seed(seed)
    game.new_episode()
    walk = [float(plan.side == LEFT), float(plan.side == RIGHT), 0.0]
    if plan.frames:
        game.make_action(walk, plan.frames)
    shoot = [*(walk[:2] if plan.walks_on else (0.0, 0.0)), 1.0]
    for _ in range(MOST_SHOOTING):
        if game.is_episode_finished():
            break
        game.make_action(shoot, 1)
    return float(game.get_total_reward())


def find_best(scores: Mapping[Plan, float], step: int, walks_on: bool) -> float:
    """Returns the best score with steps of `step` frames, walking while shooting or not."""
    return max(value for plan, value in scores.items() if plan.frames % step == 0 and plan.walks_on <= walks_on)


def main() -> None:
    """Prints a table."""
    parser = make_parser("notes.basic_ceiling", __doc__)
    parser.add_argument("--episodes", type=int, default=100, help="episodes to play (default 100)")
    options = parser.parse_args()
    with closing(start_engine("basic")) as engine:
        episodes = [{plan: play_plan(engine.game, seed, plan) for plan in PLANS} for seed in range(options.episodes)]
    print("| frames per step | shoots standing | or walking |")
    print("|---|---|---|")
    for step in STEPS:
        means = [statistics.fmean(find_best(each, step, walks_on) for each in episodes) for walks_on in (False, True)]
        print(f"| {step} | {means[0]:.1f} | {means[1]:.1f} |")


if __name__ == "__main__":
    run_command("basic_ceiling", main)
