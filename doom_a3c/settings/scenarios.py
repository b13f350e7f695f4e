"""Scenarios: which game is played, what the agent sees of it, and the settings tuned for it, as data.

`from_plain` builds and checks a `Scenario` from plain data, be it of a file (see `catalog`) or of a checkpoint; `to_plain`
turns one into plain data again. Nothing here starts a game.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doom_a3c.settings.config import Config
from doom_a3c.settings.engine import EngineSettings
from doom_a3c.settings.fields import MAX_TEXT, UserError, about, nearest, select, validated, with_article
from doom_a3c.settings.games import (
    AtariSpec,
    DoomSpec,
    GameSettings,
    GameSpec,
    GymnasiumSpec,
    Observation,
    game_kind,
    located,
    shipped_folder,
)
from doom_a3c.settings.inputs import check_file, exists
from doom_a3c.settings.wads import maps_in


@dataclass(frozen=True, kw_only=True)
class Network:
    """The ACNetwork; the default sizes are the A3C-Doom agent's. Convolutions are for pixels alone."""

    pixel_mean: float = 64.0  # the network sees (pixels - pixel_mean) / pixel_scale
    pixel_scale: float = 64.0
    convolutions: tuple[tuple[int, ...], ...] = ((16, 8, 4), (32, 4, 2))  # filters, kernel size, stride
    hidden: tuple[int, ...] = (256,)  # sizes of the fully connected layers
    activation: str = "elu"  # or 'relu', 'relu6', 'tanh', of all layers before the core
    core: str = "lstm"  # or 'none', feed-forward; agent/cores.py knows all
    core_size: int = 256
    shared: bool = True  # actor and critic are two heads of one network, or a network each


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a scenario file says. Paths are absolute, or bare names of files that ViZDoom ships."""

    name: str
    description: str = ""
    expected_score: str = "unknown"
    game: GameSpec = field(default_factory=DoomSpec)
    observation: Observation = field(default_factory=Observation)
    network: Network = Network()
    training: Mapping[str, Any] = field(default_factory=dict)  # overrides of Config's defaults


MAX_EPISODE_STEPS = 5000  # where neither the game nor its library ends an episode
RENAMED = {"max_staleness": "max_policy_lag"}  # settings, as older files and checkpoints know them
MAX_PARAMETERS = 50_000_000  # of a network: with the optimizer's, 600 MB
NAME = re.compile(r"[^/\\.~-][^/\\]{0,199}")  # of a scenario or a run, which is that of folders
RULE = re.compile(r"sv_[a-z0-9_]{1,40}")
ACTIVATIONS = ("elu", "relu", "relu6", "tanh")


def resolved(scenario: Scenario, values: Mapping[str, Any], source: str) -> tuple[Scenario, Config]:
    """Returns a scenario and the settings of a run of it, both with the flat `values` over what they say otherwise.

    Raises:
        UserError: naming `source`, if there is no such setting, or a value does not fit it.
    """
    own = validated(GameSettings, select(values, GameSettings), source)
    if own.frame_skip is not None:
        game = dataclasses.replace(scenario.game, frame_skip=own.frame_skip)
        scenario = dataclasses.replace(scenario, game=game)
    others = {key: value for key, value in values.items() if key not in vars(own)}
    return scenario, validated(Config, _renamed(others), source)


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """Returns a scenario as nested plain data, for JSON."""
    return dataclasses.asdict(scenario)


def from_plain(data: Mapping[str, Any], source: str) -> Scenario:
    """Builds a scenario from nested plain data; raises UserError that names `source` for anything unknown."""
    with about(source):
        _check_values({key: value for key, value in data.items() if key != "training"})
    tables = with_frame_skip_in_game(data, source)
    for key in tables:
        known = [field.name for field in dataclasses.fields(Scenario)]
        if key not in known:
            raise UserError(f"{source}: unknown setting {key!r}{nearest(key, known)}")
    for key in ("name", "description", "expected_score"):
        _require(isinstance(tables.get(key, ""), str), f"{source}: {key} must be a text")
    for key in ("game", "observation", "network", "training"):
        if not isinstance(tables.setdefault(key, {}), Mapping):
            raise UserError(f"{source}: [{key}] must be a table")
    kinds = {"game": game_kind(tables["game"]), "observation": Observation, "network": Network}
    for key, kind in kinds.items():
        tables[key] = _table(kind, tables[key], f"{source}: [{key}]")
    tables["training"] = _renamed(tables["training"])
    validated(Config, tables["training"], f"{source}: [training]")
    return checked(Scenario(**tables))


def check_files(game: GameSpec) -> None:
    """Raises UserError where a wad that a game needs is not there, or damaged."""
    if not isinstance(game, DoomSpec):
        return
    for file in filter(None, (game.wad, game.iwad)):
        check_there(file)
        path = located(file)
        if path.parent not in (shipped_folder(), shipped_folder().parent):  # those are whole
            maps_in(path)


def check_there(file: str) -> None:
    """Raises UserError unless a wad or cfg that a scenario names is a file that can be read."""
    there = Path(file).is_absolute() or exists(located(file))
    _require(there, f"{file} does not exist: it lies neither beside the scenario's file nor among ViZDoom's own")
    check_file(located(file))


def _check_values(value: Any, depth: int = 0) -> None:
    """Raises UserError for a value that no scenario has: it may be anybody's, and reach file names and the terminal."""
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        _require(depth < 8 and len(value) < 1000, "a table or list is too large")
        for part in value:
            _check_values(part, depth + 1)
    elif isinstance(value, str):
        _require(
            value.isprintable() and len(value) <= MAX_TEXT, f"{value[:40]!r} must be one line of {MAX_TEXT} characters"
        )
    elif isinstance(value, float):
        _require(math.isfinite(value), f"{value} is no number that can be used")
    elif isinstance(value, int):
        _require(abs(value) < 2**31, "a number is above 2,147,483,647")


def checked_name(value: Any) -> str:
    """Returns `value` if it is a name of a scenario or a run; raises ValueError if not."""
    if not isinstance(value, str) or not NAME.fullmatch(value) or not value.isprintable():
        raise ValueError(f"{str(value)[:40]!r} is no name")
    return value


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings by their names of today."""
    return {RENAMED.get(key, key): value for key, value in values.items()}


def with_frame_skip_in_game(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a scenario's tables with the frame skip in [game]: older files and checkpoints have it in [training].

    Raises:
        UserError: if it is in both.
    """
    tables = {"game": {}, "training": {}, **data}
    game, training = tables["game"], tables["training"]
    if not (isinstance(game, Mapping) and isinstance(training, Mapping) and "frame_skip" in training):
        return dict(data)
    if "frame_skip" in game:
        raise UserError(f"{source}: [game] and [training] both have a frame_skip: leave it out of [training]")
    own = {key: value for key, value in training.items() if key != "frame_skip"}
    return {**data, "game": {**game, "frame_skip": training["frame_skip"]}, "training": own}


def _table(kind: type, values: Mapping[str, Any], source: str) -> Any:
    """Builds one of the records from a table, turning lists into tuples and checking types against the defaults."""
    defaults = kind()
    names = [field.name for field in dataclasses.fields(kind)]
    checked_values = {}
    for key, given in values.items():
        if key not in names:
            raise UserError(f"{source}: unknown setting {key!r}{nearest(key, names)}")
        default = getattr(defaults, key)
        value = _tuples(given) if isinstance(default, tuple) else given
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if key != "buttons" and type(value) is not type(default):
            wanted = with_article(type(default).__name__)
            raise UserError(f"{source}: {key} must be {wanted}, such as {default!r}, not {value!r}")
        checked_values[key] = value
    return kind(**checked_values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def checked(scenario: Scenario) -> Scenario:
    """Returns the scenario after checking what needs no engine: files, sizes and ranges.

    Raises:
        UserError: naming what is wrong and what would be right.
    """
    with about(f"scenario {scenario.name}"):
        _require(bool(NAME.fullmatch(scenario.name)), "a name begins with a letter, a digit or _, and has no slash")
        validated(GameSettings, {"frame_skip": scenario.game.frame_skip}, "[game]")
        if isinstance(scenario.game, DoomSpec):
            _check_doom(scenario.game, scenario.observation)
        elif isinstance(scenario.game, AtariSpec):
            _check_atari(scenario.game)
        _check_observation(scenario.observation)
        _check_network(scenario.network, scenario.observation)
    return scenario


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _check_doom(game: DoomSpec, observation: Observation) -> None:
    _require(
        bool(game.wad or game.available_buttons), "[game] needs a config or a wad, or the id of a Gymnasium environment"
    )
    _require(all(isinstance(name, str) for name in game.available_buttons), "[game] available_buttons takes names")
    validated(EngineSettings, game.settings, "[game.settings]")
    _require(
        game.settings.get("episode_timeout") != 0,
        "episode_timeout = 0 gives episodes no time-out at all: name the frames that one may last, such as 2100, or leave "
        "it out if every episode ends by itself",
    )
    rules = all(RULE.fullmatch(str(name)) and type(number) is int for name, number in game.rules.items())
    _require(rules, "[game.rules] takes whole numbers for sv_ variables of the engine, such as sv_noautoaim = 1")
    _require(all(isinstance(name, str) for name in game.variables), "[game] variables takes names, such as ['HEALTH']")
    numbers = all(type(scale) in (int, float) for scale in game.variable_scales)
    _require(
        numbers and len(game.variable_scales) in (0, len(game.variables)),
        "[game] variable_scales needs one number a variable",
    )
    if not (sides := re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", observation.resolution)):
        raise UserError(f"[observation] resolution must look like '160x120', not {observation.resolution!r}")
    width, height = map(int, sides.groups())
    crop = observation.crop
    _require(len(crop) == 4, "[observation] crop must be [top, bottom, left, right]")
    _require(all(type(side) is int and side >= 0 for side in crop), "[observation] crop takes whole numbers")
    _require(crop[0] + crop[1] < height and crop[2] + crop[3] < width, "[observation] crop leaves nothing")


def _check_atari(game: AtariSpec) -> None:
    _require(0 <= game.sticky_actions <= 1, "[game] sticky_actions is a probability, 0 to 1")
    _require(game.noop_max >= 0, "[game] noop_max must be 0 or more")
    _require(game.max_frames >= 1, "[game] max_frames must be 1 or more")


def _check_observation(observation: Observation) -> None:
    size = observation.size
    _require(all(type(side) is int for side in size), "[observation] size takes whole numbers")
    fits = len(size) == 2 and min(size) > 0 and max(size) <= 1024
    _require(fits, f"[observation] size must be [height, width], each 1 to 1024, not {list(size)}")
    _require(1 <= observation.stack <= 16, "[observation] stack must be 1 to 16")


def _check_network(network: Network, observation: Observation) -> None:
    _require(network.pixel_scale > 0, "[network] pixel_scale must be above 0")
    _require(network.activation in ACTIVATIONS, f"[network] activation must be one of {', '.join(ACTIVATIONS)}")
    sizes = (*network.hidden, network.core_size)
    _require(all(isinstance(size, int) and size >= 1 for size in sizes), "[network] hidden and core_size must be 1 or more")
    sides: tuple[int, ...] = observation.size
    for layer in network.convolutions:
        _require(
            isinstance(layer, tuple) and len(layer) == 3 and all(type(part) is int and part >= 1 for part in layer),
            "[network] a convolution is [filters, size, stride], each 1 or more",
        )
        sides = tuple((side - layer[1]) // layer[2] + 1 for side in sides)
        _require(min(sides) >= 1, "[network] the convolutions are too large for the observation size")
    parameters = _parameters(network, observation)
    _require(
        parameters <= MAX_PARAMETERS,
        f"[network] would have {parameters:,} parameters or more, {MAX_PARAMETERS:,} at most: make hidden, core_size or "
        "convolutions smaller",
    )


def least_parameters(scenario: Scenario) -> int:
    """Returns how many parameters the network has at least, however many actions and numbers the game has."""
    shows_pixels = not isinstance(scenario.game, GymnasiumSpec)
    return _parameters(scenario.network, scenario.observation if shows_pixels else None)


def _parameters(network: Network, observation: Observation | None) -> int:
    """Returns how many parameters a network has before its heads that sees those pixels, or a single number."""
    count, features = 0, 1
    if observation is not None:
        (height, width), channels = observation.size, observation.channels
        for filters, size, stride in network.convolutions:
            count += size * size * channels * filters
            height, width, channels = (height - size) // stride + 1, (width - size) // stride + 1, filters
        features = height * width * channels
    for size in network.hidden:
        count += features * size
        features = size
    if network.core != "none":
        count += network.core_size**2
    return count
