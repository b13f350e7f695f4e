"""Records of settings: frozen dataclasses from which flags, help, logs and checkpoints are made.

A `setting` is a dataclass field with its help, unit and range. Users see flat settings: a `schedule` is one field of a
record, and three settings. `cli.flags` turns them into command-line flags, and `parse_values` checks values from any
source (flag, scenario file, checkpoint), so that each limit is written once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.renames import describe_elsewhere, find_new_name, format_note, is_removed
from doom_a3c.settings.setting import KINDS, Group, Setting, make_flag

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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


def setting(default: Any, text: str, **facts: Any) -> Any:
    """Returns a dataclass field with a help text and other `facts` of a `Setting`, such as its unit and range."""
    return dataclasses.field(default=default, metadata={"text": text, **facts})


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
    kinds = {name: _strip_none(hint) for name, hint in get_type_hints(record).items()}
    flat: dict[str, Setting] = {}
    for field in dataclasses.fields(record):
        if isinstance(field.default, Schedule):
            flat |= _split_schedule(field.name, field.default, **field.metadata)
        else:
            flat[field.name] = Setting(name=field.name, kind=kinds[field.name], default=field.default, **field.metadata)
    return flat


def _strip_none(hint: Any) -> Any:
    """Returns a setting's type without None: float for `float | None`."""
    arms = [arm for arm in getattr(hint, "__args__", ()) if arm is not type(None)]
    return arms[0] if arms else hint


def _split_schedule(
    name: str, default: Schedule, text: str, low: float | None, high: float | None, above: float | None
) -> dict[str, Setting]:
    """Returns the three settings of a schedule by name."""
    names = _name_parts(name)
    flags = {part: make_flag(flat) for part, flat in names.items()}
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


def _name_parts(name: str) -> dict[str, str]:
    """Returns the names of a schedule's settings by its fields."""
    return {"start": name, "final": f"final_{name}", "frames": f"{name}_frames"}


def parse_values(record: type[Record], values: Mapping[str, Any], source: str) -> Record:
    """Builds `record` from flat `values`, naming `source` in the UserError that a bad key, type or range raises."""
    checked = parse_flat(record, values, source)
    for field in dataclasses.fields(record):
        if isinstance(field.default, Schedule):
            names = _name_parts(field.name).items()
            parts = {part: checked.pop(name) for part, name in names if name in checked}
            checked[field.name] = dataclasses.replace(field.default, **parts)
    return record(**checked)


def parse_flat(record: type, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns flat `values` of settings of `record` as their types; raises UserError as `parse_values` does."""
    known = settings_of(record)
    for key in values:
        if key not in known:
            raise UserError(f"{source}: unknown setting {key!r}{hint(key, known)}")
    return {key: parse_setting(known[key], value, source) for key, value in values.items()}


def parse_setting(one: Setting, value: Any, source: str) -> Any:
    """Returns `value` as the setting's type; raises UserError as `parse_values` does."""
    try:
        return one.parse(value)
    except ValueError as error:
        takes = ", ".join(filter(None, ("" if one.choices else KINDS[one.kind], one.allowed)))
        subject = one.flag if source == "flags" else f"{source}: {one.name}"
        raise UserError(f"{subject}: {error}; it takes {takes}") from None


def to_flat(record: DataclassInstance) -> dict[str, Any]:
    """Returns the flat values of a record, for JSON; `parse_values` builds an equal one from them."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Schedule):
            flat |= {name: getattr(value, part) for part, name in _name_parts(field.name).items()}
        else:
            flat[field.name] = value
    return flat


def parse_int(value: object, name: str, low: int = 0, high: int = 2**62) -> int:
    """Returns `value` if it is an int in that range; raises ValueError with the `name` otherwise."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {str(value)[:40]}")
    return value


def parse_finite(value: object, name: str) -> float:
    """Returns `value` as a float if it is a finite number; raises ValueError with the `name` otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} is {str(value)[:40]}")
    return float(value)


def select(values: Mapping[str, Any], record: type) -> dict[str, Any]:
    """Returns the `values` of settings of `record`."""
    return {key: value for key, value in values.items() if key in settings_of(record)}


def hint(word: str, known: Iterable[str]) -> str:
    """Returns ': its name here is X' for a former or foreign name of a known X, ': it was removed', or a suggestion."""
    known = list(known)
    if is_removed(word):
        return ": it was removed, as no game gained by it"
    if new := find_new_name(word, known):
        return f": its name here is {new.name}{format_note(new)}"
    return describe_elsewhere(word) or suggest(word, known)
