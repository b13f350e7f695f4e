"""The machinery of settings: frozen records that make the flags, the help, the log and the checkpoint.

A `setting` is a dataclass field that knows its help, unit and range. `flag_parser` turns the settings of a record
into command-line flags, `validated` checks values from any source (flag, scenario file, checkpoint), so a limit
is written down once.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar, get_type_hints


class UserError(Exception):
    """A mistake of the user's: the command line prints it as one line and exits with status 2."""


Record = TypeVar("Record")


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ' (did you mean X?)' for the known word most like `word`, or '' where none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def setting(
    default: Any,
    text: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Returns a dataclass field with help text, unit and allowed range (`low` and `high` inclusive, `above` not)."""
    metadata = {"text": text, "unit": unit, "low": low, "high": high, "above": above, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def allowed(field: dataclasses.Field[Any]) -> str:
    """Returns the range of a setting in words, such as '0 to 1' or '1 or more', '' where anything goes."""
    low, high, above = (field.metadata[key] for key in ("low", "high", "above"))
    if field.metadata["choices"]:
        return " or ".join(field.metadata["choices"])
    if above is not None:
        return f"above {above:g}" + (f", to {high:g}" if high is not None else "")
    if low is not None:
        return f"{low:g} to {high:g}" if high is not None else f"{low:g} or more"
    return ""


def _in_range(field: dataclasses.Field[Any], value: Any) -> bool:
    low, high, above, choices = (field.metadata[key] for key in ("low", "high", "above", "choices"))
    if choices:
        return value in choices
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return (low is None or value >= low) and (high is None or value <= high) and (above is None or value > above)


def _converted(field: dataclasses.Field[Any], kind: type, value: Any) -> Any:
    """Returns `value` as `kind`; an int is a good float, anything else of another type raises ValueError."""
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 2**63 else math.copysign(math.inf, value)
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    if not _in_range(field, value):
        raise ValueError(f"{value!r} is out of range")
    return value


def kinds(record: type) -> dict[str, type]:
    """Returns the plain type of every field of a record (`float | None` counts as float)."""
    hints = get_type_hints(record)
    return {
        name: next((arm for arm in getattr(hint, "__args__", ()) if arm is not type(None)), hint)
        if type(None) in getattr(hint, "__args__", ())
        else hint
        for name, hint in hints.items()
    }


def validated(record: type[Record], values: Mapping[str, Any], source: str) -> Record:
    """Builds `record` from `values`, naming `source` in the UserError that a bad key, type or range raises."""
    fields = {field.name: field for field in dataclasses.fields(record)}  # type: ignore[arg-type]  # any dataclass
    types = kinds(record)
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise UserError(f"{source}: unknown setting {key!r}{nearest(key, fields)}")
        if value is None and fields[key].default is None:
            checked[key] = None
            continue
        try:
            checked[key] = _converted(fields[key], types[key], value)
        except ValueError as error:
            wanted = allowed(fields[key])
            rest = f", {wanted}" if wanted else ""
            raise UserError(f"{source}: {key}: {error}; it takes a {types[key].__name__}{rest}") from None
    return record(**checked)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, with the nearest known flag."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError, where argparse would print the usage and exit."""
        raise UserError(message)

    def parse(self, arguments: list[str] | None) -> dict[str, Any]:
        """Returns the given flags alone, by setting name; raises UserError for one that does not exist."""
        values, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            raise UserError(f"unknown argument {unknown[0]}{nearest(unknown[0].split('=')[0], flags)}; --help lists all")
        return vars(values)


def flag_parser(program: str, description: str, *records: type) -> Parser:
    """Returns a parser with one flag per setting of `records`; flags that are not typed stay out of its result."""
    parser = Parser(prog=program, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for record in records:
        for field in dataclasses.fields(record):
            default = "" if field.default in (None, "", False) else f"default {field.default}"
            facts = "; ".join(fact for fact in (default, field.metadata["unit"], allowed(field)) if fact)
            text = field.metadata["text"] + (f" [{facts}]" if facts else "")
            flag = "--" + field.name.replace("_", "-")
            kind = kinds(record)[field.name]
            if kind is bool:
                parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text.replace("%", "%%"))
            else:
                metavar = kind.__name__.upper() if not field.metadata["choices"] else "NAME"
                parser.add_argument(flag, type=kind, metavar=metavar, help=text.replace("%", "%%"))
    return parser


def select(values: Mapping[str, Any], record: type) -> dict[str, Any]:
    """Returns the items of `values` that are fields of `record`."""
    names = {field.name for field in dataclasses.fields(record)}
    return {key: value for key, value in values.items() if key in names}
