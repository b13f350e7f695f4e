"""Measures how reliably and how fast training reaches a score, by running train.py with several seeds.

    python -m benchmarks.time_to_score --scenario basic --target-score 75 --minutes 4 --seeds 1 2 3 4 5

Each seed is its own process, one after another; the seconds count from its start, imports included. A seed that misses the
target is reported as such. With --evaluate N, each seed's best checkpoint then plays N greedy episodes. With --hold, a seed
trains for all its minutes, and the table shows how low its mean fell after first reaching the target. Other flags are
passed on to train.py: --engine queue, for example.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import ROOT
from benchmarks.common.records import read_plain_record


def run_program(program: str, *arguments: object) -> None:
    """Runs train.py or play.py, quietly."""
    subprocess.run([sys.executable, str(ROOT / program), *map(str, arguments), "--quiet"], check=True)


def measure(folder: Path, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains one seed; returns train.py's summary, with the mean of the greedy episodes."""
    outputs = [f"--{name}-dir={folder / name}" for name in ("models", "frames", "logs")]
    summary = folder / "summary.json"
    limits = ("--minutes", options.minutes, *(() if options.hold else ("--target-score", options.target_score)))
    game = ("--scenario", options.scenario, "--seed", seed, "--no-until-learned")
    run_program("train.py", *game, *limits, *outputs, "--summary", summary, *options.flags)
    result: dict[str, Any] = json.loads(summary.read_text())
    if options.hold:
        result["lowest"] = find_lowest_after(folder / "models" / "last.ckpt", options.target_score)
        result["stopped_by"] = "target_score" if result["lowest"] is not None else result["stopped_by"]
    if options.evaluate:
        arguments = (
            "--episodes",
            options.evaluate,
            "--policy",
            "greedy",
            "--record-episodes",
            0,
            "--out",
            folder / "played",
        )
        run_program("play.py", "--model", folder / "models" / "best.ckpt", *arguments)
        result["greedy"] = json.loads((folder / "played" / "summary.json").read_text())["mean"]
    return result


def find_lowest_after(checkpoint: Path, target: float) -> float | None:
    """Returns the lowest mean of 100 episodes after the first that reached the target, None if none did."""
    curve = read_plain_record(checkpoint)["progress"]["curve"]
    means = [mean for *_, mean in curve if mean is not None]
    first = next((index for index, mean in enumerate(means) if mean >= target), None)
    return None if first is None else min(means[first:])


def main() -> None:
    """Trains all seeds and prints a table."""
    parser = make_parser("time_to_score", __doc__)
    parser.add_argument("--scenario", default="basic", help="scenario to train (default basic)")
    parser.add_argument(
        "--target-score", type=float, default=75.0, help="target mean of 100 training episodes (default 75)"
    )
    parser.add_argument("--minutes", type=float, default=4.0, help="time limit of each run (default 4)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="seeds (default 1 2 3 4 5)")
    parser.add_argument("--evaluate", type=int, default=0, help="greedy episodes of the best checkpoint (default 0)")
    parser.add_argument("--hold", action="store_true", help="train for all of --minutes, even after the target")
    options, flags = parser.parse_known_args()
    options.flags = flags
    last = "lowest mean since the target" if options.hold else "greedy best"
    print(f"| seed | stopped by | seconds | frames | mean of 100 | {last} | frames/s |\n|---|---|---|---|---|---|---|")
    seconds = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            result = measure(Path(folder), options, seed)
        row = (
            result["stopped_by"],
            f"{result['seconds']:.0f}",
            f"{result['frames']:,}",
            f"{result['mean_100'] or float('nan'):.1f}",
        )
        shown = result.get("lowest", result.get("greedy"))
        score = "-" if shown is None else f"{shown:.1f}"
        print(f"| {seed} | {' | '.join(row)} | {score} | {result['frames_per_second']:,.0f} |", flush=True)
        if result["stopped_by"] == "target_score":
            seconds.append(result["seconds"])
    print(f"\nreached {options.target_score:g} in {len(seconds)} of {len(options.seeds)} seeds", end="")
    print(f", median {statistics.median(seconds):.0f} s" if seconds else "")


if __name__ == "__main__":
    run_command("time_to_score", main)
