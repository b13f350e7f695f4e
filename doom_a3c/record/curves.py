"""The score curve of a run: a picture of what each episode scored, and of the running mean."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from doom_a3c.record.files import write_whole
from doom_a3c.record.progress import Point


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
