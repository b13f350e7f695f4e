"""train.py --compare-runs: score curves of runs in one picture with a pane for each game, grouped by all but the seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from doom_a3c.cli.layout import format_table
from doom_a3c.cli.run_curves import Curve, Run, read_run
from doom_a3c.record.files import output_folder, write_table
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.run_record import is_run_name
from doom_a3c.run.checkpoints.runs import match_names
from doom_a3c.settings.errors import UserError, shorten_list
from doom_a3c.settings.inputs import expand

_MAX_NAMES = 8  # listed in a message
_Groups = dict[str, dict[str, list[Curve]]]  # by game and name


def compare_runs(words: Sequence[str], frames_dir: str, logs_dir: str = "logs", models_dir: str = "models") -> str:
    """Draws the curves to `comparison.png` in `frames_dir`; returns a table of the final scores, and writes one beside it.

    A word is the name of a run or the beginning of one, a folder of a run, or a folder of such folders. It does not matter
    which of a run's folders a word names.

    Raises:
        UserError: for an unknown run, or if no run has a curve.
    """
    places = [expand(place) for place in (logs_dir, frames_dir, models_dir)]
    runs = {run.name: run for word in words for run in _find_runs(word, places)}  # a run may be named twice
    groups: _Groups = {}
    for run in runs.values():
        if run.curve:
            groups.setdefault(run.game, {}).setdefault(run.label, []).append(run.curve)
    if not groups:
        raise UserError(f"--compare-runs {' '.join(words)}: no run has a curve, which needs 100 episodes and a log")
    target = output_folder(frames_dir, "--frames-dir") / "comparison.png"
    figures.save_png(figures.draw_runs(groups), target)
    ends = [(*run[:3], run.curve.frames[-1], run.curve.means[-1]) for run in runs.values() if run.curve]
    write_table(target.with_suffix(".csv"), ("run", "name", "game", "frames", "mean"), ends)
    lines = [_format_groups(groups)]
    if short := [run.name for run in runs.values() if not run.curve]:
        lines.append(f"left out, with no curve yet: {', '.join(short)}")
    return "\n".join([*lines, f"curves: {target}, last means: {target.with_suffix('.csv')}"])


def _format_groups(groups: _Groups) -> str:
    """Returns a table of the final scores, without a column of games if there is only one."""
    first = 0 if len(groups) > 1 else 1
    rows = [
        (game, label, str(len(group)), _format_ends(group))
        for game, named in groups.items()
        for label, group in named.items()
    ]
    header = ("game", "name", "runs", "last mean of 100 episodes: mean +- standard deviation over runs (each)")
    return format_table(header[first:], [row[first:] for row in rows], "llrl"[first:])


def _format_ends(group: Sequence[Curve]) -> str:
    ends = [curve.means[-1] for curve in group]
    if len(ends) == 1:
        return format_score(ends[0])
    mean, std = format_score(float(np.mean(ends))), format_score(float(np.std(ends)))
    return f"{mean} +- {std} ({', '.join(map(format_score, ends))})"


def _find_runs(word: str, places: Sequence[Path]) -> list[Run]:
    """Returns the runs that a word means."""
    path = expand(word)
    if not path.is_dir():
        there = {folder.name for place in places for folder in _list_folders(place)}
        names = _find_names(word, [name for name in there if is_run_name(name) or name == word])
        return [read_run(name, [place / name for place in places]) for name in names]
    name, inner = path.resolve().name, _list_folders(path)
    run = read_run(name, [path, *(place / name for place in places)])
    runs = [read_run(each.name, [each, *(place / each.name for place in places)]) for each in inner if not run.curve]
    if not any(each.curve for each in runs):
        return [run]
    return [each for each in runs if each.curve or is_run_name(each.name)]


def _find_names(word: str, names: Collection[str]) -> list[str]:
    """Returns the run named `word`, or all whose names begin with it; raises UserError if there is none."""
    if found := match_names(names, word):
        return sorted(found)
    listed = shorten_list(sorted(names), _MAX_NAMES)
    there = f"; the runs are {listed}" if listed else ""
    raise UserError(f"--compare-runs {word}: there is no such run, and no such folder{there}")


def _list_folders(place: Path) -> list[Path]:
    return sorted(each for each in place.iterdir() if each.is_dir()) if place.is_dir() else []
