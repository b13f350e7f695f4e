"""The catalog of scenario files: finds the `Scenario` of a name typed after --scenario."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from doom_a3c.settings.errors import UserError, error_context, require, suggest
from doom_a3c.settings.games import ATARI, FUNCTION, UNUSED, DoomSpec, Observation, locate, shipped_folder
from doom_a3c.settings.inputs import check_file, exists, find_beside, list_data_folders, read_text
from doom_a3c.settings.levels import check_files, check_there, is_game
from doom_a3c.settings.match import check_match_file
from doom_a3c.settings.scenarios import MEANS, Scenario, from_plain
from doom_a3c.settings.sources import FLAG, Layer, find_sources, merge, override
from doom_a3c.settings.vizdoom import override_opposites, read_cfg
from doom_a3c.settings.wads import GAME_FILES, check_archive

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCENARIO_FOLDERS = list_data_folders("scenarios", "scenario_files")

# Names of files that ViZDoom ships but that cannot be played on their own.
_MATCHES = ("cig", "cig_with_unknown", "multi", "multi_deathmatch", "multi_duel")  # ViZDoom crashes without a host
_SOLD = ("doom", "doom2")  # commercial games, which cannot be shipped

_KINDS = (".toml", ".cfg", *GAME_FILES)  # extensions of scenario files
_SHIPPED = (".wad", ".cfg", ".toml")  # ignored after a name: basic.wad is ViZDoom's if the user has none
# The id of a module's environment may lack the version.
_GYMNASIUM_ID = re.compile(r"([\w.-]+:)?([\w-]+/)?[\w.-]+-v\d+|[\w.-]+:([\w-]+/)?[\w.-]+")
_UNVERSIONED_ID = re.compile(r"(?:([\w-]+)/)?([\w.-]+)")


def _list_own_files() -> dict[str, Path]:
    """Returns the project's own files by name; in sub-folders the name begins with the folder."""
    folder = next(folder for folder in SCENARIO_FOLDERS if folder.is_dir())
    return {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.toml"))}


def list_own_names() -> list[str]:
    """Returns the names of the project's tuned scenarios."""
    return [name for name in _list_own_files() if not name.startswith("base/")]


def list_scenario_files() -> dict[str, Path]:
    """Returns the scenario files by name: ViZDoom's cfg files, and the tuned ones, which take precedence."""
    files = _list_own_files()
    tuned = {name: files[name] for name in list_own_names()}
    shipped = {path.stem: path for path in sorted(shipped_folder().glob("*.cfg")) if path.stem not in (*_MATCHES, *_SOLD)}
    return {**shipped, **tuned}


def find_users_file(name: str) -> Path | None:
    """Returns the user's scenario file of that name, None if there is none."""
    path = _to_path(name)
    return path if path.suffix.lower() in _KINDS and exists(path) else None


def _to_path(name: str) -> Path:
    return Path(os.path.expanduser(name))  # Path's own raises for an unknown user


def find(name: str) -> Scenario:
    """Loads a scenario by name: the user's own file, then scenarios/, then ViZDoom's files, then a Gymnasium id.

    The id of a game with a tuned file in scenarios/ loads that file.

    Raises:
        UserError: if there is no such scenario, or its files are missing or broken.
    """
    if not name.strip():
        raise UserError("the name of the scenario is empty; --list-scenarios shows all")
    if path := find_users_file(name):
        return _load(path)
    if FUNCTION.fullmatch(name):
        return _build_untuned("base/gymnasium", name.removesuffix("()"), name, {"id": name})
    path, known = _to_path(name), list_scenario_files()
    bare = name.removesuffix(path.suffix) if path.suffix.lower() in _SHIPPED else name
    lower, in_any_case = bare.lower(), {each.lower(): file for each, file in known.items()}
    if file := known.get(bare) or in_any_case.get(lower):
        return _load(file)
    if lower in _MATCHES:
        raise UserError(f"{name} is for several players: [game.match] in your own file adds bots, see docs/multiplayer.md")
    if lower in _SOLD:
        raise UserError(
            f"{name} needs the commercial game {lower}.wad: if you own it, put it beside a cfg of your own with "
            f"doom_game_path = {lower}.wad; freedoom1 and freedoom2 are free replacements"
        )
    if path.suffix.lower() in _KINDS and path.parent != Path("."):
        raise UserError(f"scenario file {name} does not exist")
    if _GYMNASIUM_ID.fullmatch(name):
        return _find_gymnasium(name)
    if newest := _find_newest(name):
        return _find_gymnasium(newest)
    if exists(path):
        check_archive(path)
        hint = f"; an environment registered in it is {path.stem}:NAME-v0" if path.suffix == ".py" else ""
        raise UserError(f"{name} is not a scenario: scenario files end in .toml, .cfg, .wad or .pk3{hint}")
    if path.suffix.lower() in _KINDS:
        raise UserError(f"{name}: there is no such file, nor a scenario{suggest(bare, known)}; --list-scenarios shows all")
    raise UserError(f"unknown scenario {name!r}{suggest(bare, known)}; --list-scenarios shows all, a path to a file works")


def _load(path: Path) -> Scenario:
    check_file(path)
    kind, path = path.suffix.lower(), Path(os.path.abspath(path))
    if kind == ".toml":
        return _build_scenario(_read_layers(path), str(path))
    if kind == ".cfg":
        files = {"config": str(path)}
    else:
        check_archive(path)
        names = [file.with_suffix(ending) for file in (path, path.resolve()) for ending in (".CFG", ".cfg")]
        if not (config := next(filter(exists, names), None)):
            raise UserError(f"{path} needs {names[1].name} beside it, which names buttons and rewards")
        files = {"config": str(config), "wad": str(path)}
    return _build_untuned("base/level", path.stem, path.name, files)


def _find_newest(name: str) -> str | None:
    """Returns the newest id of an environment named without its version, None if Gymnasium knows none."""
    if not (parts := _UNVERSIONED_ID.fullmatch(name)):
        return None
    if name.startswith(ATARI):
        return f"{name}-v5"
    from gymnasium.envs.registration import find_highest_version, registry  # late: other scenarios do without

    version = find_highest_version(*parts.groups())
    return name if name in registry else f"{name}-v{version}" if version is not None else None


def _find_gymnasium(name: str) -> Scenario:
    for path in list_scenario_files().values():  # by name: pong comes before its variant pong_lstm
        if path.suffix == ".toml" and path.parent.name != "reference":
            layers = _read_layers(path)
            if merge(layers)["game"].get("id") == name:
                return _build_scenario(layers, str(path))
    base = "base/atari" if name.startswith(ATARI) else "base/gymnasium"
    return _build_untuned(base, re.split(r"[/:]", name)[-1].replace("-", "_"), name, {"id": name})


def _build_untuned(base: str, name: str, title: str, game: dict[str, Any]) -> Scenario:
    named = {"name": name, "description": f"{title}, untuned", "game": game}
    own = Layer(FLAG if "id" in game else f"file ({title})", named)
    return _build_scenario([*_read_layers(_list_own_files()[base], "base"), own], title)


def _build_scenario(layers: list[Layer], source: str) -> Scenario:
    """Builds the scenario from a user's files, and checks the files that they name."""
    layers = override_opposites(_include_config(layers, source), source)
    tables, sources = merge(layers), find_sources(layers)
    scenario = replace(from_plain(tables, source), sources=sources)
    for key in UNUSED[type(scenario.game)]:
        unset = getattr(scenario.observation, key) == getattr(Observation, key)
        require(unset, f"{source}: [observation] {key} has no effect on {scenario.game.title}: leave it out")
    with error_context(f"scenario {scenario.name}"):
        check_match_file(tables, sources)
        scenario = _move_game_to_iwad(scenario)
        check_files(scenario.game)
    return scenario


def _move_game_to_iwad(scenario: Scenario) -> Scenario:
    """Returns the scenario with a wad that is a complete game, such as a free Heretic, moved to its game's iwad."""
    game = scenario.game
    if isinstance(game, DoomSpec) and game.wad and game.iwad in ("", game.wad) and is_game(game.wad):
        sources = override(scenario.sources, ["game.iwad"], scenario.sources["game.wad"])
        return replace(scenario, game=replace(game, iwad=game.wad, wad=""), sources=sources)
    return scenario


def _include_config(layers: list[Layer], source: str) -> list[Layer]:
    """Returns the layers with the cfg that [game] names replaced by a lowest layer of its settings.

    Raises:
        UserError: if that cfg does not exist or is not understood.
    """
    game = merge(layers).get("game")
    if not isinstance(game, Mapping) or "id" in game or not (name := game.get("config")):
        return layers
    if not isinstance(name, str):
        raise UserError(f"{source}: [game] config must be a text, the name of a cfg file")
    with error_context(source):
        check_there(name)
    cfg = read_cfg(locate(name))
    level = ("wad", "iwad", "map") if cfg.keys() & {"wad", "iwad"} else ("map",) if "map" in cfg else ()
    own, leave = list[Layer](), ["config"]
    for layer in reversed(layers):
        own.insert(0, layer._replace(tables=_leave_out_of_game(layer.tables, leave)))
        if "config" in layer.tables.get("game", ()):
            leave = ["config", *level]  # its bases may have another level
    return [Layer(f"cfg ({Path(name).name})", {"game": cfg}), *own]


def _leave_out_of_game(tables: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    game = tables.get("game")
    return {**tables, "game": _leave_out(game, keys)} if isinstance(game, Mapping) else dict(tables)


def _read_layers(path: Path, kind: str = "file", seen: tuple[Path, ...] = ()) -> list[Layer]:
    """Reads a scenario file and its bases, the lowest first; its cfg and wad may lie beside it."""
    text = read_text(path)
    try:
        data = tomllib.loads(text.decode())
    except ValueError as error:  # of TOML, of UTF-8, or a number with too many digits
        cure = "; comments begin with #" if re.search(rb"(?m)(^|\s)(//|/\*|;)", text) else ""
        raise UserError(f"{path}: not a readable TOML file: {error}{cure}") from None
    except RecursionError:
        raise UserError(f"{path}: not a readable TOML file: its values are nested too deeply") from None
    if "shaping" in data:  # a separate table in files, a setting of the game here
        game, shaping = data.get("game", {}), data.pop("shaping")
        if not isinstance(shaping, dict):
            raise UserError(f"{path}: [shaping] must be a table of variables, not {shaping!r}")
        if isinstance(game, dict) and "shaping" in game:
            raise UserError(f"{path}: shaping is set twice, in [shaping] and in [game]")
        data = {**data, "game": {**game, "shaping": shaping} if isinstance(game, dict) else game}
    if "name" in data:
        raise UserError(f"{path}: unknown setting 'name': a scenario has the name of its file")
    game = data.get("game", {})
    if isinstance(game, dict):
        for key in ("config", "wad", "iwad"):
            if game.get(key) and (own := find_beside(path, str(game[key]))):
                game[key] = str(own)
    files, base = _list_own_files(), data.pop("base", None)
    layer = Layer(f"{kind} ({_shorten(path)})", {**data, "name": path.stem})
    if base is None:
        return [layer]
    if not isinstance(base, str) or base not in files:
        raise UserError(f"{path}: base must be one of {', '.join(files)}, not {base!r}")
    if files[base] in (path, *seen):
        raise UserError(f"{path}: base {base!r} leads back to this file")
    inherited = _read_layers(files[base], "base", (path, *seen))
    return [*(one._replace(tables=_leave_out(one.tables, MEANS)) for one in inherited), layer]


def _leave_out(tables: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in tables.items() if key not in keys}


def _shorten(path: Path) -> str:
    """Returns the path of one of the project's files below its folder, and the name of any other file."""
    folder = next((folder for folder in SCENARIO_FOLDERS if path.is_relative_to(folder)), path.parent)
    return str(path.relative_to(folder))
