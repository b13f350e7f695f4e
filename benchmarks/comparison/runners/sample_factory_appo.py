"""Trains with Sample Factory: APPO with an LSTM on its own ViZDoom basic, with the settings fastest on two cores.

Its environment never truncates; here it does at a time-out, and `value_bootstrap` then adds a value to the last reward:
the value of the observation before the last step, as its rollouts do not keep the one after it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import argparse
import copy
from functools import partial
from pathlib import Path
from typing import Any

from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sf_examples.vizdoom.doom.doom_utils import doom_env_by_name, make_doom_env_from_spec
from sf_examples.vizdoom.train_vizdoom import parse_vizdoom_cfg, register_vizdoom_models

from benchmarks.comparison.runners.basic_games import Buttons, Learnable
from benchmarks.comparison.runners.report import Report, make_runner_parser

WORKERS = 2
GAME = "doom_basic"


def make_flags(options: argparse.Namespace) -> list[str]:
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
        "--value_bootstrap=True",
        f"--train_dir={Path('sample_factory').absolute()}",
        "--experiment=basic",
    ]


class FrameReporter(AlgoObserver):
    """Reports the frames trained on, after each update."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        """Called by Sample Factory."""
        self._report.frames(int(runner.env_steps.get(0, 0)))


def make_game(report: Path, *arguments: Any, **named: Any) -> Any:
    """Returns Sample Factory's own basic, with the actions, time-outs and rewards of all peers."""
    spec = copy.copy(doom_env_by_name(GAME))
    spec.reward_scaling = 1.0  # `Learnable` scales rewards, by the same factor
    return Learnable(Buttons(make_doom_env_from_spec(spec, *arguments, **named)), Report(report))


def main() -> None:
    """Trains until it is killed."""
    options = make_runner_parser((__doc__ or "").splitlines()[0]).parse_args()
    register_env(GAME, partial(make_game, options.report))
    register_vizdoom_models()
    _, runner = make_runner(parse_vizdoom_cfg(make_flags(options)))
    runner.register_observer(FrameReporter(Report(options.report)))
    runner.init()
    runner.run()


if __name__ == "__main__":
    main()
