"""The values that a run would use, and where each comes from: for --print-settings and --scenario X --help."""

from __future__ import annotations

from typing import NamedTuple

from doom_a3c.cli.layout import format_table
from doom_a3c.run.checkpoints.run_record import RunRecord
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import settings_of, to_flat
from doom_a3c.settings.games import GameSettings
from doom_a3c.settings.scenarios import to_plain
from doom_a3c.settings.setting import format_value
from doom_a3c.settings.sources import DEFAULT, find_source, flatten

_TABLES = ("game", "observation", "network")


class Value(NamedTuple):
    """A value of a run in words, and its source."""

    text: str
    source: str


def describe_run(record: RunRecord) -> dict[str, Value]:
    """Returns all values of a run, by path, such as 'training.frames'."""
    flat, tables = to_flat(record.config), to_plain(record.scenario)
    texts = {f"training.{name}": one.format(flat[name]) for name, one in settings_of(Config).items()}
    texts |= {path: format_value(value) for path, value in flatten({table: tables[table] for table in _TABLES})}
    return {path: Value(text, find_source(record.scenario.sources, path)) for path, text in texts.items()}


def format_run(record: RunRecord) -> str:
    """Returns a table of all values of a run, by the tables of a scenario file."""
    rows = [("[{}] {}".format(*path.split(".", 1)), *value) for path, value in describe_run(record).items()]
    return format_table(("setting", "value", "source"), rows, "lll")


def describe_help(record: RunRecord) -> dict[str, str]:
    """Returns the help texts of the flags with a run's values and their sources instead of the defaults, by setting."""
    values = describe_run(record)
    texts = {}
    for table, records in (("training", Config), ("game", GameSettings)):
        for name, one in settings_of(records).items():
            if (value := values.get(f"{table}.{name}")) and value.source != DEFAULT:
                texts[name] = one.make_help(f"{value.text} from {value.source}")
    return texts
