"""Scenarios: which game is played, what the agent sees of it, and the settings tuned for it, as data.

`find` turns what a user typed after --scenario into a `Scenario`; `record` and `from_record` carry one through a
checkpoint. Nothing here starts a game.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doom_a3c.config import Config, UserError, nearest, validated

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# In a checkout the scenario files lie beside the package, in an installed wheel inside it.
_HERE = Path(__file__).resolve().parent
SCENARIO_FOLDERS = (_HERE.parent / "scenarios", _HERE / "scenario_files")


@dataclass(frozen=True, kw_only=True)
class Game:
    """A ViZDoom game: its files, buttons and engine settings."""

    config: str = ""  # .cfg file, may be ''
    wad: str = ""  # .wad file, '' where the cfg names it
    map: str = ""  # '' is what the cfg says, or map01
    buttons: Any = "single"  # 'single', 'combinations', or a list of actions, each a button or a list of buttons
    variables: tuple[str, ...] = ()  # game variables shown to the network
    variable_scales: tuple[float, ...] = ()  # factor on each of them
    settings: Mapping[str, Any] = field(default_factory=dict)  # DoomGame.set_KEY(VALUE), after the cfg


@dataclass(frozen=True, kw_only=True)
class Observation:
    """From the engine's screen to the network's input."""

    resolution: str = "160x120"  # the engine renders this
    color: bool = False
    crop: tuple[int, ...] = (0, 0, 0, 0)  # rows off the top and bottom, columns off the left and right
    size: tuple[int, ...] = (84, 84)  # height and width after scaling
    stack: int = 1  # newest frames, as channels


@dataclass(frozen=True, kw_only=True)
class Network:
    """The ACNetwork; the default sizes are the A3C-Doom agent's."""

    pixel_mean: float = 64.0  # the network sees (pixels - pixel_mean) / pixel_scale
    pixel_scale: float = 64.0
    convolutions: tuple[tuple[int, ...], ...] = ((16, 8, 4), (32, 4, 2))  # filters, kernel size, stride
    hidden: int = 256
    core: str = "lstm"  # or 'none', feed-forward
    core_size: int = 256


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a scenario file says. Paths are absolute, or bare names of files that ViZDoom ships."""

    name: str
    description: str = ""
    expected_score: str = "unknown"
    game: Game = Game()
    observation: Observation = Observation()
    network: Network = Network()
    training: Mapping[str, Any] = field(default_factory=dict)  # overrides of Config's defaults


# Shipped cfg files that cannot be played alone as they are: games of several players (ViZDoom crashes when it starts them
# without a host), and those that need a wad which cannot be shipped, or name a map that theirs has not.
_UNPLAYABLE = ("cig", "multi", "multi_duel", "doom", "doom2", "freedoom1")

_TABLES = {"game": Game, "observation": Observation, "network": Network}


def shipped_folder() -> Path:
    """Returns the folder of the cfg and wad files that come with ViZDoom."""
    import vizdoom  # imported late: --help and --list-scenarios' own files need no engine

    return Path(vizdoom.scenarios_path)


def located(file: str) -> Path:
    """Returns the path of a scenario's cfg or wad: as written where it is absolute, else in ViZDoom's folder."""
    return Path(file) if Path(file).is_absolute() else shipped_folder() / file


def available() -> dict[str, Path]:
    """Returns the scenario files by name, tuned ones first, then the cfg files that ViZDoom ships."""
    tuned = {path.stem: path for folder in SCENARIO_FOLDERS for path in sorted(folder.glob("*.toml"))}
    shipped = {path.stem: path for path in sorted(shipped_folder().glob("*.cfg")) if path.stem not in _UNPLAYABLE}
    return {**shipped, **tuned}


def find(name: str) -> Scenario:
    """Loads what --scenario names: the user's own file first, then scenarios/, then those that ViZDoom ships.

    Raises:
        UserError: if there is no such scenario, or its files are missing or broken.
    """
    path = Path(name).expanduser()
    if path.suffix in (".toml", ".cfg", ".wad") and path.is_file():
        return _load(path)
    known = available()
    bare = path.name.removesuffix(path.suffix) if path.suffix in (".toml", ".cfg", ".wad") else path.name
    if bare == name.removesuffix(path.suffix) and bare in known:
        return _load(known[bare])
    if path.suffix in (".toml", ".cfg", ".wad") and path.parent != Path("."):
        raise UserError(f"scenario file {name} does not exist")
    raise UserError(f"unknown scenario {name!r}{nearest(bare, known)}; --list-scenarios shows all, a path to a file works")


def _load(path: Path) -> Scenario:
    path = path.resolve()
    if path.suffix == ".toml":
        return _from_toml(path)
    config = path.with_suffix(".cfg")
    if not config.is_file():
        raise UserError(f"{path} needs a {config.name} beside it that names buttons and rewards")
    game = Game(config=str(config), wad=str(path) if path.suffix == ".wad" else "")
    return checked(Scenario(name=path.stem, description=f"{path.name}, untuned", game=game))


def _from_toml(path: Path) -> Scenario:
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: not a readable TOML file: {error}") from None
    data.setdefault("name", path.stem)
    game = data.get("game", {})
    if isinstance(game, dict):
        for key in ("config", "wad"):
            own = path.parent / str(game.get(key, ""))
            if game.get(key) and own.is_file():
                game[key] = str(own)
    return from_record(data, str(path))


def record(scenario: Scenario) -> dict[str, Any]:
    """Returns a scenario as nested plain data, for JSON."""
    return dataclasses.asdict(scenario)


def from_record(data: Mapping[str, Any], source: str) -> Scenario:
    """Builds a scenario from nested plain data; raises UserError that names `source` for anything unknown."""
    tables: dict[str, Any] = dict(data)
    for key in tables:
        known = [field.name for field in dataclasses.fields(Scenario)]
        if key not in known:
            raise UserError(f"{source}: unknown setting {key!r}{nearest(key, known)}")
    for key, kind in _TABLES.items():
        table = tables.get(key, {})
        if not isinstance(table, Mapping):
            raise UserError(f"{source}: [{key}] must be a table")
        tables[key] = _table(kind, table, f"{source}: [{key}]")
    tables["training"] = dict(tables.get("training", {}))
    validated(Config, tables["training"], f"{source}: [training]")
    return checked(Scenario(**tables))


def _table(kind: type, values: Mapping[str, Any], source: str) -> Any:
    """Builds one of the records from a table, turning lists into tuples and checking types against the defaults."""
    defaults = kind()
    checked_values = {}
    for key, given in values.items():
        if not hasattr(defaults, key):
            names = [field.name for field in dataclasses.fields(kind)]
            raise UserError(f"{source}: unknown setting {key!r}{nearest(key, names)}")
        default = getattr(defaults, key)
        value = _tuples(given) if isinstance(default, tuple) else given
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if key != "buttons" and not isinstance(value, type(default)):
            raise UserError(f"{source}: {key} must be a {type(default).__name__}, such as {default!r}, not {value!r}")
        checked_values[key] = value
    return kind(**checked_values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def checked(scenario: Scenario) -> Scenario:
    """Returns the scenario after checking what needs no engine: files, sizes and ranges.

    Raises:
        UserError: naming what is wrong and what would be right.
    """
    game, observation, network = scenario.game, scenario.observation, scenario.network

    def require(condition: bool, message: str) -> None:
        if not condition:
            raise UserError(f"scenario {scenario.name}: {message}")

    require(bool(game.config or game.wad), "[game] needs a config or a wad")
    for file in filter(None, (game.config, game.wad)):
        require(located(file).is_file(), f"{file} does not exist")
    if game.wad:
        _check_wad(located(game.wad))
    integers = (*observation.crop, *observation.size, observation.stack)
    require(all(isinstance(number, int) and number >= 0 for number in integers), "[observation] takes whole numbers")
    width, _, height = observation.resolution.partition("x")
    require(width.isdigit() and height.isdigit(), "[observation] resolution must look like '160x120'")
    require(len(observation.crop) == 4, "[observation] crop must be [top, bottom, left, right]")
    top, bottom, left, right = observation.crop
    require(top + bottom < int(height) and left + right < int(width), "[observation] crop leaves nothing")
    require(len(observation.size) == 2 and 0 < min(observation.size) <= 1024, "[observation] size must be [height, width]")
    require(1 <= observation.stack <= 16, "[observation] stack must be 1 to 16")
    require(network.pixel_scale > 0, "[network] pixel_scale must be above 0")
    require(network.core in ("lstm", "none"), "[network] core must be 'lstm' or 'none'")
    require(network.hidden >= 1 and network.core_size >= 1, "[network] hidden and core_size must be 1 or more")
    rows, columns = observation.size
    for layer in network.convolutions:
        require(len(layer) == 3 and min(layer) >= 1, "[network] a convolution is [filters, size, stride], each 1 or more")
        rows, columns = ((side - layer[1]) // layer[2] + 1 for side in (rows, columns))
        require(min(rows, columns) >= 1, "[network] the convolutions are too large for the observation size")
    require(len(game.variable_scales) in (0, len(game.variables)), "[game] variable_scales needs one number a variable")
    return scenario


def _check_wad(path: Path) -> None:
    """Raises UserError unless the file is a whole WAD: the engine only hangs or exits on one that is not."""
    data = b""
    with contextlib.suppress(OSError):
        data = path.read_bytes()
    count, start = (int.from_bytes(data[offset : offset + 4], "little") for offset in (4, 8))
    if data[:4] not in (b"IWAD", b"PWAD") or start + 16 * count > len(data):
        raise UserError(f"{path} is no whole WAD file; a WAD begins with 'PWAD' and holds all of its directory")
