"""A run of train.py with engines and game servers to kill from outside, and the ways to kill them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common.paths import ROOT
from benchmarks.common.processes import engines, family, kill, parent, servers
from benchmarks.common.records import read_plain_record

KINDS = ("engine", "server", "both", "newborn engine", "newborn server")
NEWBORN_SECONDS = 0.2
PATIENCE = 90.0  # seconds without progress that count as not surviving


class VictimRun:
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
            progress: dict[str, Any] = read_plain_record(self.folder / "models" / "last.ckpt")["progress"]
            return progress
        except FileNotFoundError:
            return {"frames": 0, "faults": {}}

    def frames_after(self, deaths: int) -> int:
        """Returns the newest checkpoint's frames if it has counted at least `deaths` deaths, else 0."""
        progress = self.progress()
        return int(progress["frames"]) if sum(progress["faults"].values()) >= deaths else 0

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Returns a condition's value once it is true; raises TimeoutError if it never is."""
        end = time.monotonic() + PATIENCE
        while not (value := condition()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.02)
        return value


def hurt(run: VictimRun, kind: str) -> int:
    """Kills a victim of a kind; returns the number of deaths to be counted."""
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
    kill(server)  # its successor and the successor's engines are the newborn
    look = engines if kind == "newborn engine" else servers
    newborn = run.wait_for(lambda: [pid for pid in look(trainer) if pid not in known])[0]
    time.sleep(random.uniform(0, NEWBORN_SECONDS))
    kill(newborn)
    return 2
