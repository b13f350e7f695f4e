"""Specs of games (ViZDoom, Atari, other Gymnasium environments) and of their observations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from doom_a3c.settings.fields import setting
from doom_a3c.settings.inputs import exists

ATARI = "ALE/"  # begins the ids of Atari games
RULE = re.compile(r"sv_[a-z0-9_]{1,40}")  # a variable of the engine that shapes a game
FUNCTION = re.compile(r"[^\W\d]\w{0,99}\(\)")  # the id of an environment made by a function of a program: 'MyEnv()'
FREEDOOM, FIRST_MAP = "freedoom2.wad", "map01"  # ViZDoom's defaults


@dataclass(frozen=True, kw_only=True)
class GameSettings:
    """Settings of a run that belong to the game."""

    frame_skip: int | None = setting(
        None,
        "Frames per step, with rewards summed; unset is the scenario's",
        unit="frames",
        low=1,
        high=64,
    )
    shaping: tuple[str, ...] = setting(
        (),
        "Reward changes of Doom variables, for learning only: VARIABLE=GAIN[,LOSS[,MOST]], such as HEALTH=0.05,0.01",
        many=True,
    )


@dataclass(frozen=True, kw_only=True)
class _Spec:
    """Fields of all games."""

    frame_skip: int = 4  # frames per step, with rewards summed


@dataclass(frozen=True, kw_only=True)
class DoomSpec(_Spec):
    """A ViZDoom game: its files, buttons and engine settings. In a scenario file, `config` names a cfg that sets most."""

    frames_per_second: ClassVar[int] = 35  # in real time
    wad: str = ""  # the level's file: an absolute path, or a name that ViZDoom ships; '' plays the iwad's own maps
    iwad: str = ""  # the base game's file, likewise; '' is Freedoom: Phase 2
    map: str = ""  # '' is FIRST_MAP
    available_buttons: tuple[str, ...] = ()  # buttons that the actions may use
    buttons: Any = "single"  # or 'together', 'combinations', 'heads', 'auto', actions, groups of them, or a table of heads
    variables: tuple[str, ...] = ()  # game variables shown to the network
    variable_scales: tuple[float, ...] = ()  # a factor for each
    settings: Mapping[str, Any] = field(default_factory=dict)  # `VizdoomSettings` that differ from ViZDoom's defaults
    shaping: Mapping[str, Any] = field(default_factory=dict)  # rewards for learning only, see settings/shaping.py
    rules: Mapping[str, int] = field(default_factory=dict)  # the engine's sv_ variables, such as sv_noautoaim
    match: Mapping[str, Any] = field(default_factory=dict)  # `MatchSettings` of a deathmatch; empty for none

    @property
    def has_heads(self) -> bool:
        """Whether an action may be several independent choices of buttons."""
        return self.buttons in ("heads", "auto") or isinstance(self.buttons, Mapping)

    @property
    def map_played(self) -> str:
        """The map's name in lower case."""
        return self.map.lower() or FIRST_MAP

    @property
    def title(self) -> str:
        """The game's name in lists."""
        return Path(self.wad or self.iwad or FREEDOOM).name


@dataclass(frozen=True, kw_only=True)
class AtariSpec(_Spec):
    """An Atari game of the Arcade Learning Environment. docs/atari.md says which settings published numbers assume."""

    frames_per_second: ClassVar[int] = 60  # in real time
    id: str = ""  # 'ALE/Pong-v5'
    noop_max: int = 30  # no-ops at the start of an episode, a random number below this
    fire_on_reset: bool = True  # press FIRE at the start and after each lost life, in games with FIRE
    life_loss_terminates: bool = False  # for learning only; scores are of whole games
    sticky_actions: float = 0.0  # probability that the game repeats the previous action
    full_actions: bool = False  # all 18 actions instead of the game's own
    max_pool: bool = True  # brightest pixels of the last two frames, against flicker
    max_frames: int = 108_000  # per episode: half an hour of play

    @property
    def title(self) -> str:
        return self.id


@dataclass(frozen=True, kw_only=True)
class GymnasiumSpec(_Spec):
    """Any other registered Gymnasium environment, seen as pixels, as a vector of numbers, or both."""

    id: str = ""  # 'CartPole-v1'; 'module:Name-v0' to import the module that registers it; or see `FUNCTION`
    settings: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of gymnasium.make

    @property
    def title(self) -> str:
        return self.id


GameSpec = DoomSpec | AtariSpec | GymnasiumSpec


@dataclass(frozen=True, kw_only=True)
class Observation:
    """How the game's screen and numbers become the network's input."""

    resolution: str = "160x120"  # rendered by ViZDoom
    color: bool = False
    crop: tuple[int, ...] = (0, 0, 0, 0)  # not of Atari: rows off the top and bottom, columns off the left and right
    size: tuple[int, ...] = (84, 84)  # height and width after scaling
    stack: int = 1  # newest frames, stacked as channels
    scale_numbers: bool = False  # Gymnasium: whether numbers with finite bounds are scaled to [-1, 1]

    @property
    def channels(self) -> int:
        """Channels of the network's input."""
        return self.stack * (3 if self.color else 1)

    def leaves_something(self, height: int, width: int) -> bool:
        """Returns whether the crop leaves a part of a picture."""
        top, bottom, left, right = self.crop
        return top + bottom < height and left + right < width


# Keys of [observation] that a kind of game does not use.
UNUSED: Mapping[type[GameSpec], tuple[str, ...]] = {
    DoomSpec: ("scale_numbers",),
    AtariSpec: ("resolution", "crop", "scale_numbers"),
    GymnasiumSpec: ("resolution",),
}


def find_game_kind(table: Mapping[str, Any]) -> type[GameSpec]:
    """Returns the spec for a [game] table: Atari's or Gymnasium's according to its id, ViZDoom's if it has none."""
    if "id" not in table:
        return DoomSpec
    return AtariSpec if str(table["id"]).startswith(ATARI) else GymnasiumSpec


def describe_actions(actions: Sequence[str]) -> str:
    """Returns the number of actions and the first ten, such as '2 actions: LEFT RIGHT'."""
    more = " ..." if len(actions) > 10 else ""
    return f"{len(actions)} action{'s' * (len(actions) != 1)}: {' '.join(actions[:10])}{more}"


def shipped_folder() -> Path:
    """Returns the folder of ViZDoom's cfg and wad files."""
    import vizdoom  # late: --help needs no engine

    return Path(vizdoom.scenarios_path).resolve()


def locate(file: str) -> Path:
    """Returns the path of a wad or cfg: unchanged if absolute, else among ViZDoom's files."""
    if Path(file).is_absolute():
        return Path(file)
    folder = shipped_folder()
    games = folder.parent / Path(file).name  # the folder of Freedoom
    return games if not exists(folder / file) and exists(games) else folder / file
