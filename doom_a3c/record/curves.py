"""The score curve of a run: as a picture, as a table, and in a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from doom_a3c.record.files import write_whole
from doom_a3c.record.progress import Point, shown

_ROWS = 8  # of a curve in a terminal


def write_table(path: Path, points: Sequence[Point]) -> None:
    """Writes the points as CSV, whole or not at all."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(Point._fields)
    writer.writerows(points)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.getvalue().encode())


def drawn(points: Sequence[Point], width: int) -> str:
    """Returns the running mean over the frames in so many columns, drawn by characters; '' where there is none to draw."""
    import plotille  # late, as below

    columns = min(width, 80) - 26  # beside the axis
    if len(points) < 2 or columns < 10:
        return ""
    figure = plotille.Figure()
    figure.width, figure.height, figure.with_colors, figure.origin = columns, _ROWS, False, False
    figure.x_label, figure.y_label = "frames", "mean of 100"
    figure.x_ticks_fkt = lambda low, high: f"{max(0.0, low):,.0f}"
    figure.y_ticks_fkt = lambda low, high: f"{shown(low):>10}"
    frames, means = [point.frames for point in points], [point.mean for point in points]
    figure.set_x_limits(0, frames[-1])
    figure.plot(frames, means)
    return "\n".join(line.rstrip("\u2800 ") for line in figure.show().splitlines())


def write_curve(path: Path, title: str, points: Sequence[Point]) -> None:
    """Writes a png with a dot for every episode and a line for the running mean, whole or not at all."""
    # Imported late: it takes half a second, and a run needs it once. Figures without pyplot need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    episodes = [point.episode for point in points]
    axes.plot(episodes, [point.score for point in points], ".", markersize=3, alpha=0.35, color="tab:blue", label="episode")
    axes.plot(episodes, [point.mean for point in points], color="tab:orange", linewidth=2, label="mean of the last 100")
    axes.set(title=title.replace("$", r"\$"), xlabel="episode", ylabel="score")
    axes.grid(alpha=0.3)
    if points:
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    write_whole(path, picture.getvalue())
