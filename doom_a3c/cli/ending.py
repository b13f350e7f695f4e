"""Prints and writes the summary of a session after its end."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from doom_a3c.cli import command
from doom_a3c.cli.panel import Panel
from doom_a3c.cli.status import format_curve, format_mean
from doom_a3c.cli.streams import OutputLostError
from doom_a3c.record.files import write_json, write_table
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.counters import WINDOW, EvaluationPoint, Point
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.run_record import format_needed_flags
from doom_a3c.run.launch import format_resume_flags
from doom_a3c.run.session import Session
from doom_a3c.run.training import Result
from doom_a3c.settings.errors import first_line
from doom_a3c.settings.inputs import expand

CURVE_COLUMNS = 30  # characters


def print_summary(session: Session, result: Result, seconds: float, panel: Panel) -> None:
    """Prints the results of a session and the next commands; `seconds` is the time before its training."""
    progress, last, best = session.progress, session.checkpoints.last, session.checkpoints.best
    known = result.confirmed or result.best_evaluation is None
    caveat = "" if known else " (not confirmed: as the highest of several evaluations it is biased upwards)"
    before = session.record.counters.episodes
    mean = format_mean(progress.mean_score, len(progress.newest_scores()), progress.count_new_scores(before))
    panel.log(
        f"ended by {result.stopped_by} after {seconds + result.seconds:.0f} s: {progress.frames:,} frames, "
        f"{progress.episodes:,} episodes, mean of the last 100 {mean}, "
        f"best evaluation {format_score(result.best_evaluation)}{caveat}"
    )
    if curve := format_curve(list(progress.full_means()), CURVE_COLUMNS):
        panel.log(curve)
    if left_out := _count_left_out(progress, before):
        panel.log(
            f"the mean leaves out {left_out:,} of this session's {progress.episodes - before:,} finished episodes: "
            "some that began earlier were still running"
        )
    for kind, count in progress.faults.items():
        panel.log(f"fault survived: {kind} {count} times")
    model = best if best.exists() else last
    newest = f" (newest: {last})" if model != last else ""
    panel.log(f"model  {model}{newest}\n{_describe_frames(session.gifs)}")
    panel.log(f"logs   {session.logs if session.logs.is_dir() else 'not written, see above'}")
    play, named = command.find_program_call("play"), format_needed_flags(session.record)
    panel.log(f"next:\n  {play} --model {shlex.quote(str(model))}{named} --out /tmp/result")
    if session.record.config.logger == "tensorboard":
        panel.log(f"  tensorboard --logdir {shlex.quote(str(session.logs))}")
    if result.stopped_by not in ("frames", "episodes"):
        whole = " --no-until-learned" if result.stopped_by == "until_learned" else ""
        flags = format_resume_flags(session.record, session.checkpoints.folder)
        panel.log(f"  {command.find_program_call('train')} {flags}{whole}")


def _count_left_out(progress: Progress, before: int) -> int:
    """Returns how many finished episodes are in no mean, or 0 if including them would hardly change the mean.

    That is so if they are few compared with 100, or with the session's own; the session began with `before` episodes.
    """
    left_out = progress.uncounted
    matters = left_out * 4 >= WINDOW and left_out * 10 >= progress.episodes - before
    return left_out if matters or progress.mean_score is None else 0


def _describe_frames(folder: Path) -> str:
    has_gifs = any(folder.glob("*.gif"))
    return f"gifs   {folder} (and the scores, as png and csv)" if has_gifs else f"scores {folder} (png and csv)"


def write_results(session: Session, result: Result, seconds: float, summary: str | None, panel: Panel) -> None:
    """Writes the scores, and the final result to the file `summary`, if there is one.

    Raises:
        OutputLostError: if that cannot be written.
    """
    curve, folder = session.progress.counters().curve, session.gifs
    try:
        write_table(folder / "scores.csv", Point._fields, curve)
        write_table(folder / "evaluations.csv", EvaluationPoint._fields, result.evaluations)
        figure = figures.draw_training_curve(session.record.name, curve, result.evaluations)
        figures.save_png(figure, folder / "scores.png")
    except (OSError, ValueError, ArithmeticError) as error:  # from the disk, or from scores too large to plot
        panel.log(f"warning: scores could not be written to {folder}: {first_line(error)}")
    if summary:
        try:
            write_json(expand(summary), summary_dict(session, result, seconds))
        except OSError as error:
            why = f"{summary} could not be written: {error.strerror}; the model is saved"
            raise OutputLostError(why) from None


def summary_dict(session: Session, result: Result, seconds: float) -> dict[str, Any]:
    """Returns the final result as plain data."""
    progress = session.progress
    return {
        "seconds": round(seconds + result.seconds, 2),
        "frames": progress.frames,
        "steps": progress.steps,
        "updates": progress.updates,
        "episodes": progress.episodes,
        "mean_100": progress.mean_score,
        "mean_100_new_episodes": progress.count_new_scores(session.record.counters.episodes),
        "best_evaluation": result.best_evaluation,
        "best_evaluation_confirmed": result.confirmed,
        "frames_per_second": round(result.frames_per_second, 1),
        "stopped_by": result.stopped_by,
        "seed": session.record.config.seed,
        "faults": dict(progress.faults),
    }
