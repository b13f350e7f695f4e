"""The raw rate of Gymnasium's AsyncVectorEnv of ViZDoom's own environment: a process per game, random actions."""

from __future__ import annotations

from functools import partial

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from benchmarks.comparison.runners.basic_games import make_basic
from benchmarks.comparison.runners.report import make_runner_parser, play


def main() -> None:
    """Plays until it is killed."""
    options = make_runner_parser(__doc__).parse_args()
    envs = AsyncVectorEnv(
        [partial(make_basic, options.frame_skip)] * options.games,
        context="fork",  # so that no process repeats the imports
        autoreset_mode=AutoresetMode.SAME_STEP,  # so that every game plays in every step
    )
    envs.reset(seed=options.seed)
    random = np.random.default_rng([options.seed, 1])  # its own stream: games draw from [seed]

    def step() -> int:
        envs.step(random.integers(envs.single_action_space.n, size=options.games))  # type: ignore[attr-defined]
        return int(options.games)

    play(step, options)


if __name__ == "__main__":
    main()
