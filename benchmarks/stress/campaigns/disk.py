"""A disk that fills up and is freed while a run writes checkpoints, gifs and logs to it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common.records import check_whole
from benchmarks.stress.campaigns.runs import Event, Results, Run, make_folder, read_frames, start_run

CAMPAIGN = "disk full and free again"
UNIT = "s without a checkpoint once there was room"
MEGABYTES = 250  # five checkpoints of basic, the best one and two being written, and room for logs
HOLD_SECONDS = 6.0  # minimum time with a full disk: saves, points and gifs fail meanwhile
SAVE_SECONDS = 1.0
FLAGS = [
    *("--scenario", "basic", "--workers", "1", "--envs-per-worker", "8", "--gif-every", "1"),
    *("--frames", str(10**9), "--minutes", "60", "--checkpoint-every", str(SAVE_SECONDS)),
    *("--evaluate-every", "3", "--evaluation-episodes", "2"),
]
REPORTED = re.compile("no space|full", re.IGNORECASE)


class NoDiskError(Exception):
    """No small disk can be mounted; the message says why."""


@contextlib.contextmanager
def mount_small_disk(folder: Path) -> Iterator[Path]:
    """Mounts a small file system in memory, removed afterwards; raises NoDiskError if not allowed to."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "doom_a3c_faults", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise NoDiskError(f"cannot mount a small disk, which needs root ({reason.strip()})") from None
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def run_campaign(results: Results, times: int) -> None:
    """Fills a run's disk until there are `times` events; starts another run if one does not survive."""
    while len(results.of(CAMPAIGN)) < times:
        with make_folder() as folder, mount_small_disk(folder) as disk, start_run(folder, FLAGS, disk) as run:
            run.wait_for(lambda: read_frames(run.last) > 0)
            while len(results.of(CAMPAIGN)) < times:
                event = fill_once(run, disk)
                results.add(event)
                if not event.survived:
                    break


def fill_once(run: Run, disk: Path) -> Event:
    """Fills the disk, keeps it full, frees it; returns the event."""
    filler = disk / "filler"
    try:
        last_saved, printed = last_saved_at(run), len(run.said())
        fill(filler)
        end = time.monotonic() + HOLD_SECONDS
        while time.monotonic() < end:
            time.sleep(0.2)
            fill(filler)  # the space of deleted checkpoints
            if run.process.poll() is not None:
                raise TimeoutError(f"train.py exited with status {run.process.returncode}: {run.last_words()}")
        check_whole(run.last)
        check_whole(run.best)
        full_saves = last_saved_at(run) != last_saved
        filler.unlink()
        start, before = time.monotonic(), last_saved_at(run)
        run.wait_for(lambda: last_saved_at(run) > before, 60)
        seconds = time.monotonic() - start
        check_whole(run.last)
        frames = read_frames(run.last)
        run.wait_for(lambda: read_frames(run.last) > frames, 60)  # training continues
    except (TimeoutError, ValueError) as error:
        filler.unlink(missing_ok=True)
        return Event(CAMPAIGN, "disk full", False, None, None, str(error))
    fault = "disk full" if REPORTED.search(run.said(), printed) else "disk full, but not reported"
    fault += ", though a save got through" if full_saves else ""
    return Event(CAMPAIGN, fault, True, max(0.0, seconds - SAVE_SECONDS), seconds)


def last_saved_at(run: Run) -> float:
    """Returns the newest checkpoint's write time."""
    return run.last.stat().st_mtime


def fill(path: Path) -> None:
    """Grows a file until the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (2**20, 2**12):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)
