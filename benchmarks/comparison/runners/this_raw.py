"""The raw rate of this program's vector environment with random actions and pictures cropped, resized to 84x84."""

from __future__ import annotations

import numpy as np

from benchmarks.comparison.runners.report import make_runner_parser, play
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings import catalog
from doom_a3c.settings.config import cpu_count
from doom_a3c.settings.scenarios import apply_overrides


def main() -> None:
    """Plays until it is killed."""
    options = make_runner_parser(__doc__).parse_args()
    import_tensorflow(cpu_count(), verbose=False, device="cpu")
    from doom_a3c.run.builder import Builder

    values = {"frame_skip": options.frame_skip, "game_processes": cpu_count()}
    builder = Builder(*apply_overrides(catalog.find("basic"), values, "flags"))
    envs = builder.make_training_env(options.games)
    envs.reset(seed=options.seed)
    random = np.random.default_rng([options.seed, 1])  # its own stream: games draw from [seed]

    def step() -> int:
        envs.step(builder.distribution.sample_uniform(options.games, random))
        return int(options.games)

    play(step, options)


if __name__ == "__main__":
    main()
