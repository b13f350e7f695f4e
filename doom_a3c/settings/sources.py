"""Where the values of a run come from: tables in layers, of which the later ones override the earlier ones.

A path names a value or a table, such as 'training.learning_rate' or 'game.settings'. Values and sources are merged from the
same layers, so that a source cannot differ from what a run uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

DEFAULT, FLAG, CHECKPOINT = "default", "flag", "checkpoint"


class Layer(NamedTuple):
    """The tables of one source."""

    source: str
    tables: Mapping[str, Any]


def merge(layers: Sequence[Layer]) -> dict[str, Any]:
    """Returns the values of all layers, table by table."""
    return reduce(_merge, (layer.tables for layer in layers), {})


def find_sources(layers: Sequence[Layer]) -> dict[str, str]:
    """Returns the source of each value of `merge`, by path."""
    sources: dict[str, str] = {}
    for source, tables in layers:
        sources = override(sources, (path for path, _ in flatten(tables)), source)
    return sources


def override(sources: Mapping[str, str], paths: Iterable[str], source: str) -> dict[str, str]:
    """Returns the sources after another source has set the values at some paths."""
    new = dict.fromkeys(paths, source)
    return {path: old for path, old in sources.items() if not any(above in new for above in _list_above(path))} | new


def find_source(sources: Mapping[str, str], path: str) -> str:
    """Returns the source of the value at a path: its own, or that of the table it is in; else it is a default."""
    return next((sources[above] for above in _list_above(path) if above in sources), DEFAULT)


def flatten(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields path and value of everything in nested tables that is not itself a table."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _list_above(path: str) -> list[str]:
    """Returns a path and the paths of the tables it is in, the innermost first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    tables = {
        key: _merge(base[key], value)
        for key, value in own.items()
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
    }
    return {**base, **own, **tables}
