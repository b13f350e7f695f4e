"""Runs of train.py to inject faults into: started, watched and inspected from outside, and fully cleaned up."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple, TypeVar

from benchmarks.common import results
from benchmarks.common.paths import ROOT
from benchmarks.common.records import read_plain_record
from benchmarks.common.supervised import run_supervised

PATIENCE = 120.0  # seconds within which a run must go on
Value = TypeVar("Value")

_LIVE = re.compile(r"\| frames ([\d,]+)/")
_BEST = re.compile(r"^evaluation at ([\d,]+) frames: (.*), the highest so far$", re.MULTILINE)
_MEAN = re.compile(r"(?:greedy|sampled) (-?[\d.]+)")


class Event(NamedTuple):
    """A fault and its outcome; a line of the results file."""

    campaign: str
    fault: str
    survived: bool
    lost: float | None = None  # in the campaign's `UNIT`
    seconds: float | None = None  # until the run recovered
    why: str = ""  # it did not survive


class Results:
    """The results file: a line of JSON per event, so that an interrupted campaign can resume."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, campaign: str) -> list[Event]:
        """Returns the events of a campaign so far."""
        return [Event(**found) for found in results.read_results(self._path) if found["campaign"] == campaign]

    def add(self, event: Event) -> None:
        """Adds an event and shows it."""
        results.append_result(self._path, event._asdict())
        number = len(self.of(event.campaign))
        lost = "" if event.lost is None else f", lost {event.lost:.1f}"
        recovered = "" if event.seconds is None else f", recovered in {event.seconds:.1f} s"
        outcome = "survived" if event.survived else f"NOT SURVIVED: {event.why}"
        print(f"{event.campaign} {number}: {event.fault}{lost}{recovered}: {outcome}", file=sys.stderr, flush=True)


class Announced(NamedTuple):
    """A best evaluation that a run announced."""

    frames: int
    score: float


class Run:
    """A process of train.py. Owns nothing: `start_run` ends it."""

    def __init__(self, process: Popen[bytes], folder: Path, log: Path) -> None:
        self.process, self.folder, self._log = process, folder, log
        self.start = time.monotonic()

    @property
    def last(self) -> Path:
        """The newest checkpoint."""
        return self.folder / "models" / "last.ckpt"

    @property
    def best(self) -> Path:
        """The best checkpoint."""
        return self.folder / "models" / "best.ckpt"

    def said(self) -> str:
        """Returns the run's output so far, whole lines only."""
        return self._log.read_text(errors="replace").rpartition("\n")[0]

    def frames_shown(self) -> int:
        """Returns the frames that the run printed last, 0 if it has not yet."""
        found = _LIVE.findall(self.said())
        return int(found[-1].replace(",", "")) if found else 0

    def announced(self) -> list[Announced]:
        """Returns the best evaluations that the run announced, oldest first."""
        found = _BEST.findall(self.said())
        return [Announced(int(f.replace(",", "")), max(map(float, _MEAN.findall(text)))) for f, text in found]

    def wait_for(self, condition: Callable[[], Value], seconds: float = PATIENCE) -> Value:
        """Returns a condition's value once it is true; raises TimeoutError if it never is, or the run has ended."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            if self.process.poll() is not None:
                raise TimeoutError(f"train.py exited with status {self.process.returncode}: {self.last_words()}")
            if time.monotonic() > end:
                raise TimeoutError(f"the run made no progress within {seconds:.0f} s")
            time.sleep(0.02)
        return value

    def last_words(self) -> str:
        """Returns the last line that the run printed."""
        return (self.said().splitlines() or ["no output"])[-1][:300]


@contextlib.contextmanager
def start_run(folder: Path, flags: list[str], outputs: Path | None = None) -> Iterator[Run]:
    """Runs train.py with its outputs in a folder, and kills its remaining processes at the end."""
    outputs = outputs or folder
    own = [f"--{name}-dir={outputs / name}" for name in ("models", "frames", "logs")]
    log = folder / f"log-{time.monotonic_ns()}"
    with run_supervised([sys.executable, str(ROOT / "train.py"), *own, *flags], folder, log) as process:
        yield Run(process, outputs, log)


@contextlib.contextmanager
def make_folder() -> Iterator[Path]:
    """Makes a temporary folder for a campaign."""
    with tempfile.TemporaryDirectory(prefix="doom_a3c_faults_", ignore_cleanup_errors=True) as text:
        yield Path(text)


def read_record_if_any(path: Path) -> dict[str, Any] | None:
    """Returns the record in a checkpoint as plain data, None if there is no file.

    Raises:
        ValueError: if it cannot be read.
    """
    try:
        return read_plain_record(path)
    except FileNotFoundError:
        return None


class Count(NamedTuple):
    """A checkpoint's counters; all are -1 if there is none."""

    frames: int = -1
    steps: int = -1
    updates: int = -1
    episodes: int = -1

    def behind(self, other: Count) -> str:
        """Lists the counters behind another's, '' if none is."""
        pairs = zip(self._fields, self, other, strict=True)
        return ", ".join(f"{mine:,} {name} after {its:,}" for name, mine, its in pairs if mine < its)


def read_count(path: Path) -> Count:
    """Returns a checkpoint's counters."""
    found = read_record_if_any(path)
    return Count(*(int(found["progress"][name]) for name in Count._fields)) if found else Count()


def read_frames(path: Path) -> int:
    """Returns the frames counted in a checkpoint, -1 if there is none."""
    return read_count(path).frames
