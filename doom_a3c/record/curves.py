"""The score curve of a run in a terminal; `figures` draws it as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from doom_a3c.record.progress import Point
from doom_a3c.settings.formatting import format_score

_ROWS = 8


def drawn(points: Sequence[Point], width: int) -> str:
    """Returns the running mean over the frames in so many columns, drawn by characters; '' where there is none to draw."""
    import plotille  # late: a run needs it once

    columns = min(width, 80) - 26  # beside the axis
    if len(points) < 2 or columns < 10:
        return ""
    figure = plotille.Figure()
    figure.width, figure.height, figure.with_colors, figure.origin = columns, _ROWS, False, False
    figure.x_label, figure.y_label = "frames", "mean of 100"
    figure.x_ticks_fkt = lambda low, high: f"{max(0.0, low):,.0f}"
    figure.y_ticks_fkt = lambda low, high: f"{format_score(low):>10}"
    frames, means = [point.frames for point in points], [point.mean for point in points]
    figure.set_x_limits(0, frames[-1])
    figure.plot(frames, means)
    return "\n".join(line.rstrip("\u2800 ") for line in figure.show().splitlines())
