"""Measures how surely and how fast training reaches a score, by running train.py itself for several seeds.

    python benchmarks/learning.py --scenario basic --target-score 75 --minutes 4 --seeds 1 2 3 4 5

Every seed is a process of its own, one after the other; the seconds are counted from its start, imports included. A seed
that misses the target is reported as such. With --evaluate N the best checkpoint of each seed then plays N greedy episodes.
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

ROOT = Path(__file__).resolve().parent.parent


def call(program: str, *arguments: object) -> None:
    """Runs train.py or play.py, quietly."""
    subprocess.run([sys.executable, str(ROOT / program), *map(str, arguments), "--quiet"], check=True)


def measure(folder: Path, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains one seed; returns the summary that train.py writes, and the mean of the greedy episodes."""
    outputs = [f"--{name}-dir={folder / name}" for name in ("models", "frames", "logs")]
    summary = folder / "summary.json"
    limits = ("--target-score", options.target_score, "--minutes", options.minutes)
    call("train.py", "--scenario", options.scenario, "--seed", seed, *limits, *outputs, "--summary", summary)
    result: dict[str, Any] = json.loads(summary.read_text())
    if options.evaluate:
        arguments = ("--episodes", options.evaluate, "--record", 0, "--out", folder / "played")
        call("play.py", "--model", folder / "models" / "best.ckpt", *arguments)
        result["greedy"] = json.loads((folder / "played" / "summary.json").read_text())["mean"]
    return result


def main() -> None:
    """Trains all seeds and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenario", default="basic", help="what is learned (default basic)")
    parser.add_argument("--target-score", type=float, default=75.0, help="mean of 100 training episodes (default 75)")
    parser.add_argument("--minutes", type=float, default=4.0, help="limit of each run (default 4)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="seeds (default 1 2 3 4 5)")
    parser.add_argument("--evaluate", type=int, default=0, help="greedy episodes of the best checkpoint (default 0)")
    options = parser.parse_args()
    print("| seed | stopped by | seconds | frames | mean of 100 | greedy best | frames/s |\n|---|---|---|---|---|---|---|")
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
        greedy = f"{result['greedy']:.1f}" if "greedy" in result else "-"
        print(f"| {seed} | {' | '.join(row)} | {greedy} | {result['frames_per_second']:,.0f} |", flush=True)
        if result["stopped_by"] == "target_score":
            seconds.append(result["seconds"])
    print(f"\nreached {options.target_score:g} in {len(seconds)} of {len(options.seeds)} seeds", end="")
    print(f", median {statistics.median(seconds):.0f} s" if seconds else "")


if __name__ == "__main__":
    main()
