"""Compares this program with others on ViZDoom's basic: one run, one machine.

    python -m benchmarks.peers --peers-python .venv-peers/bin/python --results peers.jsonl --table peers.md

benchmarks/requirements-peers.txt says how to make that environment. Runs are separate processes, one after another; all
processes that a run started are killed when it ends, hits its time limit or is interrupted. Systems that learn get two
figures: frames/s (skipped frames included; the median over windows of five seconds, after five seconds of warm-up), and the
seconds from process start until the mean score of the last 100 training episodes is 75, in the game's own units, checked
after each finished episode in every system. Vector environments without learning get frames/s only. Finished runs stay in
the results file and are not repeated, so the same command resumes an interrupted campaign; delete a line to repeat it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import ROOT
from benchmarks.common.supervised import read_last_line, run_supervised
from benchmarks.comparison.figures import WARM_UP, WINDOW, Run, summarize_learning, summarize_raw
from benchmarks.comparison.systems import SYSTEMS, read_versions
from benchmarks.comparison.tables import make_learning_table, make_raw_table
from doom_a3c.settings.errors import UserError

FRAME_SKIP = 4
RULE = "mean after each episode, time-outs truncate, three actions"  # never mixed with results by another rule
PROGRESS_EVERY = 10.0  # seconds


def measure(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a system once; returns its figures."""
    system = SYSTEMS[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        folder = Path(text)
        log = (options.logs or folder) / f"{name}-{seed}.log"
        command = [
            options.peers_python if system.packages else sys.executable,
            "-m",
            *system.runner,
            f"--report={folder / 'report.jsonl'}",
            f"--games={options.games}",
            f"--frame-skip={FRAME_SKIP}",
            f"--seed={seed}",
        ]
        run = Run(folder / "report.jsonl", time.time())
        with run_supervised(command, folder, log, PYTHONPATH=make_python_path()) as process:
            watch(process, run, name, seed, options)
            failed = process.poll() not in (None, 0)
        reason = read_last_line(log) if failed else ""
    if system.learns:
        return summarize_learning(run, options.target_score, 60 * options.minutes, reason)
    return summarize_raw(run, reason)


def make_python_path() -> str:
    """Returns PYTHONPATH with this project first, so that any interpreter can import the runners."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def watch(process: subprocess.Popen[bytes], run: Run, name: str, seed: int, options: argparse.Namespace) -> None:
    """Waits until a run ends, reaches its target or uses up its time; prints its progress now and then."""
    start, limit, due = time.monotonic(), 60 * options.minutes, PROGRESS_EVERY
    while process.poll() is None:
        time.sleep(0.1)
        run.read()
        seconds = time.monotonic() - start
        if run.reached(options.target_score, limit) or seconds > limit:
            break
        if not SYSTEMS[name].learns and run.points and run.points[-1].seconds > run.points[0].seconds + options.raw_seconds:
            break
        if seconds >= due:
            due += PROGRESS_EVERY
            mean = f", mean of 100 {run.means[-1].score:.1f}" if run.means else ""
            frames = run.points[-1].frames if run.points else 0
            print(f"{name} seed {seed}: {seconds:.0f} s, {frames:,} frames{mean}", file=sys.stderr, flush=True)
    run.read()


def make_settings(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings that identify a result."""
    kept = {"system": name, "seed": seed, "games": options.games}
    if SYSTEMS[name].learns:
        return {**kept, "rule": RULE, "target_score": options.target_score, "minutes": options.minutes}
    return {**kept, "raw_seconds": options.raw_seconds}


def read_finished_runs(path: Path) -> list[dict[str, Any]]:
    """Returns the finished runs.

    Raises:
        UserError: if it is not a results file.
    """
    try:
        return results.read_results(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--results {path}: {error}") from None


def campaign(options: argparse.Namespace) -> None:
    """Makes the runs missing from the results file, and appends each to it."""
    known = read_versions(options.only, options.peers_python)
    finished = read_finished_runs(options.results)
    wanted = [make_settings(name, seed, options) for seed in options.seeds for name in options.only]
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
        results.append_result(options.results, result)
        print(f"run {number} of {len(missing)}: {json.dumps(result)}", file=sys.stderr, flush=True)


def make_table(options: argparse.Namespace) -> str:
    """Returns the tables of finished runs: the newest of each system and seed, with any time limit."""
    wanted = [make_settings(name, seed, options) for name in SYSTEMS for seed in options.seeds]
    every = read_finished_runs(options.results)
    alike = [{key: value for key, value in run.items() if key != "minutes"} for run in wanted]
    found = [next((each for each in reversed(every) if run.items() <= each.items()), None) for run in alike]
    runs = {name: [each for each in found if each and each["system"] == name] for name in SYSTEMS}
    parts = [make_learning_table(runs, f"{options.target_score:g}"), make_raw_table(runs)]
    return "\n".join(part for part in parts if part)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the flags.

    Raises:
        UserError: for an invalid value.
    """
    parser = make_parser("peers", __doc__)
    parser.add_argument("--peers-python", help="Python of the benchmarks/requirements-peers.txt environment")
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"), help="file of results (default peers.jsonl)")
    parser.add_argument("--table", type=Path, help="also write the table to this file")
    systems = f"systems to run (default all): {', '.join(SYSTEMS)}"
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=systems)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds, one run each (default 1 2 3)")
    parser.add_argument("--minutes", type=float, default=10.0, help="time limit of a run that learns (default 10)")
    parser.add_argument(
        "--target-score", type=float, default=75.0, help="target mean of 100 training episodes (default 75)"
    )
    parser.add_argument("--games", type=int, default=32, help="games played at once, an even number (default 32)")
    parser.add_argument("--raw-seconds", type=float, default=30.0, help="seconds of a run without learning (default 30)")
    parser.add_argument("--logs", type=Path, help="folder to keep the output of the runs in")
    parser.add_argument("--table-only", action="store_true", help="run nothing, only print the table of finished runs")
    options = parser.parse_args(arguments)
    if options.games < 2 or options.games % 2:
        raise UserError("--games must be an even number: two workers share them")
    if options.raw_seconds <= WARM_UP + WINDOW:
        raise UserError(f"--raw-seconds must be more than {WARM_UP + WINDOW:g}: warm-up and a window")
    if options.minutes <= 0:
        raise UserError("--minutes must be more than 0")
    if options.peers_python is not None:  # runs start in other folders; a symlink must stay one
        options.peers_python = os.path.abspath(shutil.which(options.peers_python) or options.peers_python)
    if options.logs:
        options.logs = options.logs.absolute()
        options.logs.mkdir(parents=True, exist_ok=True)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints a table; returns the exit status."""
    options = parse(arguments)
    if not options.table_only:
        campaign(options)
    text = make_table(options)
    print(text, end="")
    if options.table:
        options.table.write_text(text)
    return 0


if __name__ == "__main__":
    run_command("peers", main, resumes=True)
