"""Matplotlib figures: training curves, score distributions, action shares, value estimates against returns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from doom_a3c.record.files import write_whole
from doom_a3c.record.metrics.counters import WINDOW, EvaluationPoint, Point
from doom_a3c.record.metrics.statistics import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

MAX_DOTS, FEW_DOTS = 4000, 300  # in a scatter plot; more than FEW_DOTS are rasterized in an svg
BANDS = 200  # points at which the spread of scores is drawn
_DOTS, _LINE = "tab:blue", "tab:orange"


def save_png(figure: Figure, path: Path) -> None:
    """Writes a figure as png, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    write_whole(path, picture.getvalue())


def to_svg(figure: Figure) -> str:
    """Returns a figure as an svg element for a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def draw_training_curve(title: str, points: Sequence[Point], evaluations: Sequence[EvaluationPoint] = ()) -> Figure:
    """Draws the scores of a run over its frames: episodes, their running mean and spread, and evaluations."""
    figure, axes = _make_axes((8, 4.5))
    frames = [point.frames for point in points]
    if points:
        size, alpha = (14, 0.6) if len(points) < 500 else (5, 0.35)
        axes.scatter(
            frames, [point.score for point in points], size, alpha=alpha, color=_DOTS, label="episode", linewidths=0
        )
        _draw_spread(axes, points)
        means = [(point.frames, point.mean) for point in points if point.mean is not None]
        if means:
            axes.plot(*zip(*means, strict=True), color=_LINE, linewidth=2.5, label=f"mean of the last {WINDOW}")
    for policy, marker, color in (("greedy", "D", "tab:green"), ("sampled", "s", "tab:olive")):
        found = [(one.frames, getattr(one, policy), getattr(one, f"{policy}_std")) for one in evaluations]
        if found:
            at, scores, spreads = zip(*found, strict=True)
            label = f"evaluation, {policy}: mean and std"
            axes.errorbar(at, scores, spreads, fmt=marker, markersize=5, color=color, capsize=3, label=label)
    axes.set(title=_escape(title), xlabel="frames", ylabel="score")
    _format_frames(axes)
    if points or evaluations:
        axes.legend()
    return figure


def _draw_spread(axes: Axes, points: Sequence[Point]) -> None:
    """Shades the range between the 10th and the 90th percentile."""
    window = min(WINDOW, max(10, len(points) // 10))
    if len(points) < 2 * window:
        return
    ends = np.unique(np.linspace(window, len(points), BANDS).astype(int))
    scores = np.array([point.score for point in points])
    low, high = np.array([np.percentile(scores[end - window : end], (10, 90)) for end in ends]).T
    frames = [points[end - 1].frames for end in ends]
    axes.fill_between(frames, low, high, color=_LINE, alpha=0.2, linewidth=0, label="10th to 90th percentile")


def draw_distributions(title: str, groups: Mapping[str, Sequence[float]]) -> Figure:
    """Draws each group of scores in a row: one dot per score, and the mean with its 95% interval if it has one."""
    figure, axes = _make_axes((8, 1.2 + 1.1 * len(groups)))
    random = np.random.default_rng(0)  # jitter keeps equal scores apart
    for row, scores in enumerate(groups.values()):
        dots = scores[:: -(-len(scores) // MAX_DOTS)]
        heights = row + random.uniform(-0.25, 0.25, len(dots))
        axes.scatter(dots, heights, 26, alpha=0.5, color=_DOTS, linewidths=0, rasterized=len(dots) > FEW_DOTS)
        mean, interval = float(np.mean(scores)), mean_interval(scores)
        reach = None if interval is None else [[mean - interval.low], [interval.high - mean]]
        axes.errorbar(mean, row, xerr=reach, fmt="D", color=_LINE, capsize=5, markersize=7, zorder=3)
        axes.annotate(f"{mean:.4g}", (mean, row), (0, 9), textcoords="offset points", ha="center", weight="bold")
    axes.set(title=_escape(title), xlabel="score", ylim=(len(groups) - 0.4, -0.6))
    axes.set_yticks(
        range(len(groups)),
        [f"{_escape(name)}\n{len(scores)} episode{'s' * (len(scores) > 1)}" for name, scores in groups.items()],
    )
    return figure


def draw_action_shares(title: str, names: Sequence[str], shares: Sequence[float]) -> Figure:
    """Draws how often each action was taken."""
    figure, axes = _make_axes((8, 1.2 + 0.28 * len(names)))
    bars = axes.barh([_escape(name) for name in names], [100 * share for share in shares], color=_DOTS)
    axes.bar_label(bars, fmt="%.1f%%", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(title=_escape(title), xlabel="% of steps")
    return figure


def draw_matrix(title: str, names: Sequence[str], shares: NDArray[np.float64]) -> Figure:
    """Draws shares, [N, N], by row and column; NaN is empty."""
    figure = _make_figure((3 + 0.7 * len(names), 2.5 + 0.5 * len(names)))
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto")
    for row, column in np.argwhere(~np.isnan(shares)):
        axes.annotate(f"{100 * shares[row, column]:.0f}%", (column, row), ha="center", va="center")
    labels = [_escape(name) for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), labels)
    axes.set_title(_escape(title))
    return figure


def draw_values_and_returns(title: str, values: Sequence[float], returns: Sequence[float]) -> Figure:
    """Draws value estimates against discounted returns; a perfect critic lies on the diagonal."""
    figure, axes = _make_axes((5.5, 5))
    apart = -(-len(values) // MAX_DOTS) or 1
    dots = values[::apart], returns[::apart]
    axes.scatter(*dots, 16, alpha=0.4, color=_DOTS, linewidths=0, rasterized=len(dots[0]) > FEW_DOTS)
    low, high = min(*values, *returns), max(*values, *returns)
    axes.plot([low, high], [low, high], color=_LINE, linewidth=1.5, label="value = return")
    axes.set(title=_escape(title), xlabel="value estimate", ylabel="discounted return (scaled)")
    axes.legend()
    return figure


def draw_runs(games: Mapping[str, Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]]) -> Figure:
    """Draws a pane for each game: the curves (frames and means) of groups of runs, and in bold the mean over each group."""
    columns = 1 if len(games) == 1 else 2
    rows = -(-len(games) // columns)
    figure = _make_figure((9 if columns == 1 else 14, 5 * rows))
    for place, (game, groups) in enumerate(games.items(), 1):
        axes = _add_axes(figure, (rows, columns, place))
        for index, (name, curves) in enumerate(groups.items()):
            _draw_group(axes, f"C{index % 10}", name, curves)
        axes.set(title=_escape(game), xlabel="frames", ylabel=f"mean score of the last {WINDOW} episodes")
        _format_frames(axes)
        axes.legend()
    return figure


def _draw_group(axes: Axes, color: str, name: str, curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
    for frames, means in curves:
        axes.plot(frames, means, color=color, linewidth=1, alpha=0.45 if len(curves) > 1 else 1)
    runs = f"{len(curves)} run{'s' * (len(curves) > 1)}"
    start, end = max(c[0][0] for c in curves), min(c[0][-1] for c in curves)
    if len(curves) > 1 and start < end:  # the range that all runs cover
        places = np.linspace(start, end, BANDS)
        mean = np.mean([np.interp(places, *curve) for curve in curves], axis=0)
        axes.plot(places, mean, color=color, linewidth=3)
    axes.plot([], [], color=color, linewidth=3, label=f"{_escape(name)} ({runs})")


def _make_axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Creates a figure with axes; `size` is in inches."""
    figure = _make_figure(size)
    return figure, _add_axes(figure)


def _make_figure(size: tuple[float, float]) -> Figure:
    # Late: it takes half a second, and a run needs it once. Without pyplot no display is needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _add_axes(figure: Figure, place: tuple[int, int, int] = (1, 1, 1)) -> Axes:
    axes = figure.add_subplot(*place)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    return axes


def _format_frames(axes: Axes) -> None:
    """Labels frames as '2 M', and only whole ones."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _escape(words: str) -> str:
    """Escapes dollar signs, which matplotlib takes for mathematics."""
    return words.replace("$", r"\$")
