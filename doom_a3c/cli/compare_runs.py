"""train.py --compare-runs: score curves of several runs in one figure, grouped by everything but the seed."""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from doom_a3c.record.files import output_folder
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.csv_logger import TABLE
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.record.metrics.tags import make_tag
from doom_a3c.run.checkpoints.run_record import find_scenario_name
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.inputs import expand

_TAG = make_tag("reward")


class Curve(NamedTuple):
    """The running mean score of a run over its frames."""

    run: str
    frames: Sequence[float]
    means: Sequence[float]


def compare_runs(paths: Sequence[str], frames_dir: str) -> str:
    """Draws the curves to `comparison.png` in `frames_dir` and returns a table of the final scores.

    A path is a folder of a run's logs, of its gifs with `scores.csv`, or a folder of such folders.

    Raises:
        UserError: for a path that is no folder, or if no run has a curve.
    """
    found = [_read_curves(expand(path)) for path in paths]
    curves = list({curve.run: curve for some, _ in found for curve in some}.values())  # a run may be named twice
    short = [name for _, names in found for name in names]
    if not curves:
        raise UserError(f"--compare-runs {' '.join(paths)}: no run has a curve, which needs 100 episodes and a log")
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(find_scenario_name(curve.run), []).append(curve)
    target = output_folder(frames_dir, "--frames-dir") / "comparison.png"
    drawn = {name: [(curve.frames, curve.means) for curve in group] for name, group in groups.items()}
    figures.save_png(figures.draw_runs("mean score", drawn), target)
    width = max(5, *map(len, groups))
    lines = [f"{'name':{width}}  runs  last mean of 100 episodes or fewer, by run"]
    for name, group in groups.items():
        lines.append(f"{name:{width}}  {len(group):4d}  {_format_ends(group)}")
    if short:
        lines.append(f"left out, with no curve yet: {', '.join(short)}")
    return "\n".join([*lines, f"curves: {target}"])


def _format_ends(group: Sequence[Curve]) -> str:
    ends = [curve.means[-1] for curve in group]
    if len(ends) == 1:
        return format_score(ends[0])
    mean, std = format_score(float(np.mean(ends))), format_score(float(np.std(ends)))
    return f"{mean} +- {std} ({', '.join(map(format_score, ends))})"


def _read_curves(path: Path) -> tuple[list[Curve], list[str]]:
    """Reads the curve of a run, or of each run in a folder; returns the curves, and the names of runs without one."""
    if not path.is_dir():
        raise UserError(f"--compare-runs {path}: there is no such folder; name folders of runs, such as logs/RUN")
    for folders in ([path], sorted(each for each in path.iterdir() if each.is_dir())):
        curves = {folder.name: _read_curve(folder) for folder in folders}
        if found := [curve for curve in curves.values() if curve]:
            return found, [name for name, curve in curves.items() if curve is None]
    return [], [path.name]


def _read_curve(folder: Path) -> Curve | None:
    """Reads the curve of a run from its table or log; returns None if there is none."""
    table, log = folder / "scores.csv", folder / "global"
    if table.is_file():
        points = _read_table(table, "table of a run's scores", "frames", "mean")
    elif (log / TABLE).is_file():
        points = _read_table(log / TABLE, "log of a run", "count", "value", _TAG)
    else:
        points = _read_log(log) if log.is_dir() else []
    newest = {frames: mean for frames, mean in points if math.isfinite(frames) and math.isfinite(mean)}
    if len(newest) < 2:
        return None
    frames = sorted(newest)  # a resumed run repeats some frames
    return Curve(folder.resolve().name, frames, [newest[each] for each in frames])


def _read_table(table: Path, kind: str, frames: str, mean: str, metric: str | None = None) -> list[tuple[float, float]]:
    """Reads two columns of a table; of a table with several metrics, only the rows of `metric`."""
    try:
        with table.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if metric is None or (row["metric"] == metric and row[mean])]
            return [(float(row[frames]), float(row[mean])) for row in rows]  # the last line of a log may be incomplete
    except (KeyError, TypeError, ValueError, OSError, csv.Error) as error:
        raise UserError(f"--compare-runs {table} is not a {kind}") from error


def _read_log(log: Path) -> list[tuple[float, float]]:
    # Late: these load TensorFlow if it is installed.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # a resumed run has one graph per session
    events: Any = EventAccumulator(str(log), size_guidance={"tensors": 0}).Reload()
    if _TAG not in events.Tags()["tensors"]:
        return []
    return [(float(event.step), float(make_ndarray(event.tensor_proto))) for event in events.Tensors(_TAG)]
