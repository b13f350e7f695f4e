"""The score curve of a run: a picture of what each episode scored, and of the running mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_curve(path: Path, title: str, episodes: Sequence[int], scores: Sequence[float], means: Sequence[float]) -> None:
    """Writes a png with a dot for every episode and a line for the running mean, whole or not at all."""
    # Imported late: it takes half a second, and a run needs it once. Figures without pyplot need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(episodes, scores, ".", markersize=3, alpha=0.35, color="tab:blue", label="episode")
    axes.plot(episodes, means, color="tab:orange", linewidth=2, label="mean of the last 100")
    axes.set(title=title, xlabel="episode", ylabel="score")
    axes.grid(alpha=0.3)
    if episodes:
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    figure.savefig(part, format="png", dpi=110)
    part.replace(path)
