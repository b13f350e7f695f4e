"""Trains with stable-baselines3's A2C or PPO, or sb3-contrib's RecurrentPPO, on ViZDoom's own Gymnasium environment.

Settings are RL Baselines3 Zoo's for Atari games, except for the number of games and constant learning rates. The network is
as close to this program's as the library allows: the same convolutions and 256 units, plus a 256-unit LSTM in RecurrentPPO;
its input is one cropped grayscale frame. When a time-out truncates an episode, the libraries bootstrap with the value of
its last observation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.comparison.runners.basic_games import Learnable, make_basic
from benchmarks.comparison.runners.report import Report, make_runner_parser

OURS: dict[str, Any] = {"net_arch": []}  # the dense layer is part of the features; heads follow directly
LSTM = {"lstm_hidden_size": 256, "shared_lstm": True, "enable_critic_lstm": False}
PPO_SETTINGS = {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 2.5e-4, "clip_range": 0.1}


class Picture(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps only the picture, cropped and resized as in this program."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (1, 84, 84), np.uint8)

    def observation(self, observation: dict[str, Any]) -> NDArray[np.uint8]:
        """Returns the picture, [1, 84, 84]."""
        cropped = observation["screen"][10:-10, 30:-30, 0]
        return np.asarray(cv2.resize(cropped, (84, 84), interpolation=cv2.INTER_AREA), np.uint8)[None]


def make_game(frame_skip: int, report: Path) -> gymnasium.Env[Any, Any]:
    """Returns a game that reports its episodes."""
    cv2.setNumThreads(1)
    return Picture(Learnable(make_basic(frame_skip), Report(report)))


class Convolutions(BaseFeaturesExtractor):
    """This program's layers before its LSTM."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, features_dim=256)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 8, 4),
            torch.nn.ELU(),
            torch.nn.Conv2d(16, 32, 4, 2),
            torch.nn.ELU(),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * 9 * 9, 256),
            torch.nn.ELU(),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Returns [batch, 256]."""
        return self.layers(pictures)


class FrameReporter(BaseCallback):
    """Reports the frames at the end of each rollout, so that reports are a whole cycle of learning and playing apart."""

    def __init__(self, report: Report, frame_skip: int) -> None:
        super().__init__()
        self._report, self._frame_skip = report, frame_skip

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._report.frames(self.num_timesteps * self._frame_skip)


def make_model(name: str, games: Any, seed: int) -> Any:
    """Returns an untrained model."""
    common: dict[str, Any] = {"env": games, "seed": seed, "device": "cpu", "ent_coef": 0.01}
    network: dict[str, Any] = {**OURS, "features_extractor_class": Convolutions}
    if name == "a2c":
        network |= {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
        return A2C("CnnPolicy", vf_coef=0.25, policy_kwargs=network, **common)
    if name == "ppo":
        return PPO("CnnPolicy", policy_kwargs=network, **PPO_SETTINGS, **common)
    from sb3_contrib import RecurrentPPO  # late: the others do not need it

    return RecurrentPPO("CnnLstmPolicy", policy_kwargs={**network, **LSTM}, **PPO_SETTINGS, **common)


def main() -> None:
    """Trains until it is killed."""
    parser = make_runner_parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithm", choices=["a2c", "ppo", "recurrent_ppo"], required=True, help="algorithm to train")
    options = parser.parse_args()
    make_reporting_game = partial(make_game, options.frame_skip, options.report)
    model = make_model(
        options.algorithm, SubprocVecEnv([make_reporting_game] * options.games, start_method="fork"), options.seed
    )
    model.learn(total_timesteps=10**12, callback=FrameReporter(Report(options.report), options.frame_skip))


if __name__ == "__main__":
    main()
