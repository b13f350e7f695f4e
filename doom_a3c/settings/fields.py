"""The machinery of settings: frozen records that make the flags, the help, the log and the checkpoint.

A `setting` is a dataclass field that knows its help, unit and range. For users settings are flat: a `schedule` is one field
of a record, and three settings. `cli.flags` makes command-line flags of them, `parse_values` checks
values from any source (flag, scenario file, checkpoint), so a limit is written down once.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.renames import explain, new_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list", dict: "a table"}
MAX_TEXT = 1000  # characters of any text
_WORDS = {"None": "unset", "()": "unset", "True": "on", "False": "off"}  # words for defaults in the help
Record = TypeVar("Record", bound="DataclassInstance")


@dataclass(frozen=True)
class Schedule:
    """A number that changes linearly from `start` to `final` and stays there; constant without `final`."""

    start: float
    final: float | None = None
    frames: int | None = None  # duration of the change; None is the whole budget

    def at(self, frames: int, budget: int) -> float:
        """Returns the value after `frames` of a run's `budget` of frames."""
        if self.final is None:
            return self.start
        left = max(0.0, 1.0 - frames / (self.frames or budget))
        return self.final + left * (self.start - self.final)

    def share(self, frames: int, budget: int) -> float:
        """Returns the value after `frames` as a share of the maximum; 1 if the maximum is 0."""
        return self.at(frames, budget) / self.maximum if self.maximum else 1.0

    @property
    def maximum(self) -> float:
        """The larger of both ends."""
        return self.start if self.final is None else max(self.start, self.final)


class Group(NamedTuple):
    """A condition under which settings have an effect."""

    words: str  # the condition for users, such as '--engine queue'
    applies: Callable[[Any], bool]  # whether a record of settings meets it


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting as a flag, a key of a scenario file and a key of a checkpoint."""

    name: str
    kind: type
    default: Any
    text: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    goes_with: Group | None = None
    section: str = "settings"
    switch: bool = False
    default_words: str = ""
    bare: str = ""
    many: bool = False

    @property
    def flag(self) -> str:
        """The command-line flag, such as '--rollout-length'."""
        return _flag(self.name)

    @property
    def allowed(self) -> str:
        """The range in words, such as '0 to 1' or '1 or more'; '' if any value is allowed."""
        if self.choices:
            return " or ".join(self.choices)
        if self.above is not None:
            return f"above {format_number(self.above)}" + (
                f", to {format_number(self.high)}" if self.high is not None else ""
            )
        if self.low is not None:
            low = format_number(self.low)
            return f"{low} to {format_number(self.high)}" if self.high is not None else f"{low} or more"
        return ""

    @property
    def help(self) -> str:
        """The help text, with the default, unit, range and group."""
        value = self.default_words or _WORDS.get(str(self.default)) or format_number(self.default)
        default = "" if self.switch else f"default {value}"
        group = f"goes with {self.goes_with.words}" if self.goes_with else ""
        facts = "; ".join(fact for fact in (default, self.unit, self.allowed, group) if fact)
        return self.text + (f" [{facts}]" if facts else "")

    def parse(self, value: Any) -> Any:
        """Returns `value` as this setting's type; an int is a valid float, and None is valid if the setting may be unset.

        Raises:
            ValueError: for a value of another type, or out of range.
        """
        if value is None and self.default is None:
            return None
        if self.many and isinstance(value, str):
            value = (value,)
        if self.many and isinstance(value, list | tuple):
            return tuple(dataclasses.replace(self, many=False).parse(each) for each in value)
        if self.kind is float and type(value) is int:
            value = float(value) if abs(value) < 2**63 else (math.inf if value > 0 else -math.inf)
        if type(value) is not self.kind:
            raise ValueError(f"{format_value(value)} is not {KINDS[self.kind]}")
        if isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_TEXT):
            raise ValueError(f"{value[:40]!r} is not one line of printable characters, {MAX_TEXT} at most")
        if isinstance(value, str) and not (value.strip() or self.choices):
            raise ValueError("it is empty")
        if not self._in_range(value):
            raise ValueError(f"there is no {value!r}" if self.choices else f"{value!r} is out of range")
        return value

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if isinstance(value, str):
            return True
        if (isinstance(value, float) and not math.isfinite(value)) or abs(value) >= 2**63:
            return False
        above_low = (self.low is None or value >= self.low) and (self.above is None or value > self.above)
        return above_low and (self.high is None or value <= self.high)


def format_number(value: Any) -> str:
    """Returns an int with separators, such as '1,048,576'; any other value as a plain text."""
    return f"{value:,}" if type(value) is int else str(value)


def _flag(name: str) -> str:
    return "--" + name.rstrip("_").replace("_", "-")  # `from_` stands for a word of Python's


def format_value(value: Any) -> str:
    """Returns a value in a scenario file's notation, such as `true` or `[256]`; in Python's if TOML has none."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
    return text if text.isprintable() else repr(value)


def setting(
    default: Any,
    text: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    goes_with: Group | None = None,
    section: str = "settings",
    switch: bool = False,
    default_words: str = "",
    bare: str = "",
    many: bool = False,
) -> Any:
    """Returns a dataclass field with help text, unit, allowed range (`low` and `high` inclusive, `above` not) and group.

    `section` is its part of the help; a `switch` is set by its flag only and takes no value; `default_words` replace the
    default in the help; `bare` is the value of the flag without one; a setting with `many` takes several values.
    """
    limits = {"low": low, "high": high, "above": above, "choices": choices}
    help_only = {"section": section, "switch": switch, "default_words": default_words, "bare": bare, "many": many}
    metadata = {"text": text, "unit": unit, "goes_with": goes_with, **limits, **help_only}
    return dataclasses.field(default=default, metadata=metadata)


def schedule(
    start: float, text: str, *, low: float | None = None, high: float | None = None, above: float | None = None
) -> Any:
    """Returns a dataclass field with a `Schedule`, constant by default; users see three settings.

    These are NAME, final_NAME and NAME_frames. A schedule may end at its lower limit even if it must start `above` it.
    """
    return dataclasses.field(default=Schedule(start), metadata={"text": text, "low": low, "high": high, "above": above})


@functools.cache
def settings_of(record: type) -> Mapping[str, Setting]:
    """Returns the settings of a record by name: one per field, three per `Schedule`."""
    kinds = {name: _plain_kind(hint) for name, hint in get_type_hints(record).items()}
    flat: dict[str, Setting] = {}
    for field in dataclasses.fields(record):
        if isinstance(field.default, Schedule):
            flat |= _settings_of_schedule(field.name, field.default, **field.metadata)
        else:
            flat[field.name] = Setting(name=field.name, kind=kinds[field.name], default=field.default, **field.metadata)
    return flat


def _plain_kind(hint: Any) -> Any:
    """Returns a setting's type without None: float for `float | None`."""
    arms = [arm for arm in getattr(hint, "__args__", ()) if arm is not type(None)]
    return arms[0] if arms else hint


def _settings_of_schedule(
    name: str, default: Schedule, text: str, low: float | None, high: float | None, above: float | None
) -> dict[str, Setting]:
    names = _names_of_parts(name)
    flags = {part: _flag(flat) for part, flat in names.items()}
    parts = (
        Setting(
            name=names["start"],
            kind=float,
            default=default.start,
            text=f"{text}, at frame 0",
            low=low,
            high=high,
            above=above,
        ),
        Setting(
            name=names["final"],
            kind=float,
            default=default.final,
            text=f"Final value of {flags['start']}, reached linearly within {flags['frames']}; unset keeps it constant",
            low=low if above is None else above,
            high=high,
        ),
        Setting(
            name=names["frames"],
            kind=int,
            default=default.frames,
            text=f"Frames until {flags['final']} is reached; unset is the whole budget",
            unit="frames",
            low=1,
            goes_with=Group(flags["final"], lambda record: getattr(record, name).final is not None),
        ),
    )
    return {part.name: part for part in parts}


def _names_of_parts(name: str) -> dict[str, str]:
    """Returns the settings' names of a schedule's fields."""
    return {"start": name, "final": f"final_{name}", "frames": f"{name}_frames"}


def parse_values(record: type[Record], values: Mapping[str, Any], source: str) -> Record:
    """Builds `record` from flat `values`, naming `source` in the UserError that a bad key, type or range raises."""
    known = settings_of(record)
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{source}: unknown setting {key!r}{hint(key, known)}")
        try:
            checked[key] = known[key].parse(value)
        except ValueError as error:
            kind = "" if known[key].choices else KINDS[known[key].kind]
            takes = ", ".join(filter(None, (kind, known[key].allowed)))
            what = known[key].flag if source == "flags" else f"{source}: {key}"
            raise UserError(f"{what}: {error}; it takes {takes}") from None
    for field in dataclasses.fields(record):
        if isinstance(field.default, Schedule):
            names = _names_of_parts(field.name).items()
            parts = {part: checked.pop(name) for part, name in names if name in checked}
            checked[field.name] = dataclasses.replace(field.default, **parts)
    return record(**checked)


def to_flat(record: DataclassInstance) -> dict[str, Any]:
    """Returns the flat values of a record, for JSON; `parse_values` builds an equal one from them."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Schedule):
            flat |= {name: getattr(value, part) for part, name in _names_of_parts(field.name).items()}
        else:
            flat[field.name] = value
    return flat


def parse_int(value: Any, name: str, low: int = 0, high: int = 2**62) -> int:
    """Returns `value` if it is an int in that range; raises ValueError with the `name` otherwise."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {str(value)[:40]}")
    return value


def parse_finite(value: Any, name: str) -> float:
    """Returns `value` as a float if it is a finite number; raises ValueError with the `name` otherwise."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} is {str(value)[:40]}")
    return float(value)


def select(values: Mapping[str, Any], record: type) -> dict[str, Any]:
    """Returns the `values` of settings of `record`."""
    return {key: value for key, value in values.items() if key in settings_of(record)}


def hint(word: str, known: Iterable[str]) -> str:
    """Returns ': its name here is X' for another program's name or a former one of the known X, else as `suggest`."""
    known = list(known)
    new = new_name(word, known)
    return f": its name here is {new}{explain(word)}" if new else suggest(word, known)
