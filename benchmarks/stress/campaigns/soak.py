"""An hour of training: checks that memory, threads, files and log growth stay flat, and frames/s steady."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import results
from benchmarks.common.processes import family, memory
from benchmarks.stress.campaigns.runs import Run, make_folder, read_record_if_any, start_run

EVERY = 1.0  # seconds between two looks at the frames
LOOKS = 5  # looks at the frames between two samples of everything else
FLAT, STEADY = 0.02, 0.05  # allowed change between the first and the last window
WARM_UP, WINDOW = 5.0, 10.0  # minutes; a sixth of a soak shorter than half an hour or an hour
# The kernel drops file pages at any time, and a process's share of them depends on who else has mapped them.
OWN = "Pss_Anon", "Pss_Shmem"
# The learning rate decays to 0 early: an agent that keeps learning plays differently in the end, longer games for example.
GAMES = {
    "basic": ["--scenario", "basic", "--learning-rate-frames", "4000000"],
    "pong": ["--scenario", "pong", "--learning-rate-frames", "1000000"],
}


class Sample(NamedTuple):
    """A run's resource use."""

    seconds: float  # since `start_run`
    frames: int
    megabytes: float  # of all its processes, see OWN; shared pages are counted proportionally
    threads: int
    descriptors: int
    shared: float  # megabytes in /dev/shm, of any process
    log: float  # megabytes of the TensorBoard folder


class Row(NamedTuple):
    """One line of the comparison."""

    what: str
    first: float
    last: float
    limit: float | None  # None where growth is no failure

    @property
    def change(self) -> float:
        """The relative change from the first to the last."""
        return self.last / self.first - 1 if self.first else (0.0 if not self.last else float("inf"))

    @property
    def held(self) -> bool:
        """Whether the change is within its limit: frames/s may not fall, all else may not grow."""
        if self.limit is None:
            return True
        return (-self.change if self.what == "frames/s" else self.change) <= self.limit


def run_campaign(path: Path, game: str, minutes: float, episodes: int) -> list[Row]:
    """Soaks a game for `minutes`, and until it has played `episodes`, twice as long at most; returns the comparison.

    A soak is one run: an interrupted one starts over, a finished one is read from the results at `path`.
    """
    if (known := find_finished(path, game, minutes)) is not None:
        return known
    with make_folder() as folder:
        budget = ["--frames", str(10**12), "--minutes", str(2 * minutes + 5)]
        with start_run(folder, [*GAMES[game], *budget]) as run:
            run.wait_for(run.frames_shown, 180)
            samples = watch(run, folder / "logs", minutes, episodes)
        played = played_episodes(run)
    rows = [*compare_windows(samples, minutes), Row("episodes played", 0, played, None)]
    results.append_result(path, {"campaign": f"soak of {game}", "minutes": minutes, "rows": rows})
    return rows


def find_finished(path: Path, game: str, minutes: float) -> list[Row] | None:
    """Returns the comparison of a finished soak of at least `minutes`, None if there is none."""
    for found in results.read_results(path):
        if found.get("campaign") == f"soak of {game}" and found["minutes"] >= minutes:
            return [Row(*row) for row in found["rows"]]
    return None


def watch(run: Run, logs: Path, minutes: float, episodes: int) -> list[Sample]:
    """Samples a run; new frames are sampled at the moment when the run has just printed them."""
    samples: list[Sample] = []
    frames, looks = run.frames_shown(), 0
    while (age := (time.monotonic() - run.start) / 60) < minutes or (played_episodes(run) < episodes and age < 2 * minutes):
        time.sleep(EVERY)
        if run.process.poll() is not None:
            raise TimeoutError(f"train.py exited with status {run.process.returncode}: {run.last_words()}")
        looks += 1
        if (now := run.frames_shown()) != frames or looks % LOOKS == 0:
            frames = now
            samples.append(take_sample(run, logs, frames))
    return samples


def take_sample(run: Run, logs: Path, frames: int) -> Sample:
    """Samples a run's use now."""
    pids = {run.process.pid, *family(run.process.pid)}
    disk = os.statvfs("/dev/shm")
    return Sample(
        time.monotonic() - run.start,
        frames,
        memory(pids, *OWN),
        count_entries(pids, "task"),
        count_entries(pids, "fd"),
        (disk.f_blocks - disk.f_bfree) * disk.f_frsize / 1e6,
        sum(path.stat().st_size for path in logs.rglob("*") if path.is_file()) / 1e6,
    )


def count_entries(pids: set[int], folder: str) -> int:
    """Counts the entries in a /proc folder of processes: 'task' for threads, 'fd' for descriptors."""
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/{folder}"))
        except OSError:  # it has ended meanwhile
            continue
    return total


def played_episodes(run: Run) -> int:
    """Returns the episodes counted in the newest checkpoint."""
    found = read_record_if_any(run.last)
    return int(found["progress"]["episodes"]) if found else 0


def compare_windows(samples: list[Sample], minutes: float) -> list[Row]:
    """Compares the first window after the warm-up to the last one."""
    warm, window = 60 * min(WARM_UP, minutes / 6), 60 * min(WINDOW, minutes / 6)
    first = [each for each in samples if warm <= each.seconds <= warm + window]
    last = [each for each in samples if each.seconds >= samples[-1].seconds - window]

    def row(what: str, value: Callable[[Sample], float], limit: float | None) -> Row:
        return Row(what, statistics.median(map(value, first)), statistics.median(map(value, last)), limit)

    return [
        Row("frames/s", compute_rate(first), compute_rate(last), STEADY),
        row("memory, MB", lambda each: each.megabytes, FLAT),
        row("threads", lambda each: each.threads, FLAT),
        row("file descriptors", lambda each: each.descriptors, FLAT),
        row("/dev/shm, MB", lambda each: each.shared, FLAT),
        # A log gains points, so it cannot be flat. Its growth must be.
        Row("TensorBoard, MB an hour", compute_growth(first), compute_growth(last), FLAT),
        row("TensorBoard, MB", lambda each: each.log, None),
    ]


def compute_rate(samples: list[Sample]) -> float:
    """Returns the frames/s between the first and the last time that a run printed its frames."""
    printed = [after for before, after in itertools.pairwise(samples) if after.frames != before.frames]
    if len(printed) < 2:
        return 0.0
    return (printed[-1].frames - printed[0].frames) / (printed[-1].seconds - printed[0].seconds)


def compute_growth(samples: list[Sample]) -> float:
    """Returns the log's growth in megabytes per hour."""
    return 3600 * (samples[-1].log - samples[0].log) / max(1.0, samples[-1].seconds - samples[0].seconds)
