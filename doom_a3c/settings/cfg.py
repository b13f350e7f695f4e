"""ViZDoom's cfg files, read into the [game] table of a scenario.

ViZDoom could read them itself, but then a scenario would be a file and not data, and a checkpoint would name a file that
may say anything: which program the engine is, for one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.fields import Setting, settings_of
from doom_a3c.settings.games import RULE, shipped_folder
from doom_a3c.settings.inputs import exists, read_text
from doom_a3c.settings.vizdoom import VizdoomSettings

# What the agent decides itself: how it is played, and what is drawn of it.
_IGNORED = re.compile(
    r"mode|seed|screen(resolution|format)|windowvisible|consoleenabled|available\w*variables|sound\w*|audio\w*|automap\w*"
    r"|(depth|labels|notifications)buffer\w*|(objects|sectors)infoenabled"
)
_REFUSED = re.compile(r"vizdoompath|doomconfigpath")
_FILES = {"doomscenariopath": "wad", "doomgamepath": "iwad"}
_COMMENT, _COMMENT_AFTER_FILE = re.compile(r"#.*"), re.compile(r"\s+#.*")  # a file may be called hash#tag.wad
_FILE_LINE = re.compile(r"\s*doom_?(scenario|game)_?path\s*=\s*[^#\s]", re.IGNORECASE)
_LINE = re.compile(r"(\w+)\s*(\+?)=\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9.]{1,30}([eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def read_cfg(path: Path) -> dict[str, Any]:
    """Returns the [game] table that a cfg file stands for: `wad`, `iwad`, `map`, `available_buttons`, `rules` and
    `settings`, those that it has.

    Raises:
        UserError: naming the file, and the line where there is one, if it is not understood.
    """
    table: dict[str, Any] = {"settings": {}}
    for number, key, more, value in _read_assignments(path):
        where = f"{path}, line {number}"
        plain_key = key.lower().replace("_", "")
        if plain_key == "availablebuttons":
            before = table.get("available_buttons", ()) if more else ()
            table["available_buttons"] = list(dict.fromkeys((*before, *_parse_names(value, where))))
        elif plain_key == "doommap":
            table["map"] = value
        elif plain_key in _FILES:
            table[_FILES[plain_key]] = _parse_file(path, value)
        elif plain_key == "gameargs":
            table["rules"] = {**(table.get("rules", {}) if more else {}), **_parse_rules(value, where)}
        elif _REFUSED.fullmatch(plain_key):
            raise UserError(f"{where}: {key} is not taken, as it could start any program; leave it out")
        elif more:
            raise UserError(f"{where}: += adds to lists, and {key} is none; use =")
        elif not _IGNORED.fullmatch(plain_key):
            name, known = _check_known(key, where)
            table["settings"][name] = _parse_value(known, value, where)
    return table


def _read_assignments(path: Path) -> list[tuple[int, str, bool, str]]:
    """Returns line number, key, whether it adds, and value of each assignment; lists in braces may span lines."""
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
            raise UserError(f"{path}, line {first}: {unfinished[:60]!r} is not a setting, such as living_reward = -1")
        found.append((first, match[1], bool(match[2]), match[3].strip()))
        unfinished = ""
    if unfinished:
        raise UserError(f"{path}, line {first}: {unfinished[:60]!r} does not end")
    return found


def _parse_names(value: str, where: str) -> list[str]:
    if not re.fullmatch(r"\{[\w\s]*\}", value):
        raise UserError(f"{where}: a list looks like {{ MOVE_LEFT ATTACK }}")
    return [name.upper() for name in value[1:-1].split()]


def _parse_file(path: Path, value: str) -> str:
    """Returns a file that a cfg names: as ViZDoom does, beside the cfg first; one that it ships keeps its bare name.

    What follows a # is a comment, unless it belongs to the name, as in hash#tag.wad, and in level #1.wad where that exists.
    """
    if not exists(path.parent / value):
        value = _COMMENT_AFTER_FILE.sub("", value)
    beside = path.parent / value
    return value if path.parent == shipped_folder() or not exists(beside) else str(beside)


def _parse_rules(arguments: str, where: str) -> dict[str, int]:
    """Returns the rules among the engine's arguments, which is all that a game needs of those."""
    words = arguments.split()
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    numbers = all(re.fullmatch(r"[0-9]{1,9}", number) for number in pairs.values())
    if len(words) % 2 or not numbers or not all(name[:1] == "+" and RULE.fullmatch(name[1:]) for name in pairs):
        raise UserError(f"{where}: game_args takes only rules, such as +sv_noautoaim 1: other arguments could do anything")
    return {name[1:]: int(number) for name, number in pairs.items()}


def _check_known(key: str, where: str) -> tuple[str, Setting]:
    for name, known in settings_of(VizdoomSettings).items():
        if name.replace("_", "") == key.lower().replace("_", ""):
            return name, known
    raise UserError(f"{where}: unknown setting {key!r}{suggest(key, settings_of(VizdoomSettings))}")


def _parse_value(known: Setting, value: str, where: str) -> Any:
    try:
        if known.kind is not bool and not _NUMBER.fullmatch(value):
            raise ValueError
        return known.parse(_WORDS[value.lower()] if known.kind is bool else known.kind(value))
    except (KeyError, ValueError):
        takes = "true or false" if known.kind is bool else " ".join(("a number,", known.allowed)).strip(" ,")
        raise UserError(f"{where}: {known.name} = {value[:60]!r}; it takes {takes}") from None
