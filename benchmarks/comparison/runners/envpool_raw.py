"""The raw rate of EnvPool's ViZDoom basic, one random button a step; it renders 320x240, whatever one asks for."""

from __future__ import annotations

from pathlib import Path

import envpool
import numpy as np

from benchmarks.comparison.runners.report import make_runner_parser, play


def main() -> None:
    """Plays until the time is up."""
    parser = make_runner_parser(__doc__)
    parser.add_argument(
        "--threads", type=int, default=8, help="more than cores, to hide the wait for engines; 0: as EnvPool chooses"
    )
    options = parser.parse_args()
    games = options.games
    Path("_vizdoom").mkdir(exist_ok=True)  # its engines make it all at the same time, and fail where it is there by then
    envs = envpool.make(
        "Basic-v1",
        env_type="gymnasium",
        num_envs=games,
        num_threads=options.threads,
        frame_skip=options.frame_skip,
        stack_num=1,
        seed=options.seed,
    )
    envs.reset()
    random = np.random.default_rng(options.seed)
    ended = np.zeros(games, np.bool_)

    def step() -> int:
        nonlocal ended
        buttons = np.eye(3)[random.integers(3, size=games)]
        _, _, terminated, truncated, _ = envs.step(buttons)
        steps = int(games - ended.sum())  # a game that has ended is reset by its next step, which takes no action
        ended = terminated | truncated
        return steps

    play(step, options)


if __name__ == "__main__":
    main()
