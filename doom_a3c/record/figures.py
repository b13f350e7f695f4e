"""Figures for people: curves of training, distributions of scores, what values were worth. All as matplotlib draws them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from doom_a3c.record.files import write_whole
from doom_a3c.record.progress import WINDOW, EvaluationPoint, Point
from doom_a3c.record.statistics import mean_interval

MAX_DOTS, FEW_DOTS = 4000, 300  # of a scatter plot; more than a few are one picture in an svg
BANDS = 200  # places where the spread of scores is drawn
_DOTS, _LINE = "tab:blue", "tab:orange"


def written(figure: Any, path: Path) -> None:
    """Writes a figure as png, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    write_whole(path, picture.getvalue())


def as_svg(figure: Any) -> str:
    """Returns a figure as an svg element of a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def training_curve(title: str, points: Sequence[Point], evaluations: Sequence[EvaluationPoint] = ()) -> Any:
    """Returns the scores of a run over its frames: episodes, their running mean and spread, and evaluations."""
    axes = _axes((8, 4.5))
    frames = [point.frames for point in points]
    if points:
        size, alpha = (14, 0.6) if len(points) < 500 else (5, 0.35)
        axes.scatter(
            frames, [point.score for point in points], size, alpha=alpha, color=_DOTS, label="episode", linewidths=0
        )
        _draw_spread(axes, points)
        axes.plot(frames, [point.mean for point in points], color=_LINE, linewidth=2.5, label=f"mean of the last {WINDOW}")
    for policy, marker, color in (("greedy", "D", "tab:green"), ("sampled", "s", "tab:olive")):
        found = [(one.frames, getattr(one, policy), getattr(one, f"{policy}_std")) for one in evaluations]
        if found:
            at, scores, spreads = zip(*found, strict=True)
            label = f"evaluation, {policy}, and its spread"
            axes.errorbar(at, scores, spreads, fmt=marker, markersize=5, color=color, capsize=3, label=label)
    axes.set(title=_plain(title), xlabel="frames", ylabel="score")
    _count_in_words(axes)
    if points or evaluations:
        axes.legend()
    return axes.figure


def _draw_spread(axes: Any, points: Sequence[Point]) -> None:
    """Shades what four of five scores lie within."""
    window = min(WINDOW, max(10, len(points) // 10))
    if len(points) < 2 * window:
        return
    ends = np.unique(np.linspace(window, len(points), BANDS).astype(int))
    scores = np.array([point.score for point in points])
    low, high = np.array([np.percentile(scores[end - window : end], (10, 90)) for end in ends]).T
    frames = [points[end - 1].frames for end in ends]
    axes.fill_between(frames, low, high, color=_LINE, alpha=0.2, linewidth=0, label="four of five episodes")


def distributions(title: str, groups: Mapping[str, Sequence[float]]) -> Any:
    """Returns the scores of some groups, each in a row: a dot for each, and the mean with its 95 per cent interval, where
    it has one.
    """
    axes = _axes((8, 1.2 + 1.1 * len(groups)))
    random = np.random.default_rng(0)  # dots that lie on each other would be one
    for row, scores in enumerate(groups.values()):
        dots = scores[:: -(-len(scores) // MAX_DOTS)]
        heights = row + random.uniform(-0.25, 0.25, len(dots))
        axes.scatter(dots, heights, 26, alpha=0.5, color=_DOTS, linewidths=0, rasterized=len(dots) > FEW_DOTS)
        mean, interval = float(np.mean(scores)), mean_interval(scores)
        reach = None if interval is None else [[mean - interval.low], [interval.high - mean]]
        axes.errorbar(mean, row, xerr=reach, fmt="D", color=_LINE, capsize=5, markersize=7, zorder=3)
        axes.annotate(f"{mean:.4g}", (mean, row), (0, 9), textcoords="offset points", ha="center", weight="bold")
    axes.set(title=_plain(title), xlabel="score", ylim=(len(groups) - 0.4, -0.6))
    axes.set_yticks(
        range(len(groups)),
        [f"{_plain(name)}\n{len(scores)} episode{'s' * (len(scores) > 1)}" for name, scores in groups.items()],
    )
    return axes.figure


def action_shares(title: str, names: Sequence[str], shares: Sequence[float]) -> Any:
    """Returns how often each action was taken."""
    axes = _axes((8, 1.2 + 0.28 * len(names)))
    bars = axes.barh([_plain(name) for name in names], [100 * share for share in shares], color=_DOTS)
    axes.bar_label(bars, fmt="%.1f%%", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(title=_plain(title), xlabel="per cent of all steps")
    return axes.figure


def values_and_returns(title: str, values: Sequence[float], returns: Sequence[float]) -> Any:
    """Returns what values said beside the discounted rewards that came; a network that knows lies on the diagonal."""
    axes = _axes((5.5, 5))
    apart = -(-len(values) // MAX_DOTS) or 1
    dots = values[::apart], returns[::apart]
    axes.scatter(*dots, 16, alpha=0.4, color=_DOTS, linewidths=0, rasterized=len(dots[0]) > FEW_DOTS)
    low, high = min(*values, *returns), max(*values, *returns)
    axes.plot([low, high], [low, high], color=_LINE, linewidth=1.5, label="as foretold")
    axes.set(title=_plain(title), xlabel="value: what the network expects", ylabel="what came: discounted, scaled rewards")
    axes.legend()
    return axes.figure


def runs_compared(title: str, groups: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]) -> Any:
    """Returns curves (frames and means) of groups of runs: thin, and in bold the mean over the runs of a group."""
    axes = _axes((9, 5))
    for index, (name, curves) in enumerate(groups.items()):
        color = f"C{index % 10}"
        for frames, means in curves:
            axes.plot(frames, means, color=color, linewidth=1, alpha=0.45 if len(curves) > 1 else 1)
        runs = f"{len(curves)} run{'s' * (len(curves) > 1)}"
        start, end = max(c[0][0] for c in curves), min(c[0][-1] for c in curves)
        if len(curves) > 1 and start < end:  # where all of them are
            places = np.linspace(start, end, BANDS)
            mean = np.mean([np.interp(places, *curve) for curve in curves], axis=0)
            axes.plot(places, mean, color=color, linewidth=3)
        axes.plot([], [], color=color, linewidth=3, label=f"{_plain(name)} ({runs})")
    axes.set(title=_plain(title), xlabel="frames", ylabel=f"mean score of the last {WINDOW} episodes")
    _count_in_words(axes)
    axes.legend()
    return axes.figure


def _axes(size: tuple[float, float]) -> Any:
    """Returns the axes of a new figure of so many inches."""
    # Imported late: it takes half a second, and a run needs it once. Figures without pyplot need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    return axes


def _count_in_words(axes: Any) -> None:
    """Has frames shown as '2 M', and never as fractions of one."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _plain(words: str) -> str:
    """Returns words whose dollar signs are no mathematics."""
    return words.replace("$", r"\$")
