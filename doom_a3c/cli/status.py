"""The status of a run as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from doom_a3c.record.metrics.statistics import format_score, sample_evenly

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, which the panel must not wait for

_BLOCKS = "▁▂▃▄▅▆▇█"


def format_time_left(status: Status) -> str:
    """Returns the remaining time, such as '1:05:00 left', or '' while it is unknown."""
    if status.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(status.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left" if hours else f"{minutes}:{seconds:02d} left"


def format_rows(status: Status) -> list[tuple[str, str]]:
    """Returns names and values of all known quantities."""
    rate = "" if status.frames_per_second is None else f", {status.frames_per_second:,.0f} a second"
    newest, best = status.evaluation, status.best_evaluation
    evaluated = [] if newest is None else [f"greedy {format_score(newest.greedy)}, sampled {format_score(newest.sampled)}"]
    evaluated += [] if best is None else [f"{'best' if status.confirmed else 'highest so far'} {format_score(best)}"]
    known = (("a trained agent", status.expected_mean), ("random play", status.random_mean))
    values = {
        "frames": f"{status.frames:,}/{status.frame_budget:,}{rate}",
        "mean of 100": format_mean(status.mean_score, status.mean_of, status.mean_new),
        "to expect": ", ".join(f"{name} {format_score(mean)}" for name, mean in known if mean is not None),
        "rating" if status.rated else "evaluation": ", ".join(evaluated),
        "episodes": f"{status.episodes:,}",
        "entropy": "" if status.entropy is None else f"{status.entropy:.3f}",
        "engine": status.engine,
        "faults": ", ".join(f"{kind} {count}" for kind, count in status.faults.items()),
        "newest gif": str(status.gif or ""),
    }
    return [(name, value) for name, value in values.items() if value]


def format_mean(mean: float | None, episodes: int, new: int) -> str:
    """Returns a mean of 100 episodes as text, or how many it has so far; `new` ones of them are from this session."""
    if mean is None:
        return f"({episodes} of 100 episodes counted)"
    return format_score(mean) + (f" ({new} of its 100 episodes from this session)" if new < episodes else "")


def draw_sparkline(values: Sequence[float]) -> str:
    """Draws a curve in one line of block characters; '' for fewer than two values."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    heights = [(value - low) / (high - low) if high > low else 0.0 for value in values]
    return "".join(_BLOCKS[round(height * (len(_BLOCKS) - 1))] for height in heights)


def format_curve(means: Sequence[float], columns: int) -> str:
    """Draws a score curve in one line, with its lowest and highest value; '' for fewer than two values."""
    if len(means) < 2:
        return ""
    low, high = format_score(min(means)), format_score(max(means))
    return f"mean of 100  {draw_sparkline(sample_evenly(means, columns))}  min {low}, max {high}"
