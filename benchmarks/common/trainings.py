"""Helpers for measuring trainings: run the programs, and read their results."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.common.paths import ROOT
from benchmarks.common.records import read_plain_record
from benchmarks.common.results import append_result
from benchmarks.common.supervised import read_last_line, run_supervised
from doom_a3c.record.metrics.statistics import Interval, format_score, mean_interval

INTERVALS = (
    "Intervals are 95% (Student's t) over the episodes of one network: another training may end elsewhere. "
    "Where all n episodes score the same there is none."
)
POLICIES = ("greedy", "sample")
SAVING = 60  # seconds that an interrupted training has to save and end its games


def read_commit() -> str:
    """Returns the short hash of the current commit."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def read_counters(folder: Path) -> dict[str, Any]:
    """Returns the counters in the newest checkpoint of a training."""
    progress: dict[str, Any] = read_plain_record(folder / "models" / "last.ckpt")["progress"]
    return progress


def read_policy(model: Path) -> str:
    """Returns the policy that a checkpoint names: the better one in evaluations during training."""
    return str(read_plain_record(model)["policy"])


def play_episodes(model: Path, folder: Path, episodes: int, seed: int) -> dict[str, list[float]]:
    """Returns the scores of a model's episodes with each policy, from a seed on; raises like `play`."""
    flags = ("--episodes", episodes, "--seed", seed, "--record-episodes", 0, "--random-episodes", 0)
    played = play(model, folder, {policy: ("--policy", policy, *flags) for policy in POLICIES})
    return {policy: summary["scores"] for policy, summary in played.items()}


def play(model: Path, folder: Path, flags: Mapping[str, Sequence[object]]) -> dict[str, dict[str, Any]]:
    """Plays a model once for each name in `flags`, into a subfolder of that name; returns play.py's summaries by name.

    Old subfolders are removed first. The programs run side by side, as each plays on one core, and log to NAME.txt beside
    the subfolder. If one fails, its last line is shown and CalledProcessError raised once all have ended.
    """
    with ExitStack() as started:
        players = {}
        for name, own in flags.items():
            out = folder / name
            shutil.rmtree(out, ignore_errors=True)  # play.py would leave it alone, and write into a subfolder
            command = [sys.executable, str(ROOT / "play.py"), "--model", str(model), "--out", str(out), *map(str, own)]
            players[name] = started.enter_context(run_supervised(command, folder, folder / f"{name}.txt"))
        for player in players.values():
            player.wait()
    for name, player in players.items():
        if player.returncode:
            print(read_last_line(folder / f"{name}.txt"), file=sys.stderr, flush=True)
            raise subprocess.CalledProcessError(player.returncode, player.args)
    return {name: json.loads((folder / name / "summary.json").read_text()) for name in flags}


def run(folder: Path, program: str, *flags: object) -> None:
    """Runs a program in a folder, and keeps its output there; on interruption, gives it time to save."""
    command = [sys.executable, str(ROOT / program), *map(str, flags)]
    with (folder / "output.txt").open("a") as output:
        # In its own session, out of reach of the terminal's Ctrl-C: a second one would end it unsaved.
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True)
        try:
            status = process.wait()
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAVING)
            process.kill()
            raise
    if status:
        print(read_last_line(folder / "output.txt"), file=sys.stderr, flush=True)
        raise subprocess.CalledProcessError(status, command)


def train_and_score(folder: Path, scenario: Path, seed: int, frames: int, episodes: int) -> dict[str, Any]:
    """Trains in a folder without evaluations, plays new episodes with the final weights, and returns the summary."""
    quiet = ("--evaluate-every", 0, "--evaluation-episodes", episodes, "--gif-every", 0, "--quiet")
    flags = ("--scenario", scenario, "--seed", seed, "--frames", frames, "--summary", "summary.json")
    run(folder, "train.py", *flags, *quiet)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


class Measurement(Protocol):
    """A finished training, as a NamedTuple."""

    def _asdict(self) -> dict[str, Any]:
        """Returns its fields by name."""


Key = TypeVar("Key", bound=tuple[object, ...])
Finished = TypeVar("Finished", bound=Measurement)


def measure_missing(
    path: Path,
    trainings: Mapping[Key, str],
    list_done: Callable[[], Collection[Key]],
    measure: Callable[..., Finished],
    format_result: Callable[[Finished], str],
) -> int:
    """Measures the missing trainings, and appends each to a results file; returns 0, or 1 if any failed.

    Args:
        path: the results file.
        trainings: display names by the arguments of `measure`.
        list_done: lists the arguments of finished ones; called before each, as another process may add some.
        measure: trains, and returns a line of the file.
        format_result: describes such a line.
    """
    status = 0
    for key, name in trainings.items():
        if key in list_done():
            continue
        try:
            one = measure(*key)
        except subprocess.CalledProcessError as error:
            print(f"{name} has failed: {error}", file=sys.stderr, flush=True)
            status = 1
            continue
        print(f"{name}: {format_result(one)}", flush=True)
        append_result(path, one._asdict())
    return status


def reaches_target(scores: Sequence[float], target: float) -> bool:
    """Returns whether the lower end of the mean's interval reaches a target, or the score itself if all are equal."""
    interval = mean_interval(scores)
    return (scores[0] if interval is None else interval.low) >= target


def format_mean(scores: Sequence[float]) -> str:
    """Returns a mean with its 95% interval."""
    return format_with_interval(statistics.mean(scores), mean_interval(scores), len(scores))


def format_with_interval(mean: float, interval: Interval | None, games: int) -> str:
    """Returns a mean with its interval, or with the number of games if all are equal."""
    sure = f"all {games} equal" if interval is None else f"{format_score(interval.low)} to {format_score(interval.high)}"
    return f"{format_score(mean)} ({sure})"
