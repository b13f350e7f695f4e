"""The tables of finished runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.comparison.systems import SYSTEMS

Result = Mapping[str, Any]
Runs = Mapping[str, Sequence[Result]]  # by system


def make_learning_table(runs: Runs, target: str) -> str:
    """Returns the table of systems that learn, with ratios to this program's default."""
    names = [name for name, system in SYSTEMS.items() if system.learns and runs[name]]
    own_rate, own_seconds = median_rate(runs["this"]), median_seconds(runs["this"])
    lines = [
        f"| system | games | frames/s | ratio | seconds to {target}, median (seeds) | ratio | seeds at {target} "
        "| settings tuned on | notes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        own = runs[name]
        frames, seconds = median_rate(own), median_seconds(own)
        each = ", ".join(f"{run['seconds']:.0f}" if run["outcome"] == "reached" else run["outcome"] for run in own)
        reached = sum(run["outcome"] == "reached" for run in own)
        cap = f"> {60 * min(run['minutes'] for run in own):.0f}"
        lines.append(
            f"| {format_label(name, own)} | {own[0]['games']} | {format_figure(frames, '{:,.0f}'.format)} "
            f"| {format_ratio(frames, own_rate)} "
            f"| {format_figure(seconds, '{:.0f}'.format, cap)} ({each}) | {format_ratio(seconds, own_seconds)} "
            f"| {reached} of {len(own)} | {SYSTEMS[name].tuned} | {format_notes(name, own)} |"
        )
    return "\n".join(lines) + "\n" if names else ""


def make_raw_table(runs: Runs) -> str:
    """Returns the table of raw rates, with ratios to this program's."""
    names = [name for name, system in SYSTEMS.items() if not system.learns and runs[name]]
    reference = median_rate(runs["this_raw"])
    lines = ["| games alone, random actions | games | frames/s | ratio | notes |", "|---|---|---|---|---|"]
    for name in names:
        own = runs[name]
        frames = median_rate(own)
        figures = f"{own[0]['games']} | {format_figure(frames, '{:,.0f}'.format)} | {format_ratio(frames, reference)}"
        lines.append(f"| {format_label(name, own)} | {figures} | {format_notes(name, own)} |")
    return "\n".join(lines) + "\n" if names else ""


def median_rate(runs: Sequence[Result]) -> float | None:
    """Returns the median frames/s of runs."""
    return median([run["frames_per_second"] for run in runs if run.get("frames_per_second")])


def median_seconds(runs: Sequence[Result]) -> float | None:
    """Returns the median seconds to the target, counting a run that missed it, or failed, as forever."""
    return median([run["seconds"] if run["outcome"] == "reached" else math.inf for run in runs])


def median(values: list[float]) -> float | None:
    """Returns the median, None if empty."""
    return statistics.median(values) if values else None


def format_figure(value: float | None, form: Callable[[float], str], never: str = "-") -> str:
    """Formats a figure for the table."""
    return "-" if value is None else never if math.isinf(value) else form(value)


def format_ratio(value: float | None, reference: float | None) -> str:
    """Returns a figure's ratio to this program's."""
    return "-" if not value or not reference or math.isinf(value) or math.isinf(reference) else f"{value / reference:.2f}"


def format_label(name: str, runs: Sequence[Result]) -> str:
    """Returns a system's name and version."""
    return " ".join(filter(None, (SYSTEMS[name].title, runs[-1].get("version"))))


def format_notes(name: str, runs: Sequence[Result]) -> str:
    """Returns a system's notes, and the reasons of its failed runs."""
    failures = {f"failed: {run['reason']}" for run in runs if run["outcome"] == "failed"}
    missed = [run["best_mean"] for run in runs if run["outcome"] == "missed" and run["best_mean"] is not None]
    best = [f"best mean of a seed that missed: {max(missed):.1f}"] if missed else []
    return "; ".join(filter(None, (SYSTEMS[name].note, *best, *sorted(failures)))).replace("|", "/")
