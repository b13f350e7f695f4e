"""ViZDoom's basic as every peer plays it: with this program's actions, time-outs and reward scale."""

from __future__ import annotations

from typing import Any

import gymnasium
import vizdoom.gymnasium_wrapper  # noqa: F401  # registers the environments

from benchmarks.comparison.runners.report import Report

REWARD_SCALE = 0.01  # as in this program's file and in Sample Factory's specification
SETTINGS: dict[str, Any] = {
    "screen_resolution": "RES_160X120",
    "screen_format": "GRAY8",
    "render_hud": False,
    "render_crosshair": False,
    "render_weapon": True,
    "render_decals": False,
    "render_particles": False,
}


class Buttons(gymnasium.ActionWrapper[Any, Any, Any]):
    """Drops the first action, which presses no button: in this program's file each action is a button."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, gymnasium.spaces.Discrete)
        self.action_space = gymnasium.spaces.Discrete(int(env.action_space.n) - 1)

    def action(self, action: Any) -> Any:
        """Returns the environment's index of an action."""
        return int(action) + 1


class Learnable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports the score of each episode when it ends, truncates at a time-out, and scales rewards.

    ViZDoom's own environment calls a time-out a termination, too, and Sample Factory's nothing else; both end an episode
    on a black observation. Here a time-out is only a truncation, and the last observation is the last picture.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], report: Report) -> None:
        super().__init__(env)
        self._report, self._score = report, 0.0
        self._observation: Any = None

    def reset(self, **named: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        self._score = 0.0
        self._observation, infos = self.env.reset(**named)
        return self._observation, infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step."""
        observation, reward, terminated, truncated, infos = self.env.step(action)
        self._score += float(reward)
        ended = terminated or truncated
        if ended:
            game = self.unwrapped.game  # type: ignore[attr-defined]
            terminated = terminated and not (game.is_episode_timeout_reached() and not game.is_player_dead())
            self._report.episode(self._score)
        else:
            self._observation = observation
        return self._observation, REWARD_SCALE * float(reward), terminated, ended and not terminated, infos


def make_basic(frame_skip: int) -> gymnasium.Env[Any, Any]:
    """Returns a game of ViZDoom's own environment: grey 160x120 pictures, three actions."""
    return Buttons(gymnasium.make("VizdoomBasic-v1", disable_env_checker=True, frame_skip=frame_skip, **SETTINGS))
