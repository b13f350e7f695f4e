"""Any registered Gymnasium environment, with the observations and actions of its agent."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import cv2
import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from doom_a3c.envs.actions import adapt_actions
from doom_a3c.envs.box2d import hide_flames, speed_up_drawing
from doom_a3c.envs.flattening import list_left_out
from doom_a3c.envs.functions import RAISED, call_function
from doom_a3c.envs.masks import find_masks
from doom_a3c.envs.observations import make_reader
from doom_a3c.envs.old_api import check_calls, check_space, name_env, suggest_gymnasium
from doom_a3c.envs.pixels import Pixels
from doom_a3c.envs.unknown_ids import suggest_atari, suggest_id
from doom_a3c.settings.errors import UserError, first_line
from doom_a3c.settings.games import FUNCTION, GymnasiumSpec, Observation
from doom_a3c.settings.scenarios import MAX_EPISODE_STEPS

if TYPE_CHECKING:
    from doom_a3c.envs.processes.supervisor import MakeEnv

# Gymnasium's advice (newer versions, wrappers) is for authors of environments.
gymnasium.logger.min_level = gymnasium.logger.ERROR
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame then draws in memory and needs no display

RECORDING_HEIGHT, MAX_WIDTH = 240, 960


def make(
    game: GymnasiumSpec, observation: Observation, make_env: MakeEnv | None = None, masked: bool | None = None
) -> gymnasium.Env[Any, Any]:
    """Returns one game as the agent plays it.

    Args:
        game: names the environment.
        observation: how pictures are preprocessed.
        make_env: makes an environment that Gymnasium does not know.
        masked: whether its infos have action masks; None resets it once to find out.

    Raises:
        UserError: if there is no such environment, it cannot be made, or its observations are not supported.
    """
    env = check_calls(call_function(make_env, game.id) if make_env else _make_env(game))
    if make_env is None and env.spec is not None and str(env.spec.entry_point).startswith("ale_py"):
        raise UserError(f"{game.id}: {suggest_atari(game.id) or 'name Atari games by their ids, such as ALE/Pong-v5'}")
    if not _has_time_limit(env):
        env = gymnasium.wrappers.TimeLimit(env, MAX_EPISODE_STEPS * game.frame_skip)
    return Preprocess(RenderFinalFrame(env), observation, game.frame_skip, masked)


def _has_time_limit(env: gymnasium.Env[Any, Any]) -> bool:
    """Returns whether a wrapper limits the episodes; the spec does not say, as a program may have unwrapped its limit."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return True
        env = env.env
    return False


def _make_env(game: GymnasiumSpec) -> gymnasium.Env[Any, Any]:
    """Returns the environment, with `render_mode="rgb_array"` if it supports that."""
    if FUNCTION.fullmatch(game.id):
        raise UserError(f"{game.id} is made by a function of a Python program: doom_a3c.train(function) trains on it")
    if ":" in game.id and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a user's module is found here, just as a wad would be
    with contextlib.suppress(*RAISED):
        return gymnasium.make(game.id, disable_env_checker=True, **{"render_mode": "rgb_array", **game.settings})
    try:  # without render_mode, which some environments do not accept
        return gymnasium.make(game.id, disable_env_checker=True, **dict(game.settings))
    except RAISED as error:
        if reason := suggest_gymnasium(game.id, error):
            raise UserError(f"{game.id}: {reason}") from None
        if isinstance(error, gymnasium.error.UnregisteredEnv):
            raise UserError(f"{game.id}: {suggest_id(game.id, error)}") from None
        if isinstance(error, gymnasium.error.Error):  # a version that is too old, say
            raise UserError(f"{game.id}: {first_line(error)}") from None
        raise UserError(f"{game.id}: {first_line(error)}; --verbose shows where") from error


class RenderFinalFrame(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Renders the end of an episode before the reset of the same step wipes it, if pictures of the episode were requested.

    An environment that cannot draw returns no pictures; its episodes continue regardless.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._renders = False
        hide_flames(env)
        self.final: Pixels | None = None

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        if self._renders and (result[2] or result[3]):
            self.final, self._renders = self._draw(), False
        return result

    def _draw(self) -> Pixels | None:
        try:
            picture: Any = self.env.render()
        except Exception:  # there is no render(), or a package or display is missing
            return None
        fits = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.shape[2:] == (3,) and picture.size
        return _shrink(picture) if fits else None

    def picture(self, final: bool) -> Pixels | None:
        """Returns the newest picture, [height, width, 3], or the final one of the last episode; None if there is none."""
        if final:
            return self.final
        self._renders = True
        return self._draw()


class Preprocess(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Preprocesses observations to pixels or float32 numbers, and repeats actions for `frame_skip` frames.

    With action masks, observations are a dict with the key `mask`. Owns the readers of observations and masks. Infos are
    dropped: nothing else reads them, and a key might clash with one of this program's.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], spec: Observation, frame_skip: int, masked: bool | None = None
    ) -> None:
        super().__init__(env)
        self._name = name_env(env)
        self._frame_skip = frame_skip
        for which in ("observation_space", "action_space"):
            try:
                check_space(self._name, getattr(env, which))
            except RAISED as error:
                if isinstance(error, UserError):
                    raise
                raise UserError(
                    f"{self._name}: its {which} cannot be read ({type(error).__name__}: {first_line(error)}); "
                    "the constructor must set it"
                ) from error
        self._switch_drawing = speed_up_drawing(env)
        self._reader = make_reader(self._name, env.observation_space, spec)
        adapted, self._to_env_action, names, words = adapt_actions(self._name, env.action_space)
        try:
            self._masks = find_masks(self._name, env, masked)
        except UserError:
            raise
        except RAISED as error:
            raise self._make_error("reset", error) from error
        self.observation_space = self._masks.add_to_space(self._reader.space)
        self.action_space = adapted
        self.metadata = {
            **env.metadata,
            "title": f"{self._name}, {words}",
            "action_names": names,
            "labels": self._reader.labels,
            "left_out": [*list_left_out(env.observation_space), *self._masks.left_out],
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Raises:
            UserError: if the environment raises an exception.
        """
        try:
            observation, info = self.env.reset(seed=seed, options=options)
            self._reader.clear()
            self._masks.read(info)
            return self._masks.add_to(self._reader.read(observation)), {}
        except UserError:
            raise
        except RAISED as error:
            raise self._make_error("reset", error) from error

    def step(self, action: Any) -> Any:
        """Takes an action for `frame_skip` frames, or until the episode ends or a mask forbids it; rewards are summed.

        Raises:
            UserError: if the environment raises an exception.
        """
        total, masks = 0.0, self._masks
        try:
            for left in reversed(range(self._frame_skip)):
                if self._switch_drawing:
                    self._switch_drawing(left == 0)
                observation, reward, terminated, truncated, info = self.env.step(self._to_env_action(action))
                try:
                    total += float(reward)
                except (TypeError, ValueError):
                    raise self._refuse_reward(reward) from None
                ends = bool(terminated or truncated)
                masks.read(info, ends)
                if ends or not masks.allows(action):
                    break
            if self._switch_drawing:
                self._switch_drawing(True)  # for a reset
            return masks.add_to(self._reader.read(observation)), total, bool(terminated), bool(truncated), {}
        except UserError:
            raise
        except RAISED as error:
            raise self._make_error("stepped", error) from error

    def _refuse_reward(self, reward: Any) -> UserError:
        value = f"{type(reward).__name__} of shape {np.shape(reward)}" if np.shape(reward) else repr(reward)[:100]
        return UserError(f"{self._name}: step() returns the reward {value}, but Gymnasium expects one number")

    def close(self) -> None:
        """Closes the game and ignores its errors: it may have been closed already."""
        with contextlib.suppress(*RAISED):
            super().close()

    def _make_error(self, verb: str, error: BaseException) -> UserError:
        return UserError(
            f"{self._name} cannot be {verb}: {type(error).__name__}: {first_line(error)}; --verbose shows where"
        )


def _shrink(picture: Pixels) -> Pixels:
    """Returns a picture, scaled down if it is larger than a recording."""
    height, width, _ = picture.shape
    if height <= RECORDING_HEIGHT and width <= MAX_WIDTH:
        return picture
    scale = min(RECORDING_HEIGHT / height, MAX_WIDTH / width)
    size = (max(2, int(width * scale) // 2 * 2), max(2, int(height * scale) // 2 * 2))  # video codecs need even sides
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)


def _as_list(picture: Pixels | None) -> list[Pixels]:
    return [] if picture is None else [picture]


class OwnVideoRecorder:
    """Records episodes with pictures of the player's own game. Owns nothing."""

    score: float | None = None  # it films the player's own game

    def __init__(self, env: VectorEnv[Any, Any, Any], pictures_per_second: float) -> None:
        self._env, self.pictures_per_second = env, pictures_per_second

    def reset(self, seed: int) -> list[Pixels]:
        """Returns the first picture of the episode that has just begun."""
        return _as_list(self._env.picture())  # type: ignore[attr-defined]  # a method of this package's vectors

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        """Returns the picture after the step that has just been played."""
        return _as_list(self._env.picture(final=ended))  # type: ignore[attr-defined]  # as above

    def close(self) -> None:
        """Does nothing: the game belongs to its player."""
