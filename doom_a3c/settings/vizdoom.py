"""ViZDoom's settings that a scenario may change, those of the game itself; and its cfg files, read into a [game] table.

ViZDoom's other settings name programs, their arguments, files or other configurations. They are refused, because a
scenario can come from a stranger's checkpoint. ViZDoom could read cfg files itself, but then a scenario would not be data,
and a checkpoint would name a file that could start any program as the engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doom_a3c.settings.errors import UserError, error_context, require, suggest
from doom_a3c.settings.fields import setting, settings_of
from doom_a3c.settings.games import RULE, locate, shipped_folder
from doom_a3c.settings.inputs import exists, find_beside, read_text
from doom_a3c.settings.setting import Setting
from doom_a3c.settings.sources import Layer

_SCORED = "; part of the score"


@dataclass(frozen=True, kw_only=True)
class VizdoomSettings:
    """Keys of [game.settings] in a Doom scenario; an unset key keeps ViZDoom's default."""

    living_reward: float | None = setting(None, "Reward of every frame" + _SCORED)
    death_penalty: float | None = setting(None, "Penalty for a death" + _SCORED)
    death_reward: float | None = setting(None, "Reward of a death" + _SCORED)
    map_exit_reward: float | None = setting(None, "Reward of leaving the map" + _SCORED)
    kill_reward: float | None = setting(None, "Reward of a kill" + _SCORED)
    secret_reward: float | None = setting(None, "Reward of a secret found" + _SCORED)
    item_reward: float | None = setting(None, "Reward of an item taken" + _SCORED)
    frag_reward: float | None = setting(None, "Reward of a frag" + _SCORED)
    hit_reward: float | None = setting(None, "Reward of a hit" + _SCORED)
    hit_taken_reward: float | None = setting(None, "Reward of a hit taken" + _SCORED)
    hit_taken_penalty: float | None = setting(None, "Penalty for a hit taken" + _SCORED)
    damage_made_reward: float | None = setting(None, "Reward of a point of damage made" + _SCORED)
    damage_taken_reward: float | None = setting(None, "Reward of a point of damage taken" + _SCORED)
    damage_taken_penalty: float | None = setting(None, "Penalty for a point of damage taken" + _SCORED)
    health_reward: float | None = setting(None, "Reward of a point of health gained" + _SCORED)
    armor_reward: float | None = setting(None, "Reward of a point of armor gained" + _SCORED)
    episode_timeout: int | None = setting(
        None, "Frames after which an episode ends; 0 never ends it", unit="frames", low=0, high=2**31 - 1
    )
    episode_start_time: int | None = setting(None, "Frames before an episode begins", unit="frames", low=0, high=2**31 - 1)
    ticrate: int | None = setting(None, "Frames per second of real time", low=1, high=1000)
    doom_skill: int | None = setting(None, "Difficulty", low=1, high=5)
    render_hud: bool | None = setting(None, "Show the status bar")
    render_minimal_hud: bool | None = setting(None, "Show a small status bar")
    render_weapon: bool | None = setting(None, "Show the weapon")
    render_crosshair: bool | None = setting(None, "Show a crosshair")
    render_decals: bool | None = setting(None, "Show marks on walls")
    render_particles: bool | None = setting(None, "Show particles")
    render_effects_sprites: bool | None = setting(None, "Show smoke and blood")
    render_messages: bool | None = setting(None, "Show messages")
    render_corpses: bool | None = setting(None, "Show corpses")
    render_screen_flashes: bool | None = setting(None, "Show flashes of damage and pick-ups")
    render_all_frames: bool | None = setting(None, "Draw skipped frames, too")


# Two names of one setting, with opposite signs: ViZDoom keeps the one that is set last.
_PAIRS = tuple((f"{event}_reward", f"{event}_penalty") for event in ("death", "hit_taken", "damage_taken"))
_OPPOSITES = {**dict(_PAIRS), **{penalty: reward for reward, penalty in _PAIRS}}

# Keys that the environment sets itself: how the game is played and rendered.
_IGNORED = re.compile(
    r"mode|seed|screen(resolution|format)|windowvisible|consoleenabled|available\w*variables|sound\w*|audio\w*|automap\w*"
    r"|(depth|labels|notifications)buffer\w*|(objects|sectors)infoenabled"
)
_REFUSED = re.compile(r"vizdoompath|doomconfigpath")
_FILES = {"doomscenariopath": "wad", "doomgamepath": "iwad"}
_COMMENT, _COMMENT_AFTER_FILE = re.compile(r"#.*"), re.compile(r"\s+#.*")  # a file name may be hash#tag.wad
_FOREIGN_COMMENT = re.compile(r"//|/\*|;")
_FILE_LINE = re.compile(r"\s*doom_?(scenario|game)_?path\s*=\s*[^#\s]", re.IGNORECASE)
_LINE = re.compile(r"(\w+)\s*(\+?)=\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9.]{1,30}([eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def read_cfg(path: Path) -> dict[str, Any]:
    """Returns the [game] table of a cfg file: `settings`, and any of `wad`, `iwad`, `map`, `available_buttons` and `rules`.

    Raises:
        UserError: naming the file and the line, if it is not understood.
    """
    table: dict[str, Any] = {"settings": {}}
    for number, key, more, value in _read_assignments(path):
        try:
            with error_context(f"{path}, line {number}"):
                _add_assignment(table, path, key, more, value)
        except UserError as error:
            raise UserError(f"{error}{_explain_comment(value)}") from None
    return table


def override_opposites(layers: Sequence[Layer], source: str) -> list[Layer]:
    """Returns layers of a Doom game in which a later `death_penalty`, say, replaces an earlier `death_reward`.

    Raises:
        UserError: naming `source`, if one layer sets both.
    """
    games = [game if isinstance(game := layer.tables.get("game"), Mapping) else {} for layer in layers]
    if any("id" in game for game in games):  # Gymnasium's: its settings may be anything
        return list(layers)
    kept: list[Layer] = []
    replaced: set[str] = set()
    for layer, game in zip(reversed(layers), reversed(games), strict=True):
        if not isinstance(settings := game.get("settings"), Mapping):
            kept.insert(0, layer)
            continue
        own = {key: value for key, value in settings.items() if key not in replaced}
        for pair in _PAIRS:
            both = f"{' and '.join(pair)} are opposite names of one setting: leave one out"
            require(not own.keys() >= set(pair), f"{source}: [game.settings] {both}")
        kept.insert(0, layer._replace(tables={**layer.tables, "game": {**game, "settings": own}}))
        replaced |= {_OPPOSITES[key] for key in own if key in _OPPOSITES}
    return kept


def _add_assignment(table: dict[str, Any], path: Path, key: str, more: bool, value: str) -> None:
    """Adds one assignment of a cfg file to the [game] table; raises UserError if it is not understood."""
    plain_key = key.lower().replace("_", "")
    if plain_key == "availablebuttons":
        before = table.get("available_buttons", ()) if more else ()
        table["available_buttons"] = list(dict.fromkeys((*before, *_parse_names(value))))
    elif plain_key == "doommap":
        require(not _FOREIGN_COMMENT.search(value), f"there is no map {value[:60]!r}")
        table["map"] = value
    elif plain_key in _FILES:
        table[_FILES[plain_key]] = _parse_file(path, value)
    elif plain_key == "gameargs":
        table["rules"] = {**(table.get("rules", {}) if more else {}), **_parse_rules(value)}
    elif _REFUSED.fullmatch(plain_key):
        raise UserError(f"{key} is refused, as it could start any program; leave it out")
    elif more:
        raise UserError(f"+= adds to lists, and {key} is none; use =")
    elif not _IGNORED.fullmatch(plain_key):
        name, known = _find_setting(key)
        table["settings"].pop(_OPPOSITES.get(name), None)
        table["settings"][name] = _parse_value(known, value)


def _explain_comment(text: str) -> str:
    """Returns the cure for a text with another language's comment, '' for any other text."""
    return "; comments begin with #" if _FOREIGN_COMMENT.search(text) else ""


def _read_assignments(path: Path) -> list[tuple[int, str, bool, str]]:
    """Returns line number, key, whether it is +=, and value of each assignment; lists in braces may span lines."""
    lines = read_text(path).decode("utf-8", "replace").replace("\r", "").split("\n")
    found: list[tuple[int, str, bool, str]] = []
    unfinished, first = "", 0
    for number, line in enumerate(lines, 1):
        first = first if unfinished else number
        so_far = f"{unfinished} {line}".strip()
        unfinished = so_far if _FILE_LINE.match(so_far) else _COMMENT.sub("", so_far).strip()
        if not unfinished or unfinished.endswith("=") or ("{" in unfinished and "}" not in unfinished):
            continue
        match = _LINE.fullmatch(unfinished)
        if not match:
            raise UserError(
                f"{path}, line {first}: {unfinished[:60]!r} is not a setting, such as living_reward = -1"
                f"{_explain_comment(unfinished)}"
            )
        found.append((first, match[1], bool(match[2]), match[3].strip()))
        unfinished = ""
    if unfinished:
        raise UserError(f"{path}, line {first}: {unfinished[:60]!r} does not end{_explain_comment(unfinished)}")
    return found


def _parse_names(value: str) -> list[str]:
    if not re.fullmatch(r"\{[\w\s]*\}", value):
        raise UserError("a list looks like { MOVE_LEFT ATTACK }")
    return [name.upper() for name in value[1:-1].split()]


def _parse_file(path: Path, value: str) -> str:
    """Returns the path of a file beside the cfg, where ViZDoom looks first; a file that it ships keeps its bare name.

    A # begins a comment unless it belongs to the name, as in hash#tag.wad, or in level #1.wad if that exists.
    """
    if not find_beside(path, value):
        value = _COMMENT_AFTER_FILE.sub("", value)
    beside = find_beside(path, value)
    if beside and path.parent.resolve() != shipped_folder():
        return str(beside)
    commented = re.search(r"\s(//|/\*)|;", value)  # not a path such as /data//mine.wad
    require(not commented or exists(locate(value)), f"{value[:60]!r} does not exist")
    return value


def _parse_rules(arguments: str) -> dict[str, int]:
    """Returns the rules among the engine's arguments; raises UserError if there are other arguments."""
    words = arguments.split()
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    numbers = all(re.fullmatch(r"[0-9]{1,9}", number) for number in pairs.values())
    if len(words) % 2 or not numbers or not all(name[:1] == "+" and RULE.fullmatch(name[1:]) for name in pairs):
        raise UserError("game_args takes only rules, such as +sv_noautoaim 1: other arguments could do anything")
    return {name[1:]: int(number) for name, number in pairs.items()}


def _find_setting(key: str) -> tuple[str, Setting]:
    """Returns name and setting for a key of a cfg, in whatever case; raises UserError if there is none."""
    for name, known in settings_of(VizdoomSettings).items():
        if name.replace("_", "") == key.lower().replace("_", ""):
            return name, known
    raise UserError(f"unknown setting {key!r}{suggest(key, settings_of(VizdoomSettings))}")


def _parse_value(known: Setting, value: str) -> Any:
    try:
        if known.kind is not bool and not _NUMBER.fullmatch(value):
            raise ValueError
        return known.parse(_WORDS[value.lower()] if known.kind is bool else known.kind(value))
    except (KeyError, ValueError):
        takes = "true or false" if known.kind is bool else " ".join(("a number,", known.allowed)).strip(" ,")
        raise UserError(f"{known.name} = {value[:60]!r}; it takes {takes}") from None
