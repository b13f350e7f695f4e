"""Reads the score curve of a run, and its game, from the folders that it has written."""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from doom_a3c.record.metrics.counters import WINDOW
from doom_a3c.record.metrics.csv_logger import TABLE
from doom_a3c.record.metrics.tags import make_tag
from doom_a3c.run.checkpoints.run_record import find_scenario_name
from doom_a3c.settings import catalog
from doom_a3c.settings.errors import UserError

_TAG = make_tag("reward")


class Curve(NamedTuple):
    """The running mean score of a run over its frames."""

    frames: Sequence[int]
    means: Sequence[float]


class Run(NamedTuple):
    """A run as its folders show it."""

    name: str
    label: str  # the name without seed and time
    game: str
    curve: Curve | None


_Points = list[tuple[float, float]]  # frames and means


def read_run(name: str, folders: Sequence[Path]) -> Run:
    """Reads a run from its folders; its curve is the one that reaches the most frames.

    The game is read from its log, else from the scenario in the run's name; failing both, it is called by that name.
    """
    label, game, curves = find_scenario_name(name), None, []
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        points, settings = _read_log(folder / "global")
        curves += [_make_curve(_read_scores(folder / "scores.csv")), _make_curve(points)]
        game = game or _find_game(settings)
    best = max(filter(None, curves), key=lambda curve: curve.frames[-1], default=None)
    return Run(name, label, game or _find_game_of_scenario(label), best)


def _find_game(settings: Any) -> str | None:
    """Returns the game in the settings of a log, None if they name none."""
    with contextlib.suppress(KeyError, TypeError):
        game = settings["tables"]["game"]
        return str(game.get("id") or Path(game.get("wad") or game["iwad"]).name)
    return None


def _find_game_of_scenario(name: str) -> str:
    with contextlib.suppress(UserError):
        return catalog.find(name).game.title
    return name


def _make_curve(points: _Points) -> Curve | None:
    kept: list[tuple[int, float]] = []
    for frames, mean in points:
        if math.isfinite(frames) and math.isfinite(mean):
            while kept and kept[-1][0] >= frames:  # of a killed session, which a resumed one played again
                kept.pop()
            kept.append((int(frames), mean))
    return Curve([frames for frames, _ in kept], [mean for _, mean in kept]) if len(kept) > 1 else None


def _read_scores(table: Path) -> _Points:
    """Reads the table that a run leaves beside its gifs; like a log's, its points start at the 100th episode."""
    rows = _read_table(table, "table of a run's scores", ("episode", "frames", "mean"))
    return [(frames, mean) for episode, frames, mean in rows if episode >= WINDOW]  # older tables have earlier means


def _read_log(log: Path) -> tuple[_Points, Any]:
    """Reads the curve and the newest settings of a log; there may be none."""
    if (log / TABLE).is_file():
        rows = _read_table(log / TABLE, "log of a run", ("count", "value"), _TAG)
        settings = log / "settings.json"
        return [(count, value) for count, value in rows], _parse(settings.read_text() if settings.is_file() else "")
    if not log.is_dir():
        return [], None
    # Late: these load TensorFlow if it is installed.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # a resumed run has one graph per session
    events: Any = EventAccumulator(str(log), size_guidance={"tensors": 0}).Reload()
    curve, texts = ([*events.Tensors(tag)] if tag in events.Tags()["tensors"] else [] for tag in (_TAG, "config"))
    text = make_ndarray(texts[-1].tensor_proto).item().decode() if texts else ""
    return [(event.step, float(make_ndarray(event.tensor_proto))) for event in curve], _parse(text)


def _parse(text: str) -> Any:
    """Returns the settings in a file, or in a text for TensorBoard; None if there are none."""
    with contextlib.suppress(ValueError):
        return json.loads(text.removeprefix("```json").removesuffix("```"))
    return None


def _read_table(table: Path, kind: str, columns: Sequence[str], metric: str | None = None) -> list[list[float]]:
    """Reads columns of a table, from the rows that have them all; with a `metric`, only from its rows."""
    if not table.is_file():
        return []
    try:
        with table.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if metric is None or row["metric"] == metric]
            return [[float(row[name]) for name in columns] for row in rows if all(row[name] for name in columns)]
    except (KeyError, TypeError, ValueError, OSError, csv.Error) as error:
        raise UserError(f"--compare-runs {table} is not a {kind}") from error
