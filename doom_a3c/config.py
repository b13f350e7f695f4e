"""The settings of a run: one frozen record that makes the flags, the help, the log and the checkpoint.

A `setting` is a dataclass field that knows its help, unit and range. `add_flags` turns the settings of a record
into command-line flags, `validated` checks values from any source (flag, scenario file, checkpoint), so a limit
is written down once.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides how a run trains. Scenario files and flags override the defaults below."""

    scenario: str = setting("basic", "what to play: a name from --list-scenarios, or a path to a .wad, .cfg or .toml")
    engine: str = setting("threads", "how workers and learner are put together", choices=("threads",))
    workers: int = setting(0, "worker threads; 0 means one per CPU", unit="threads", low=0, high=1024)
    games: int = setting(16, "games that each worker plays at once", unit="games per worker", low=1, high=4096)
    rollout_length: int = setting(30, "decisions of each game per update", unit="decisions", low=1, high=1024)
    frame_skip: int = setting(4, "game tics that one decision lasts; rewards are summed", unit="tics", low=1, high=64)
    discount: float = setting(0.99, "gamma, the discount of rewards per decision", low=0, high=1)
    gae_lambda: float = setting(1.0, "lambda of generalised advantage estimation; 1 is plain n-step returns", low=0, high=1)
    normalize_advantages: bool = setting(
        False, "divide the advantages of a rollout by their standard deviation, where that is above 0.1"
    )
    learning_rate: float = setting(1e-4, "step size of the optimizer at frame 0", above=0, high=1)
    final_learning_rate: float | None = setting(
        None, "step size at the frame budget, reached linearly; unset keeps --learning-rate", low=0, high=1
    )
    optimizer: str = setting("adam", "rmsprop is the one of the A3C paper, shared statistics", choices=("adam", "rmsprop"))
    entropy_cost: float = setting(0.01, "weight of the entropy bonus in the loss", low=0)
    value_cost: float = setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = setting(40.0, "global norm that gradients are clipped at", above=0)
    reward_scale: float = setting(1.0, "factor on rewards for learning; scores are reported unscaled", above=0)
    seed: int = setting(0, "seed of weights, games and action sampling", low=0, high=2**31 - 1)
    frames: int = setting(
        10_000_000, "budget: the run ends after this many game tics, skipped ones counted", unit="frames", low=1
    )
    minutes: float | None = setting(None, "the run ends after this long", unit="minutes", above=0)
    target_score: float | None = setting(
        None, "the run ends when the mean score of the last 100 training episodes reaches this"
    )
    models_dir: str = setting("models", "folder of the checkpoints")
    frames_dir: str = setting("frames", "folder of the gifs")
    logs_dir: str = setting("logs", "folder of the TensorBoard logs")
    gif_every: int = setting(
        25,
        "record every n-th episode of the first game of each worker as a gif, one a minute at most; 0 is never",
        unit="episodes",
        low=0,
    )
    checkpoint_every: float = setting(60.0, "time between two checkpoints", unit="seconds", above=0)
    evaluate_every: float = setting(
        30.0, "time between the ends and starts of two evaluations; 0 leaves the final one", unit="seconds", low=0
    )
    evaluation_episodes: int = setting(
        20, "episodes of an evaluation, for the greedy and the sampled policy each", unit="episodes", low=1, high=10_000
    )


def cpu_count() -> int:
    """Returns the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(config: Config) -> int:
    """Returns the number of worker threads, with 0 standing for one per CPU."""
    return config.workers or cpu_count()


def learning_rate(config: Config, frames: int) -> float:
    """Returns the step size after that many frames: linear from `learning_rate` to `final_learning_rate` at the budget."""
    if config.final_learning_rate is None:
        return config.learning_rate
    left = max(0.0, 1.0 - frames / config.frames)
    return config.final_learning_rate + left * (config.learning_rate - config.final_learning_rate)


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
