"""Scenarios: a game, its observations, and the settings tuned for it, as data.

`from_plain` builds and checks a `Scenario` from plain data, of a file (see `catalog`) or of a checkpoint; `to_plain` turns
it into plain data again. Nothing here starts a game.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from doom_a3c.settings.checks import (
    check_atari,
    check_doom,
    check_network,
    check_observation,
    check_size,
    check_values,
    count_parameters,
    is_name,
)
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context, require
from doom_a3c.settings.fields import hint, parse_flat, parse_values, select, settings_of
from doom_a3c.settings.games import AtariSpec, DoomSpec, GameSettings, GameSpec, GymnasiumSpec, Observation, find_game_kind
from doom_a3c.settings.match import seat_bots
from doom_a3c.settings.network import Network
from doom_a3c.settings.renames import find_new_name, format_note
from doom_a3c.settings.setting import KINDS, convert, format_value
from doom_a3c.settings.shaping import parse_shaping, parse_weights
from doom_a3c.settings.sources import Layer, merge, override
from doom_a3c.settings.vizdoom import VizdoomSettings


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario file's contents. Paths are absolute, or bare names of ViZDoom's own files."""

    name: str
    description: str = ""
    expected_score: str = "unknown"
    expected_mean: float | None = None  # score of a trained agent
    random_mean: float | None = None  # score of random play
    game: GameSpec = field(default_factory=DoomSpec)
    observation: Observation = field(default_factory=Observation)
    network: Network = field(default_factory=Network)
    training: Mapping[str, Any] = field(default_factory=dict)  # overrides of Config's defaults
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)  # of values that are not defaults, by path


MEANS = ("expected_mean", "random_mean")  # scores of one game: no base passes them on
MAX_EPISODE_STEPS = 5000  # if neither the game nor its library ends an episode


def apply_overrides(scenario: Scenario, values: Mapping[str, Any], source: str) -> tuple[Scenario, Config]:
    """Returns the scenario and the config of a run, both with the flat `values` applied.

    Raises:
        UserError: naming `source`, for an unknown setting or an invalid value.
    """
    own, config = split_overrides(values, source)
    if own.frame_skip is not None:
        game = dataclasses.replace(scenario.game, frame_skip=own.frame_skip)
        scenario = dataclasses.replace(scenario, game=game)
    if own.shaping:
        if not isinstance(scenario.game, DoomSpec):
            raise UserError(f"--shaping goes with Doom only, and {scenario.name} is another game")
        shaped = dataclasses.replace(scenario.game, shaping=parse_shaping(own.shaping))
        scenario = validate_scenario(dataclasses.replace(scenario, game=shaped))
    if config.opponents == "bots":  # the engine's own: only the match changes, and the trainer has nothing to do
        doom = scenario.game if isinstance(scenario.game, DoomSpec) else DoomSpec()
        seated = dataclasses.replace(doom, match=seat_bots(doom.match))
        scenario = validate_scenario(dataclasses.replace(scenario, game=seated))
        config = dataclasses.replace(config, opponents="self")
    return scenario, config


def apply_layers(
    scenario: Scenario, training: Mapping[str, Any], layers: Sequence[Layer], source: str
) -> tuple[Scenario, Config]:
    """Returns the scenario and the config of a run: the `training` values, overridden by layers of flat values.

    Raises:
        UserError: as `apply_overrides` does.
    """
    sources, tables = scenario.sources, dict.fromkeys(settings_of(GameSettings), "game")
    for layer in layers:
        paths = [f"{tables.get(name, 'training')}.{name}" for name in layer.tables]
        sources = override(sources, paths, layer.source)
    values = merge([Layer("", training), *layers])
    scenario, config = apply_overrides(scenario, values, source)
    return dataclasses.replace(scenario, sources=sources), config


def split_overrides(values: Mapping[str, Any], source: str) -> tuple[GameSettings, Config]:
    """Splits flat `values` into settings of the game and of the run; raises UserError as `apply_overrides`."""
    own = parse_values(GameSettings, select(values, GameSettings), source)
    parse_weights(parse_shaping(own.shaping))
    others = {key: value for key, value in values.items() if key not in vars(own)}
    return own, parse_values(Config, others, source)


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """Returns a scenario as nested plain data, for JSON; the sources of its values are left out."""
    return {key: value for key, value in dataclasses.asdict(scenario).items() if key != "sources"}


def from_plain(data: Mapping[str, Any], source: str) -> Scenario:
    """Builds a scenario from nested plain data; raises UserError, naming `source`, for anything unknown or invalid."""
    with error_context(source):
        check_values({key: value for key, value in data.items() if key != "training"})
    tables = dict(data)
    for key in ("game", "observation", "network", "training"):
        if not isinstance(tables.setdefault(key, {}), Mapping):
            raise UserError(f"{source}: [{key}] must be a table")
    kinds = {"game": find_game_kind(tables["game"]), "observation": Observation, "network": Network}
    _check_places(tables, kinds, source)
    for key in tables:
        known = [field.name for field in dataclasses.fields(Scenario) if field.name != "sources"]
        if key not in known:
            raise UserError(f"{source}: unknown setting {key!r}{hint(key, known)}")
    for key in ("name", "description", "expected_score"):
        require(isinstance(tables.get(key, ""), str), f"{source}: {key} must be a text")
    for key in MEANS:
        if (value := tables.get(key)) is not None:
            require(type(value) in (int, float), f"{source}: {key} must be a number, not {format_value(value)}")
            tables[key] = float(value)
    if "shaping" in tables["game"] and kinds["game"] is not DoomSpec:
        raise UserError(f"{source}: [shaping] goes with Doom only, and {tables['game']['id']} is another game")
    for key, kind in kinds.items():
        tables[key] = _parse_table(kind, tables[key], f"{source}: [{key}]")
    require("scenario" not in tables["training"], f"{source}: [training]: unknown setting 'scenario'")
    tables["training"] = parse_flat(Config, tables["training"], f"{source}: [training]")
    return validate_scenario(Scenario(**tables))


def _check_places(tables: Mapping[str, Any], kinds: Mapping[str, type], source: str) -> None:
    """Raises UserError for a setting in the wrong table, naming the right one."""
    own = dict.fromkeys(settings_of(VizdoomSettings), "game.settings")
    own |= dict.fromkeys(settings_of(Config), "training")
    own |= {field.name: key for key, kind in kinds.items() for field in dataclasses.fields(kind)}
    own |= dict.fromkeys(("id", "config"), "game")  # they choose the kind of the game
    own |= dict.fromkeys(("base", "description", "expected_score", *MEANS, *kinds, "training"), "")
    del own["scenario"]  # the file itself is the scenario
    given = {key: tables[key] for key in (*kinds, "training")} | {"": tables}
    for table, values in given.items():
        for key, value in values.items():
            if key not in own and (new := find_new_name(key, own)):
                place = f", in [{own[new.name]}]" if own[new.name] != table else ""
                raise UserError(f"{source}: unknown setting {key!r}: its name here is {new.name}{format_note(new)}{place}")
            if own.get(key, table) != table:
                require(table or not isinstance(value, Mapping), f"{source}: [{key}] must be [{own[key]}.{key}]")
                place = "in a table of its own, [shaping]" if key == "shaping" else _describe_place(own[key])
                raise UserError(f"{source}: {key} is {_describe_place(table)}, but belongs {place}")


def _describe_place(table: str) -> str:
    return f"in [{table}]" if table else "above the first table"


def _parse_table(kind: type, values: Mapping[str, Any], source: str) -> Any:
    """Builds a record of that kind from a table; turns lists into tuples and checks types against the defaults."""
    defaults = kind()
    names = [field.name for field in dataclasses.fields(kind)]
    checked_values = {}
    for key, given in values.items():
        if key not in names:
            raise UserError(f"{source}: unknown setting {key!r}{hint(key, names)}")
        default = getattr(defaults, key)
        value = _to_tuples(given) if isinstance(default, tuple) else given
        try:
            value = convert(value, type(default))
        except ValueError as error:
            raise UserError(f"{source}: {key}: {error}") from None
        if key != "buttons" and type(value) is not type(default):
            example = f", such as {format_value(default)}" if default and not isinstance(default, bool) else ""
            raise UserError(f"{source}: {key} must be {KINDS[type(default)]}{example}, not {format_value(given)}")
        checked_values[key] = value
    return kind(**checked_values)


def _to_tuples(value: Any) -> Any:
    return tuple(_to_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def validate_scenario(scenario: Scenario) -> Scenario:
    """Checks everything that needs no engine (names, sizes and ranges), and returns the scenario.

    Raises:
        UserError: naming the mistake and the cure.
    """
    with error_context(f"scenario {scenario.name}"):
        require(
            is_name(scenario.name),
            "its name must be one line of at most 200 characters, without slashes or a dot at the start",
        )
        parse_values(GameSettings, {"frame_skip": scenario.game.frame_skip}, "[game]")
        check_observation(scenario.observation)
        if isinstance(scenario.game, DoomSpec):
            settings = parse_flat(VizdoomSettings, scenario.game.settings, "[game.settings]")
            game = dataclasses.replace(scenario.game, settings=settings)
            check_doom(game, scenario.observation)
            scenario = dataclasses.replace(scenario, game=game)
        elif isinstance(scenario.game, AtariSpec):
            check_atari(scenario.game)
        check_network(scenario.network, (*scenario.observation.size, scenario.observation.channels))
        check_size(scenario.network, *_find_least_input(scenario))
    return scenario


def most_parameters(scenario: Scenario) -> int:
    """Returns an upper bound of the network's parameters.

    It allows for 1,000,000 parameters in the heads, 10,000 numbers from a Gymnasium game, and 1,000 about the last action.
    """
    pixels = (*scenario.observation.size, scenario.observation.channels)
    seen = [(pixels, 10_000), (None, 10_000)] if isinstance(scenario.game, GymnasiumSpec) else [_find_least_input(scenario)]
    previous = 1_000 * scenario.network.previous_action + scenario.network.previous_reward
    return max(count_parameters(scenario.network, *each, previous) for each in seen) + 1_000_000


def least_parameters(scenario: Scenario) -> int:
    """Returns a lower bound of the network's parameters, for any actions and observations of the game."""
    previous = scenario.network.previous_action + scenario.network.previous_reward
    return count_parameters(scenario.network, *_find_least_input(scenario), previous)


def _find_least_input(scenario: Scenario) -> tuple[tuple[int, ...] | None, int]:
    """Returns the smallest input: the shape of its pixels, or None, and the count of its numbers."""
    if isinstance(scenario.game, GymnasiumSpec):
        return None, 1
    numbers = len(scenario.game.variables) if isinstance(scenario.game, DoomSpec) else 0
    return (*scenario.observation.size, scenario.observation.channels), numbers
