"""The raw rate of EnvPool's ViZDoom basic, one random button per step; it always renders 320x240."""

from __future__ import annotations

from pathlib import Path

import envpool
import numpy as np

from benchmarks.comparison.runners.report import make_runner_parser, play


def main() -> None:
    """Plays until it is killed."""
    parser = make_runner_parser(__doc__)
    parser.add_argument(
        "--threads", type=int, default=8, help="more than cores hide the wait for engines; 0: EnvPool chooses (default 8)"
    )
    options = parser.parse_args()
    games = options.games
    Path("_vizdoom").mkdir(exist_ok=True)  # its engines all create it at once, and fail if it exists by then
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
        steps = int(games - ended.sum())  # an ended game's next step only resets it
        ended = terminated | truncated
        return steps

    play(step, options)


if __name__ == "__main__":
    main()
