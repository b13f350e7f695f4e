"""Atari games on the Arcade Learning Environment's vector environment in C++."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import cv2
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from doom_a3c.envs.pixels import Pixels, to_rgb
from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.games import ATARI, AtariSpec, Observation, describe_actions
from doom_a3c.settings.interface import LIFE_LOST
from doom_a3c.settings.streams import Stream

_Flags = NDArray[np.bool_]  # [B]
_HEIGHT, _WIDTH = 210, 160  # of the console's screen

ALEInterface.setLoggerMode(LoggerMode.Error)


def list_games() -> dict[str, str]:
    """Returns the emulator's names of games by their names in ids: {'MsPacman': 'ms_pacman', ...}."""
    return {name.title().replace("_", ""): name for name in roms.get_all_rom_ids()}  # as ale_py registers them


def find_rom(game: AtariSpec) -> str:
    """Returns the emulator's name of a game: 'ms_pacman' for 'ALE/MsPacman-v5'.

    Raises:
        UserError: if there is no such game.
    """
    match = re.fullmatch(ATARI + r"(\w+)-v5", game.id)
    known = list_games()
    if not match or match[1] not in known:
        ids = [f"{ATARI}{name}-v5" for name in known]
        raise UserError(f"there is no Atari game {game.id!r}{suggest(game.id, ids)}; ids look like ALE/Pong-v5")
    return known[match[1]]


def list_actions(game: AtariSpec) -> list[str]:
    """Returns the names of the actions, by index; raises UserError if there is no such game."""
    return list(_read_actions(find_rom(game), game.full_actions))


@functools.cache  # it loads the ROM, which takes as long as starting a game
def _read_actions(name: str, full: bool) -> tuple[str, ...]:
    console = ALEInterface()
    path = roms.get_rom_path(name)
    assert path is not None
    console.loadROM(path)
    return tuple(action.name for action in (console.getLegalActionSet() if full else console.getMinimalActionSet()))


def _make_games(game: AtariSpec, observation: Observation, count: int) -> AtariVectorEnv:
    return AtariVectorEnv(
        find_rom(game),
        count,
        num_threads=1 if count < 4 else 0,
        max_num_frames_per_episode=game.max_frames,
        repeat_action_probability=game.sticky_actions,
        full_action_space=game.full_actions,
        autoreset_mode=AutoresetMode.SAME_STEP,
        img_height=observation.size[0],
        img_width=observation.size[1],
        grayscale=not observation.color,
        stack_num=observation.stack,
        frameskip=game.frame_skip,
        maxpool=game.max_pool,
        noop_max=game.noop_max,
        use_fire_reset=game.fire_on_reset,
        reward_clipping=False,
    )


class AtariGames(VectorWrapper[Any, Any, Any]):
    """Games with one ROM, stepped together. Owns the lives, ages and newest frame of the running episodes.

    Observations are uint8 [B, H, W, C], the newest frame in the last channels. Rewards are the game's own. If
    losing a life counts as a termination for learning, `infos[LIFE_LOST]`, bool [B], marks games in which the step lost a
    life, but not the last one; the episode continues. With `fire_on_reset` the first action of a new life is FIRE
    instead of the agent's: some games wait for it, and an agent that avoids losing lives learns to wait forever.
    """

    def __init__(self, game: AtariSpec, observation: Observation, games: int) -> None:
        super().__init__(_make_games(game, observation, games))
        self._observation, self._life_loss = observation, game.life_loss_terminates
        self._shape = (*observation.size, observation.channels)
        self.single_observation_space = Box(0, 255, self._shape, np.uint8)
        self.observation_space = batch_space(self.single_observation_space, games)
        names = list_actions(game)
        self.metadata = {**self.env.metadata, "title": f"{game.id}, {describe_actions(names)}", "action_names": names}
        self._fire = names.index("FIRE") if game.fire_on_reset and "FIRE" in names else None
        self._lost = np.zeros(games, np.bool_)  # [B], whether the last step lost a life
        self._lives = np.zeros(games, np.int32)
        self._ages = np.zeros(games, np.int32)  # steps since the episode began
        self._newest = np.zeros(self._shape, np.uint8)
        self._random = np.random.default_rng()  # draws the seeds of `begin_again`

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Pixels, dict[str, Any]]:
        """Resets all games, or only the ones in `options["reset_mask"]`, bool [B].

        `seed` is an array with one seed per game that is reset, or an int.
        """
        seeds: Any = np.asarray(seed) % 2**31 if seed is not None and not isinstance(seed, int) else seed
        if seeds is not None:
            self._random = np.random.default_rng(np.random.SeedSequence(seeds, spawn_key=(Stream.RESTARTS,)))
        result = self.env.reset(seed=seeds, options=options)
        chosen = (options or {}).get("reset_mask", slice(None))
        self._ages[chosen], self._lost[chosen] = 0, False
        return self._begin(*result)

    def begin_again(self) -> tuple[Pixels, dict[str, Any]]:
        """Restarts the first game with a new seed, `infos["seed"]`; the other games continue.

        Recordings need the seed, and the library does not report it when it starts an episode by itself.
        """
        first = np.arange(self.num_envs) == 0
        seeds: Any = self._random.integers(2**31, size=1)
        self._ages[0], self._lost[0] = 0, False
        observations, infos = self._begin(*self.env.reset(seed=seeds, options={"reset_mask": first}))
        return observations, {**infos, "seed": seeds}

    def _begin(self, observations: Pixels, infos: dict[str, Any]) -> tuple[Pixels, dict[str, Any]]:
        self._lives = infos["lives"].copy()
        stacked = self._stack_frames(observations)
        self._newest = stacked[0]
        return stacked, infos

    def step(self, actions: Any) -> tuple[Pixels, NDArray[np.float64], _Flags, _Flags, dict[str, Any]]:
        """Steps all games; rewards are float64, [B]. See the class for `infos`."""
        if self._fire is not None:
            actions = np.where(self._lost, self._fire, actions)
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = terminated | truncated
        self._lost = (infos["lives"] < self._lives) & ~over
        if self._life_loss:
            infos[LIFE_LOST] = self._lost.copy()
        self._lives = infos["lives"].copy()
        self._ages += 1
        if over.any():
            infos["final_obs"] = self._stack_frames(infos["final_obs"])
            self._ages[over] = 0
        stacked = self._stack_frames(observations)
        self._newest = infos["final_obs"][0] if over[0] else stacked[0]
        return stacked, rewards.astype(np.float64), terminated, truncated, infos

    def _stack_frames(self, frames: Pixels) -> Pixels:
        """Returns frames, [B, stack, H, W] or [B, stack, H, W, 3], as [B, H, W, C]; repeats the first of an episode."""
        for game in np.flatnonzero(self._ages < self._observation.stack - 1):  # the library leaves zeros there
            first = self._observation.stack - 1 - self._ages[game]
            frames[game, :first] = frames[game, first]
        if frames.ndim == 5:
            return np.moveaxis(frames, 1, 3).reshape(len(frames), *self._shape)
        merged = np.empty((len(frames), *self._shape), np.uint8)
        for planes, image in zip(frames, merged, strict=True):
            cv2.merge(tuple(planes), image)  # seven times as fast as NumPy's transposition
        return merged

    def picture(self) -> Pixels:
        """Returns the first game's newest frame, or its last if an episode has just ended, at double size: [2H, 2W, 3]."""
        return _enlarge(to_rgb(self._newest[..., -3:] if self._observation.color else self._newest[..., -1]))

    def release(self) -> None:
        """Does nothing: these games run in their caller's thread."""

    def close(self, **kwargs: Any) -> None:
        """Deletes the emulators, which otherwise print a complaint when Python exits; may be called twice."""
        super().close(**kwargs)
        vars(self.env).pop("ale", None)


def _enlarge(picture: Pixels) -> Pixels:
    return cv2.resize(picture, None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST).astype(np.uint8, copy=False)


class AtariVideoRecorder:
    """Records episodes in the console's colours, which the network may not see. Owns a second game.

    A picture is the maximum of the last two frames of a step, so it has the sprites that the console draws only in every
    second frame. Seed and actions determine an episode, so a second game with the same ones repeats it.
    """

    def __init__(self, game: AtariSpec, *, large: bool = True) -> None:
        """Pictures are [420, 320, 3] if `large`, else the console's own [210, 160, 3]."""
        self._resize = _enlarge if large else np.array
        view = Observation(size=(_HEIGHT, _WIDTH), color=True)
        self._env = AtariGames(dataclasses.replace(game, max_pool=True), view, 1)
        self.pictures_per_second = AtariSpec.frames_per_second / game.frame_skip
        self._total = 0.0

    def reset(self, seed: int) -> list[Pixels]:
        """Starts the episode with this seed; returns its first picture."""
        self._total = 0.0
        return [self._resize(self._env.reset(seed=np.array([seed]))[0][0])]

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        observations, rewards, _, _, infos = self._env.step(np.array([action]))
        self._total += float(rewards[0])
        return [self._resize(infos["final_obs"][0] if ended else observations[0])]

    @property
    def score(self) -> float:
        return self._total

    def close(self) -> None:
        self._env.close()
