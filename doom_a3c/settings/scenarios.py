"""Scenarios: which game is played, what the agent sees of it, and the settings tuned for it, as data.

`from_plain` builds and checks a `Scenario` from plain data, be it of a file (see `catalog`) or of a checkpoint; `to_plain`
turns one into plain data again. Nothing here starts a game.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from doom_a3c.settings.checks import check_atari, check_doom, check_observation, check_values, is_name
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context, require
from doom_a3c.settings.fields import KINDS, format_value, hint, parse_values, select, settings_of
from doom_a3c.settings.games import AtariSpec, DoomSpec, GameSettings, GameSpec, GymnasiumSpec, Observation, game_kind
from doom_a3c.settings.network import Network
from doom_a3c.settings.network_checks import check_network, check_size, count_parameters
from doom_a3c.settings.renames import explain, new_name
from doom_a3c.settings.shaping import parse_weights, shaping_table
from doom_a3c.settings.vizdoom import VizdoomSettings


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario file's contents. Paths are absolute, or bare names of ViZDoom's own files."""

    name: str
    description: str = ""
    expected_score: str = "unknown"
    game: GameSpec = field(default_factory=DoomSpec)
    observation: Observation = field(default_factory=Observation)
    network: Network = field(default_factory=Network)
    training: Mapping[str, Any] = field(default_factory=dict)  # overrides of Config's defaults


MAX_EPISODE_STEPS = 5000  # where neither the game nor its library ends an episode


def apply_overrides(scenario: Scenario, values: Mapping[str, Any], source: str) -> tuple[Scenario, Config]:
    """Returns the scenario and the config of a run, both with the flat `values` as overrides.

    Raises:
        UserError: naming `source`, if there is no such setting, or a value does not fit it.
    """
    own, config = split_overrides(values, source)
    if own.frame_skip is not None:
        game = dataclasses.replace(scenario.game, frame_skip=own.frame_skip)
        scenario = dataclasses.replace(scenario, game=game)
    if own.shaping:
        if not isinstance(scenario.game, DoomSpec):
            raise UserError(f"--shaping goes with Doom's games: {scenario.name} is none")
        shaped = dataclasses.replace(scenario.game, shaping=shaping_table(own.shaping))
        scenario = validate_scenario(dataclasses.replace(scenario, game=shaped))
    return scenario, config


def split_overrides(values: Mapping[str, Any], source: str) -> tuple[GameSettings, Config]:
    """Splits flat `values` into settings of the game and of the run; raises UserError as `apply_overrides`."""
    own = parse_values(GameSettings, select(values, GameSettings), source)
    parse_weights(shaping_table(own.shaping))
    others = {key: value for key, value in values.items() if key not in vars(own)}
    return own, parse_values(Config, others, source)


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """Returns a scenario as nested plain data, for JSON."""
    return dataclasses.asdict(scenario)


def from_plain(data: Mapping[str, Any], source: str) -> Scenario:
    """Builds a scenario from nested plain data; raises UserError that names `source` for anything unknown."""
    with error_context(source):
        check_values({key: value for key, value in data.items() if key != "training"})
    tables = dict(data)
    for key in ("game", "observation", "network", "training"):
        if not isinstance(tables.setdefault(key, {}), Mapping):
            raise UserError(f"{source}: [{key}] must be a table")
    kinds = {"game": game_kind(tables["game"]), "observation": Observation, "network": Network}
    _check_places(tables, kinds, source)
    for key in tables:
        known = [field.name for field in dataclasses.fields(Scenario)]
        if key not in known:
            raise UserError(f"{source}: unknown setting {key!r}{hint(key, known)}")
    for key in ("name", "description", "expected_score"):
        require(isinstance(tables.get(key, ""), str), f"{source}: {key} must be a text")
    if "shaping" in tables["game"] and kinds["game"] is not DoomSpec:
        raise UserError(f"{source}: [shaping] goes with Doom's games: {tables['game']['id']} is none")
    for key, kind in kinds.items():
        tables[key] = _table(kind, tables[key], f"{source}: [{key}]")
    require("scenario" not in tables["training"], f"{source}: [training]: unknown setting 'scenario'")
    parse_values(Config, tables["training"], f"{source}: [training]")
    return validate_scenario(Scenario(**tables))


def _check_places(tables: Mapping[str, Any], kinds: Mapping[str, type], source: str) -> None:
    """Raises UserError for a setting that stands in another table than its own, naming that."""
    own = dict.fromkeys(settings_of(VizdoomSettings), "game.settings")
    own |= dict.fromkeys(settings_of(Config), "training")
    own |= {field.name: key for key, kind in kinds.items() for field in dataclasses.fields(kind)}
    own |= dict.fromkeys(("id", "config"), "game")  # which of them there is says whose game it is
    own |= dict.fromkeys(("base", "description", "expected_score"), "")
    del own["scenario"]  # a file is one
    given = {key: tables[key] for key in (*kinds, "training")} | {"": tables}
    for table, values in given.items():
        for key, value in values.items():
            if key not in own and (new := new_name(key, own)):
                place = f", in [{own[new]}]" if own[new] != table else ""
                raise UserError(f"{source}: unknown setting {key!r}: its name here is {new}{explain(key)}{place}")
            if own.get(key, table) != table and not (table == "" and isinstance(value, Mapping)):
                place = "in a table of its own, [shaping]" if key == "shaping" else _place(own[key])
                raise UserError(f"{source}: {key} stands {_place(table)}, and belongs {place}")


def _place(table: str) -> str:
    return f"in [{table}]" if table else "above the first table"


def _table(kind: type, values: Mapping[str, Any], source: str) -> Any:
    """Builds one of the records from a table, turning lists into tuples and checking types against the defaults."""
    defaults = kind()
    names = [field.name for field in dataclasses.fields(kind)]
    checked_values = {}
    for key, given in values.items():
        if key not in names:
            raise UserError(f"{source}: unknown setting {key!r}{hint(key, names)}")
        default = getattr(defaults, key)
        value = _tuples(given) if isinstance(default, tuple) else given
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if key != "buttons" and type(value) is not type(default):
            example = f", such as {format_value(default)}" if default and not isinstance(default, bool) else ""
            raise UserError(f"{source}: {key} must be {KINDS[type(default)]}{example}, not {format_value(given)}")
        checked_values[key] = value
    return kind(**checked_values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def validate_scenario(scenario: Scenario) -> Scenario:
    """Checks all that needs no engine (files, sizes and ranges), and returns the scenario.

    Raises:
        UserError: naming the mistake and the cure.
    """
    with error_context(f"scenario {scenario.name}"):
        require(is_name(scenario.name), "a name is a line of 200 characters at most, has no slash, and begins with no dot")
        parse_values(GameSettings, {"frame_skip": scenario.game.frame_skip}, "[game]")
        if isinstance(scenario.game, DoomSpec):
            check_doom(scenario.game, scenario.observation)
        elif isinstance(scenario.game, AtariSpec):
            check_atari(scenario.game)
        check_observation(scenario.observation)
        check_network(scenario.network, (*scenario.observation.size, scenario.observation.channels))
        check_size(scenario.network, *_least_seen(scenario))
    return scenario


def most_parameters(scenario: Scenario) -> int:
    """Returns how many parameters the network has at most, its heads a million, a game of Gymnasium's 10,000 numbers."""
    pixels = (*scenario.observation.size, scenario.observation.channels)
    seen = [(pixels, 10_000), (None, 10_000)] if isinstance(scenario.game, GymnasiumSpec) else [_least_seen(scenario)]
    return max(count_parameters(scenario.network, *each) for each in seen) + 1_000_000


def least_parameters(scenario: Scenario) -> int:
    """Returns how many parameters the network has at least, whatever actions the game has, and whatever it shows."""
    return count_parameters(scenario.network, *_least_seen(scenario))


def _least_seen(scenario: Scenario) -> tuple[tuple[int, ...] | None, int]:
    """Returns the pixels and numbers that a network sees at least: a game of Gymnasium's shows either."""
    if isinstance(scenario.game, GymnasiumSpec):
        return None, 1
    numbers = len(scenario.game.variables) if isinstance(scenario.game, DoomSpec) else 0
    return (*scenario.observation.size, scenario.observation.channels), numbers
