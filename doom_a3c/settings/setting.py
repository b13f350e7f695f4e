"""A setting: its name, type, default, help and range, whatever its source; and the groups of settings."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from doom_a3c.settings.numbers import MAX, parse_number

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list", dict: "a table"}
MAX_TEXT = 1000  # characters of any text
_WORDS = {"None": "unset", "()": "unset", "True": "on", "False": "off"}  # words for defaults in the help


class Group(NamedTuple):
    """A condition under which settings have an effect."""

    words: str  # the condition for users, such as '--engine queue'
    applies: Callable[[Any], bool]  # whether a record of settings meets it


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting as a flag, a key of a scenario file and a key of a checkpoint."""

    name: str
    kind: type
    default: object
    text: str
    unit: str = ""
    low: float | None = None  # the smallest value
    high: float | None = None  # the largest
    above: float | None = None  # an exclusive lower bound
    choices: tuple[str, ...] = ()
    goes_with: Group | None = None
    section: str = "settings"  # of the help
    switch: bool = False  # set by its flag only, without a value
    default_words: str = ""  # in the help, in place of the default
    bare: str = ""  # the value if the flag is given without one
    many: bool = False  # takes several values

    @property
    def flag(self) -> str:
        """The command-line flag, such as '--rollout-length'."""
        return make_flag(self.name)

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
        return self.make_help("" if self.switch else f"default {self.format(self.default)}")

    def make_help(self, value: str) -> str:
        """Returns the help text, with a value in words, the unit, range and group."""
        group = f"goes with {self.goes_with.words}" if self.goes_with else ""
        facts = "; ".join(fact for fact in (value, self.unit, self.allowed, group) if fact)
        return self.text + (f" [{facts}]" if facts else "")

    def format(self, value: object) -> str:
        """Returns a value of this setting in words."""
        if value == self.default and self.default_words:
            return self.default_words
        return _WORDS.get(str(value)) or format_number(value)

    def parse(self, value: Any) -> Any:
        """Returns `value` as this setting's type, see `convert`; None is valid if the setting may be unset.

        Raises:
            ValueError: for a value of another type, or out of range.
        """
        if value is None and self.default is None:
            return None
        if self.many and isinstance(value, str):
            value = (value,)
        if self.many and isinstance(value, list | tuple):
            return tuple(dataclasses.replace(self, many=False).parse(each) for each in value)
        value = convert(value, self.kind, self.unit)
        if type(value) is not self.kind:
            raise ValueError(f"{format_value(value)} is not {KINDS[self.kind]}")
        if isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_TEXT):
            raise ValueError(f"{value[:40]!r} is not one line of printable characters, {MAX_TEXT} at most")
        if isinstance(value, str) and not (value.strip() or self.choices):
            raise ValueError("it is empty")
        if not self._in_range(value):
            raise ValueError(f"{value!r} is not a choice" if self.choices else f"{value!r} is out of range")
        return value

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if isinstance(value, str):
            return True
        if (isinstance(value, float) and not math.isfinite(value)) or abs(value) >= MAX:
            return False
        above_low = (self.low is None or value >= self.low) and (self.above is None or value > self.above)
        return above_low and (self.high is None or value <= self.high)


def convert(value: Any, kind: type, unit: str = "") -> Any:
    """Returns `value` as `kind` if it is a path, a number of the other kind, or a text with one; any other value unchanged.

    Raises:
        ValueError: for a text that is no such number, see `parse_number`.
    """
    if isinstance(value, str) and kind in (int, float):
        return parse_number(value, kind, unit)
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if kind is float and type(value) is int:
        return float(value) if abs(value) < MAX else math.inf if value > 0 else -math.inf
    if kind is int and type(value) is float and value.is_integer() and abs(value) < MAX:
        return int(value)  # TOML and Python have 1e6 as a float
    return value


def format_number(value: object) -> str:
    """Returns an int with separators, such as '1,048,576'; any other value as a plain text."""
    return f"{value:,}" if type(value) is int else str(value)


def make_flag(name: str) -> str:
    """Returns the command-line flag of a setting's name."""
    return "--" + name.rstrip("_").replace("_", "-")  # `from_`, because `from` is a keyword of Python


def format_value(value: object) -> str:
    """Returns a value in a scenario file's notation, such as `true` or `[256]`; in Python's if TOML has none."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
    return text if text.isprintable() else repr(value)


USUAL, OUTPUTS = "common settings", "limits, evaluations and outputs"
OF_QUEUE, OF_CLUSTER = "--engine queue", "--engine cluster"

GAE = Group("--advantage gae", lambda config: config.advantage == "gae")
N_STEP = Group("--advantage n_step", lambda config: config.advantage == "n_step")
CORRECTION = Group("V-trace (--engine queue, --transport rollouts or --epsilon)", lambda config: config.uses_vtrace)
EXPLORATION = Group("--epsilon", lambda config: config.explores)
QUEUE = Group("--engine queue", lambda config: config.engine == "queue")
CLUSTER = Group("--engine cluster", lambda config: config.engine == "cluster")
LOCAL = Group("--engine threads or queue", lambda config: config.engine != "cluster")
REPEATABLE = Group("--engine threads or queue, without --epsilon", lambda config: config.may_repeat)
REPEATED = Group(
    "several updates per rollout: --epochs or --minibatches above 1, no --epsilon, not --engine cluster",
    lambda config: config.updates_per_rollout > 1,
)
SEQUENCES = Group("--minibatches 2 or more, and --engine threads or --no-vtrace", lambda config: config.splits_sequences)
SCALED = Group("rewards that are not normalized (--no-normalize-rewards)", lambda config: not config.normalize_rewards)
GRADIENTS = Group("--engine cluster --transport gradients", lambda config: config.sends_gradients)
WANDB = Group("--logger wandb", lambda config: config.logger == "wandb")
WAITING = Group("--engine queue, or --engine cluster --transport rollouts", lambda config: config.learns_from_queue)
