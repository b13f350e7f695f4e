"""Fuzzes the program's inputs with millions of mutations, guided by coverage, and reports findings.

    python -m benchmarks.fuzz --inputs 10000000

Entry points are checkpoint records, checkpoint files, scenario files, ViZDoom's cfg files, command lines, and cluster
hosts' pushes. Each input must be accepted, or refused with a UserError. Everything else is a finding: another error, more
than five seconds, more than a gigabyte of memory, a write outside its folder, a program run, a module imported, a
connection, a process that dies. Inputs with findings are kept in --folder. The same command resumes an interrupted
campaign; delete its folder to start over.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import ROOT

# Inputs of each target, out of a thousand: slow targets get fewer.
SHARES = {"records": 650, "tomls": 190, "checkpoints": 55, "commands": 50, "pushes": 30, "cfgs": 25}
BATCH = 200_000  # inputs per process: memory that libraries leak goes with it
BATCH_SECONDS = 3600.0
MAX_DEATHS = 50  # of a target's processes, before the fuzzer gives up on it


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the flags."""
    parser = make_parser("fuzz", __doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000, help="total number of inputs (default 10000000)")
    parser.add_argument("--only", nargs="+", choices=SHARES, default=list(SHARES), help="targets, by share (default all)")
    default = Path(tempfile.gettempdir()) / "doom_a3c_fuzz"
    parser.add_argument("--folder", type=Path, default=default, help=f"corpus, findings and results (default {default})")
    parser.add_argument("--seed", type=int, default=0, help="random seed; 0 draws one per process (default 0)")
    parser.add_argument("--table-only", action="store_true", help="only print the table of past results")
    return parser.parse_args(arguments)


def run_batch(target: str, inputs: int, seed: int, folder: Path, first: bool) -> dict[str, Any]:
    """Runs one fuzzer process; returns its counts, and whether Ctrl-C ended it."""
    own, temporary = folder / target, folder / target / "inside" / "tmp"
    shutil.rmtree(own / "inside", ignore_errors=True)
    for each in (own / "corpus", own / "findings", temporary):
        each.mkdir(parents=True, exist_ok=True)
    (own / "counts.json").unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.stress.targets.child",
        target,
        str(inputs),
        str(seed),
        str(own),
        *(["first"] if first else []),
    ]
    paths = {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    env = {**os.environ, **paths, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    interrupted = False
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            status = process.wait(BATCH_SECONDS)
        except subprocess.TimeoutExpired:
            status = -9
        except KeyboardInterrupt:
            status, interrupted = 0, True
        finally:
            process.kill()
            process.wait()
    counts: dict[str, Any] = {"inputs": 0, "seconds": 0, "findings": {}}
    if (own / "counts.json").exists():
        counts = json.loads((own / "counts.json").read_text())
    if status != 0:
        counts["findings"][f"a process died: {describe_death(status, own)}"] = 1
    return {"target": target, "died": status != 0, "interrupted": interrupted, **counts}


def describe_death(status: int, own: Path) -> str:
    """Describes how a process died, and keeps its last input."""
    reason = {70: "a call that takes a minute", 77: "exit within an input"}.get(status, f"status {status}")
    current = own / "current"
    if current.exists():
        data = current.read_bytes()
        size = int.from_bytes(data[:8], "little")
        number = len(list((own / "findings").glob("death-*")))
        (own / "findings" / f"death-{number}").write_bytes(data[8 : 8 + size])
    return reason


def campaign(options: argparse.Namespace) -> None:
    """Runs each target's missing inputs, and appends every process to the results."""
    path = options.folder / "results.jsonl"
    whole = sum(SHARES[target] for target in options.only)
    for target in options.only:
        wanted = options.inputs * SHARES[target] // whole
        while True:
            finished = [each for each in results.read_results(path) if each["target"] == target]
            left = wanted - sum(each["inputs"] for each in finished)
            if left <= 0 or sum(each["died"] for each in finished) >= MAX_DEATHS:
                break
            result = run_batch(
                target, min(left, BATCH), options.seed, options.folder, not any(each["inputs"] for each in finished)
            )
            results.append_result(path, result)
            if result["interrupted"]:
                raise KeyboardInterrupt
            done = wanted - left + result["inputs"]
            print(f"{target}: {done:,} of {wanted:,}, findings {result['findings']}", file=sys.stderr, flush=True)
            if result["inputs"] == 0 and len(finished) >= 2 and not any(each["inputs"] for each in finished):
                print(f"fuzz: {target} does not start: see {options.folder / target / 'log'}", file=sys.stderr)
                break


def make_table(options: argparse.Namespace) -> tuple[str, int]:
    """Returns the table of all inputs so far, and the number of kinds of findings."""
    lines = [
        "| target | inputs | accepted | refused in one line | findings, kinds | inputs/s |",
        "|---|---|---|---|---|---|",
    ]
    total, seconds, kinds = 0, 0, []
    for target in SHARES:
        own = [each for each in results.read_results(options.folder / "results.jsonl") if each["target"] == target]
        if not own:
            continue
        sums: Counter[str] = Counter()
        findings: Counter[str] = Counter()
        for each in own:
            sums.update({key: value for key, value in each.items() if type(value) in (int, float)})
            findings.update(each["findings"])
        rate = sums["inputs"] / max(1, sums["seconds"])
        found = f"{sum(findings.values()):,}, {len(findings)}"
        lines.append(
            f"| {target} | {sums['inputs']:,} | {sums['accepted']:,} | {sums['refused']:,} | {found} | {rate:,.0f} |"
        )
        kinds += [f"- {target}, {count:,} times: {kind}" for kind, count in findings.most_common()]
        total, seconds = total + sums["inputs"], seconds + sums["seconds"]
    lines += ["", f"{total:,} inputs in {seconds / 60:,.0f} minutes.", *(["", *kinds] if kinds else [])]
    return "\n".join(lines) + "\n", len(kinds)


def main(arguments: list[str] | None = None) -> int:
    """Fuzzes and prints the table; returns 1 if there are findings, 2 if the fuzzer is missing."""
    options = parse(arguments)
    options.folder = options.folder.absolute()
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.table_only:
        if importlib.util.find_spec("atheris") is None:
            print("fuzz: needs atheris: pip install -r benchmarks/requirements-fuzz.txt", file=sys.stderr)
            return 2
        campaign(options)
    text, kinds = make_table(options)
    print(text, end="")
    return 1 if kinds else 0


if __name__ == "__main__":
    run_command("fuzz", main, resumes=True)
