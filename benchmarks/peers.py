"""Measures this program beside others on ViZDoom's basic: one run, one machine.

    python benchmarks/peers.py --peers-python .venv-peers/bin/python --results peers.jsonl --table peers.md

benchmarks/requirements-peers.txt says how to make that environment. Every run is a process of its own, one after the other,
and whatever it started is killed when it ends, is capped or is interrupted. Two figures for systems that learn: frames/s
(frames, skipped ones included; the median over windows of five seconds, after five seconds of warm-up), and the seconds
from the start of the process until the mean score of the last 100 training episodes is 75, the game's own score. For
vectors of games without learning there are frames/s. Finished runs are kept in the file of results and not run again, so
the same command goes on with a campaign that was interrupted; delete a line to have its run repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import results
from supervised import last_line, running, terminate

RUNNERS = Path(__file__).resolve().parent / "peers"
FRAME_SKIP = 4
WARM_UP = 5.0  # seconds after the first report
WINDOW = 5.0  # seconds over which a rate is taken
PATIENCE = 60.0  # seconds beyond its limit that a run which ends itself may take to write its results
PROGRESS_EVERY = 10.0  # seconds


class System(NamedTuple):
    """Something to be measured."""

    title: str
    runner: tuple[str, ...]  # script in benchmarks/peers and its flags
    packages: tuple[str, ...] = ()  # that it needs in the peers' environment; without any it runs in this program's
    shown: str = ""  # the package whose version the table shows
    learns: bool = True
    ends_itself: bool = False  # at the target or the limit, and reports then
    optional: bool = False  # a missing package is a failed row, no mistake
    note: str = ""


SB3 = ("stable-baselines3", "torch", "vizdoom", "opencv-python")
SYSTEMS = {
    "this": System("doom_a3c", ("this_training.py",), ends_itself=True, note="convolutions, 256 units, LSTM 256"),
    "sample_factory": System(
        "Sample Factory, APPO with LSTM",
        ("sample_factory_appo.py",),
        ("sample-factory", "torch", "vizdoom"),
        "sample-factory",
        note="its own basic: colour, 128x72; its own convolutions, 256 units, LSTM 256",
    ),
    "sb3_a2c": System("stable-baselines3, A2C", ("stable_baselines.py", "--algorithm=a2c"), SB3, SB3[0], note="no LSTM"),
    "sb3_ppo": System("stable-baselines3, PPO", ("stable_baselines.py", "--algorithm=ppo"), SB3, SB3[0], note="no LSTM"),
    "sb3_recurrent_ppo": System(
        "sb3-contrib, RecurrentPPO",
        ("stable_baselines.py", "--algorithm=recurrent_ppo"),
        ("sb3-contrib", *SB3),
        "sb3-contrib",
        note="LSTM 256",
    ),
    "this_raw": System("doom_a3c's vector", ("this_raw.py",), learns=False, note="a process a core; grey, cropped, 84x84"),
    "gymnasium_raw": System(
        "Gymnasium's AsyncVectorEnv", ("gymnasium_raw.py",), learns=False, note="ViZDoom's environment, grey, 160x120"
    ),
    "envpool_raw": System(
        "EnvPool",
        ("envpool_raw.py",),
        ("envpool",),
        "envpool",
        learns=False,
        optional=True,
        note="8 threads; colour, renders 320x240, resizes to 84x84",
    ),
}


class UserError(Exception):
    """A mistake of whoever typed the command, told in one line."""


class Point(NamedTuple):
    """What a run has reported."""

    seconds: float  # since its process began
    frames: int
    mean: float | None  # score of the last 100 episodes


class Points:
    """Reads what a run reports, while it does. Owns the points so far."""

    def __init__(self, path: Path, start: float) -> None:
        self._path, self._start, self._offset = path, start, 0
        self.all: list[Point] = []

    def read(self) -> None:
        """Adds what is new in the file: whole lines only."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines, end, _ = file.read().rpartition(b"\n")
        self._offset += len(lines) + len(end)
        for line in lines.splitlines():
            point = json.loads(line)
            self.all.append(Point(point["time"] - self._start, point["frames"], point["mean"]))

    def reached(self, target: float, limit: float) -> Point | None:
        """Returns the first point within so many seconds whose mean is at the target."""
        return next((point for point in self.all if at_target(point, target) and point.seconds <= limit), None)


def at_target(point: Point, target: float) -> bool:
    """Tells whether a point's mean score is at the target."""
    return point.mean is not None and point.mean >= target


def rate(points: list[Point]) -> float | None:
    """Returns the median frames/s over windows between points, after the warm-up; None if no window is complete."""
    warm = [point for point in points if point.seconds >= points[0].seconds + WARM_UP]
    rates, first = [], 0
    for index, point in enumerate(warm):
        if point.seconds - warm[first].seconds >= WINDOW:
            rates.append((point.frames - warm[first].frames) / (point.seconds - warm[first].seconds))
            first = index
    return statistics.median(rates) if rates else None


def measure(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a system once; returns what came of it."""
    system = SYSTEMS[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        folder = Path(text)
        log = (options.logs or folder) / f"{name}-{seed}.log"
        command = [
            options.peers_python if system.packages else sys.executable,
            str(RUNNERS / system.runner[0]),
            *system.runner[1:],
            f"--points={folder / 'points.jsonl'}",
            f"--games={options.games}",
            f"--frame-skip={FRAME_SKIP}",
            f"--seed={seed}",
            f"--minutes={options.minutes}",
            f"--target-score={options.target_score}",
        ]
        points = Points(folder / "points.jsonl", time.time())
        with running(command, folder, log) as process:
            watch(process, points, name, seed, options)
            failed = process.poll() not in (None, 0)
        reason = last_line(log) if failed else ""
    return outcome(points, name, options, reason)


def watch(process: subprocess.Popen[bytes], points: Points, name: str, seed: int, options: argparse.Namespace) -> None:
    """Waits until a run has ended, is at its target, or has used its time; says now and then where it is."""
    system, limit = SYSTEMS[name], 60 * options.minutes
    start, due = time.monotonic(), PROGRESS_EVERY
    while process.poll() is None:
        time.sleep(0.1)
        points.read()
        seconds = time.monotonic() - start
        if points.reached(options.target_score, limit) or seconds > limit + system.ends_itself * PATIENCE:
            break
        if not system.learns and points.all and points.all[-1].seconds > points.all[0].seconds + options.raw_seconds:
            break
        if seconds >= due:
            due += PROGRESS_EVERY
            last = points.all[-1] if points.all else Point(0.0, 0, None)
            mean = "" if last.mean is None else f", mean of 100 {last.mean:.1f}"
            print(f"{name} seed {seed}: {seconds:.0f} s, {last.frames:,} frames{mean}", file=sys.stderr, flush=True)
    points.read()


def outcome(points: Points, name: str, options: argparse.Namespace, reason: str) -> dict[str, Any]:
    """Returns a run's figures: 'reached', 'measured' (nothing is learned), 'missed' (in its time), or 'failed'."""
    learns, limit = SYSTEMS[name].learns, 60 * options.minutes
    reached = points.reached(options.target_score, limit) if learns else None
    figures: dict[str, Any] = {"frames_per_second": rate(points.all) if points.all else None}
    if learns:
        means = [point.mean for point in points.all if point.mean is not None and point.seconds <= limit]
        last = reached or (points.all[-1] if points.all else None)
        figures |= {
            "seconds": reached.seconds if reached else None,
            "frames": last.frames if last else 0,
            "best_mean": max(means, default=None),
        }
    if reached:
        return {"outcome": "reached", **figures}
    if reason or (figures["frames_per_second"] is None and not learns):
        return {"outcome": "failed", "reason": reason or "it reported too little", **figures}
    return {"outcome": "missed" if learns else "measured", **figures}


VERSIONS = """
import importlib.metadata as metadata, json, sys
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def versions(names: list[str], python: str | None) -> dict[str, str | None]:
    """Returns the version of each package that the systems need in the peers' environment.

    Raises:
        UserError: if there is no such environment, or it lacks a package of a system that must run.
    """
    packages = sorted({package for name in names for package in SYSTEMS[name].packages})
    if not packages:
        return {}
    if python is None:
        raise UserError("--peers-python is missing: the python of the environment of requirements-peers.txt")
    try:
        answer = subprocess.run([python, "-c", VERSIONS, *packages], capture_output=True, text=True, check=True)
        found: dict[str, str | None] = json.loads(answer.stdout)
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError):
        raise UserError(f"--peers-python {python} is no Python that runs") from None
    needed = {package for name in names if not SYSTEMS[name].optional for package in SYSTEMS[name].packages}
    if lacking := sorted(package for package in needed if found[package] is None):
        raise UserError(f"--peers-python {python} lacks {', '.join(lacking)}: install benchmarks/requirements-peers.txt")
    return found


def settings(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Returns what a result belongs to."""
    kept = {"system": name, "seed": seed, "games": options.games}
    if SYSTEMS[name].learns:
        return {**kept, "target_score": options.target_score, "minutes": options.minutes}
    return {**kept, "raw_seconds": options.raw_seconds}


def finished_runs(path: Path) -> list[dict[str, Any]]:
    """Returns the finished runs.

    Raises:
        UserError: if the file holds something else.
    """
    try:
        return results.finished(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--results {path}: {error}") from None


def campaign(options: argparse.Namespace) -> None:
    """Makes the runs that are not in the file of results yet, and adds each to it."""
    known = versions(options.only, options.peers_python)
    finished = finished_runs(options.results)
    wanted = [settings(name, seed, options) for seed in options.seeds for name in options.only]
    missing = [run for run in wanted if not any(run.items() <= result.items() for result in finished)]
    print(f"{len(wanted)} runs, {len(wanted) - len(missing)} of them finished before", file=sys.stderr)
    for number, run in enumerate(missing, 1):
        name, seed = run["system"], run["seed"]
        lacking = [package for package in SYSTEMS[name].packages if known[package] is None]
        if lacking:
            result: dict[str, Any] = {"outcome": "failed", "reason": f"{', '.join(lacking)} is not installed"}
        else:
            result = measure(name, seed, options)
        result = {**run, "version": known.get(SYSTEMS[name].shown), **result}
        results.add(options.results, result)
        print(f"run {number} of {len(missing)}: {json.dumps(result)}", file=sys.stderr, flush=True)


def median(values: list[float]) -> float | None:
    """Returns the median, None of nothing."""
    return statistics.median(values) if values else None


def median_rate(runs: list[dict[str, Any]]) -> float | None:
    """Returns the median frames/s of runs."""
    return median([run["frames_per_second"] for run in runs if run.get("frames_per_second")])


def median_seconds(runs: list[dict[str, Any]]) -> float | None:
    """Returns the median seconds to the target, a run that missed it counted as forever; failed runs too."""
    return median([run["seconds"] if run["outcome"] == "reached" else math.inf for run in runs])


def shown(value: float | None, form: Callable[[float], str], never: str = "-") -> str:
    """Returns a figure as the table shows it."""
    return "-" if value is None else never if math.isinf(value) else form(value)


def ratio(value: float | None, reference: float | None) -> str:
    """Returns how a figure relates to this program's."""
    return "-" if not value or not reference or math.isinf(value) or math.isinf(reference) else f"{value / reference:.2f}"


def table(options: argparse.Namespace) -> str:
    """Returns the tables of the finished runs, the newest of each system and seed, whatever its limit of time was."""
    wanted = [settings(name, seed, options) for name in SYSTEMS for seed in options.seeds]
    every = finished_runs(options.results)
    alike = [{key: value for key, value in run.items() if key != "minutes"} for run in wanted]
    found = [next((each for each in reversed(every) if run.items() <= each.items()), None) for run in alike]
    runs = {name: [each for each in found if each and each["system"] == name] for name in SYSTEMS}
    parts = [learning_table(runs, options), raw_table(runs)]
    return "\n".join(part for part in parts if part)


def learning_table(runs: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> str:
    """Returns the rows of the systems that learn, with ratios to this program."""
    names = [name for name, system in SYSTEMS.items() if system.learns and runs[name]]
    own_rate, own_seconds = median_rate(runs["this"]), median_seconds(runs["this"])
    target = f"{options.target_score:g}"
    lines = [
        f"| system | games | frames/s | ratio | seconds to {target}, median (seeds) | ratio | seeds at {target} | notes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        own = runs[name]
        frames, seconds = median_rate(own), median_seconds(own)
        each = ", ".join(f"{run['seconds']:.0f}" if run["outcome"] == "reached" else run["outcome"] for run in own)
        reached = sum(run["outcome"] == "reached" for run in own)
        cap = f"> {60 * min(run['minutes'] for run in own):.0f}"
        lines.append(
            f"| {label(name, own)} | {own[0]['games']} | {shown(frames, '{:,.0f}'.format)} | {ratio(frames, own_rate)} "
            f"| {shown(seconds, '{:.0f}'.format, cap)} ({each}) | {ratio(seconds, own_seconds)} "
            f"| {reached} of {len(own)} | {notes(name, own)} |"
        )
    return "\n".join(lines) + "\n" if names else ""


def raw_table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Returns the rows of games without learning, with ratios to this program's."""
    names = [name for name, system in SYSTEMS.items() if not system.learns and runs[name]]
    reference = median_rate(runs["this_raw"])
    lines = ["| games alone, random actions | games | frames/s | ratio | notes |", "|---|---|---|---|---|"]
    for name in names:
        own = runs[name]
        frames = median_rate(own)
        figures = f"{own[0]['games']} | {shown(frames, '{:,.0f}'.format)} | {ratio(frames, reference)}"
        lines.append(f"| {label(name, own)} | {figures} | {notes(name, own)} |")
    return "\n".join(lines) + "\n" if names else ""


def label(name: str, runs: list[dict[str, Any]]) -> str:
    """Returns a system's name and version."""
    return " ".join(filter(None, (SYSTEMS[name].title, runs[-1].get("version"))))


def notes(name: str, runs: list[dict[str, Any]]) -> str:
    """Returns what is particular about a system, and what its runs failed of."""
    failures = {f"failed: {run['reason']}" for run in runs if run["outcome"] == "failed"}
    missed = [run["best_mean"] for run in runs if run["outcome"] == "missed" and run["best_mean"] is not None]
    best = [f"best mean of a seed that missed: {max(missed):.1f}"] if missed else []
    return "; ".join(filter(None, (SYSTEMS[name].note, *best, *sorted(failures)))).replace("|", "/")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the flags.

    Raises:
        UserError: if they cannot be meant.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers-python", help="the python of the environment of benchmarks/requirements-peers.txt")
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"), help="finished runs (default peers.jsonl)")
    parser.add_argument("--table", type=Path, help="also write the table to this file")
    parser.add_argument(
        "--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=", ".join(SYSTEMS)
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="a run each (default 1 2 3)")
    parser.add_argument("--minutes", type=float, default=10.0, help="limit of a run that learns (default 10)")
    parser.add_argument("--target-score", type=float, default=75.0, help="mean of 100 training episodes (default 75)")
    parser.add_argument("--games", type=int, default=32, help="games played at once (default 32), an even number")
    parser.add_argument("--raw-seconds", type=float, default=30.0, help="of a run without learning (default 30)")
    parser.add_argument("--logs", type=Path, help="keep what the runs print in this folder")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the table of what is finished")
    options = parser.parse_args(arguments)
    if options.games < 2 or options.games % 2:
        raise UserError("--games must be an even number: two workers share them")
    if options.raw_seconds <= WARM_UP + WINDOW:
        raise UserError(f"--raw-seconds must be more than {WARM_UP + WINDOW:g}: warm-up and a window")
    if options.minutes <= 0:
        raise UserError("--minutes must be more than 0")
    if options.peers_python is not None:  # runs start in folders of their own; a link to a python must stay one
        options.peers_python = os.path.abspath(shutil.which(options.peers_python) or options.peers_python)
    if options.logs:
        options.logs = options.logs.absolute()
        options.logs.mkdir(parents=True, exist_ok=True)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints a table; returns the exit status."""
    signal.signal(signal.SIGTERM, terminate)
    try:
        options = parse(arguments)
        if not options.table_only:
            campaign(options)
        text = table(options)
        print(text, end="")
        if options.table:
            options.table.write_text(text)
    except UserError as error:
        print(f"peers.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("peers.py: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
