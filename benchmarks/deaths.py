"""Kills what plays, again and again, while training goes on: engines, game servers, both, and newborn ones.

    python benchmarks/deaths.py --kills 100

One run of train.py on basic, with one worker, whose frames go on only when all of its games do, is hit `--kills` times in
a row, each time after it has recovered from the last: its frames have gone on by a second's worth. The table says for each
kind of victim how long that took, and the line under it whether every death was counted. The newborn are an engine or a
server that another death has just made start, killed within its first 200 ms.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import engines, family, kill, parent, servers
from records import read_record

ROOT = Path(__file__).resolve().parent.parent
NEWBORN_SECONDS = 0.2
PATIENCE = 90.0  # seconds without progress, after which the run has not survived


class Run:
    """A training run. Owns its process and folder."""

    def __init__(self, folder: Path, flags: list[str]) -> None:
        self.folder = folder
        outputs = [f"--{name}-dir={folder / name}" for name in ("models", "frames", "logs")]
        often = ("--checkpoint-every", "0.5", "--evaluate-every", "0", "--evaluation-episodes", "1", "--frames", str(10**9))
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "train.py"),
                "--scenario",
                "basic",
                "--gif-every",
                "0",
                *outputs,
                *often,
                "--quiet",
                *flags,
            ]
        )

    def progress(self) -> dict[str, Any]:
        """Returns the counters in the newest checkpoint."""
        try:
            progress: dict[str, Any] = read_record(self.folder / "models" / "last.ckpt")["progress"]
            return progress
        except FileNotFoundError:
            return {"frames": 0, "faults": {}}

    def frames_after(self, deaths: int) -> int:
        """Returns the frames in the newest checkpoint if that many deaths have been counted by then, else 0."""
        progress = self.progress()
        return int(progress["frames"]) if sum(progress["faults"].values()) >= deaths else 0

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Returns a condition's value once it is true; raises TimeoutError when it never is."""
        end = time.monotonic() + PATIENCE
        while not (value := condition()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.02)
        return value


def hurt(run: Run, kind: str) -> int:
    """Kills a victim of that kind; returns how many deaths are to be counted."""
    trainer = run.process.pid
    pairs = run.wait_for(lambda: [(pid, its) for pid in engines(trainer) if (its := parent(pid))])
    engine, server = random.choice(pairs)
    if kind == "engine":
        kill(engine)
        return 1
    if kind == "server":
        kill(server)
        return 1
    if kind == "both":
        kill(engine)
        kill(server)
        return 1
    known = family(trainer)
    kill(server)  # its successor and that one's engines are the newborn
    look = engines if kind == "newborn engine" else servers
    newborn = run.wait_for(lambda: [pid for pid in look(trainer) if pid not in known])[0]
    time.sleep(random.uniform(0, NEWBORN_SECONDS))
    kill(newborn)
    return 2


def main() -> None:
    """Hurts a run and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100, help="how often (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and victims (default 0)")
    options, flags = parser.parse_known_args()
    random.seed(options.seed)
    kinds = ("engine", "server", "both", "newborn engine", "newborn server")
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    deaths = 0
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            Path(folder), flags or ["--workers", "1", "--envs-per-worker", "8", "--game-processes", "2", "--gif-every", "0"]
        )
        try:
            run.wait_for(lambda: run.progress()["frames"])
            for number, kind in zip(range(options.kills), itertools.cycle(kinds), strict=False):
                time.sleep(random.uniform(0, 0.3))
                start = time.monotonic()
                deaths += hurt(run, kind)
                before = run.wait_for(lambda deaths=deaths: run.frames_after(deaths))  # type: ignore[misc]  # a default
                run.wait_for(lambda before=before: run.progress()["frames"] > before + 2000)  # type: ignore[misc]  # a default
                seconds[kind].append(time.monotonic() - start)
                print(f"{number + 1} of {options.kills}: {kind}, on after {seconds[kind][-1]:.1f} s", file=sys.stderr)
        except TimeoutError:
            print(f"the run did not survive death {deaths}")
        run.process.send_signal(signal.SIGINT)
        try:
            status = str(run.process.wait(60))
        except subprocess.TimeoutExpired:
            status = "none: it had to be killed"
        finally:
            run.process.kill()
        faults = run.progress()["faults"]
    print("| killed | times | seconds until training went on, median | longest |\n|---|---|---|---|")
    for kind, values in seconds.items():
        if values:
            print(f"| {kind} | {len(values)} | {statistics.median(values):.1f} | {max(values):.1f} |")
    survived = sum(map(len, seconds.values())) == options.kills
    print(f"\n{deaths} deaths, {sum(faults.values())} faults counted: {faults}; exit status {status}")

    sys.exit(not survived)


if __name__ == "__main__":
    main()
