"""Trains with Sample Factory: APPO with an LSTM on its own ViZDoom basic, the settings that were fastest on two cores.

Its environment multiplies the game's rewards by 0.01, before episodes are summed: what it reports as 'reward' times 100 is
the game's own score. Nothing else shapes that reward; its normalisation of returns comes later.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import argparse
from pathlib import Path
from typing import Any

from report import Report, runner_flags
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.train import make_runner
from sf_examples.vizdoom.doom.doom_utils import doom_env_by_name
from sf_examples.vizdoom.train_vizdoom import parse_vizdoom_cfg, register_vizdoom_components

WORKERS = 2
GAME = "doom_basic"


def flags(options: argparse.Namespace) -> list[str]:
    """Returns Sample Factory's flags."""
    return [
        "--algo=APPO",
        f"--env={GAME}",
        f"--env_frameskip={options.frame_skip}",
        f"--seed={options.seed}",
        "--device=cpu",
        f"--num_workers={WORKERS}",
        f"--num_envs_per_worker={options.games // WORKERS}",
        "--batch_size=1024",
        "--use_rnn=True",
        "--rnn_type=lstm",
        "--rnn_size=256",
        "--encoder_conv_mlp_layers",
        "256",
        "--stats_avg=100",
        f"--train_dir={Path('sample_factory').absolute()}",
        "--experiment=basic",
    ]


class Watcher(AlgoObserver):
    """Reports after each update."""

    def __init__(self, report: Report, reward_scale: float) -> None:
        self._report, self._reward_scale = report, reward_scale

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        """Reports the frames learned from and the mean score; called by Sample Factory."""
        scores = runner.policy_avg_stats.get("reward", [[]])[0]
        mean = float(sum(scores)) / len(scores) / self._reward_scale if len(scores) >= 100 else None
        self._report.point(int(runner.env_steps.get(0, 0)), mean)


def main() -> None:
    """Trains until it is ended from outside."""
    options = runner_flags((__doc__ or "").splitlines()[0]).parse_args()
    register_vizdoom_components()
    _, runner = make_runner(parse_vizdoom_cfg(flags(options)))
    runner.register_observer(Watcher(Report(options.points), doom_env_by_name(GAME).reward_scaling))
    runner.init()
    runner.run()


if __name__ == "__main__":
    main()
