"""Removes the traces of game servers and engines: processes, folders and shared memory."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import time
from pathlib import Path

from doom_a3c.envs.processes.ends import ARGUMENTS, find_instance


def clear(folder: Path) -> None:
    """Kills every process whose output goes to a folder, and removes the folder and its engines' shared memory."""
    for output in glob.glob("/proc/[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(output)).is_relative_to(folder):
                os.kill(int(output.split("/")[2]), signal.SIGKILL)
    remove_traces(folder)


def remove_traces(folder: Path) -> None:
    """Removes a folder, and the shared memory of the dead engines that saved their arguments in it."""
    for arguments in folder.glob(f"**/{ARGUMENTS}"):
        with contextlib.suppress(OSError):
            remove_shared_memory(find_instance(arguments.read_text().split("\n")))
    shutil.rmtree(folder, ignore_errors=True)


def remove_shared_memory(instance: str) -> None:
    """Removes the shared memory of a dead engine, by the id in its names."""
    for segment in glob.glob(f"/dev/shm/ViZDoom*{glob.escape(instance)}") if instance else ():
        with contextlib.suppress(OSError):
            os.unlink(segment)


def remove_orphans(since: float) -> None:
    """Removes engines' shared memory that is newer than `since`, in seconds since 1970, and that no process maps.

    An engine leaves such segments if it is killed before its launcher saves its id. Segments younger than a second stay:
    another trainer may be starting.
    """
    mapped = set()
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[-1] for line in Path(maps).read_text().splitlines() if "/dev/shm/ViZDoom" in line}
    for segment in glob.glob("/dev/shm/ViZDoom*"):
        with contextlib.suppress(OSError):
            if segment not in mapped and since - 1 < os.stat(segment).st_ctime < time.time() - 1:
                os.unlink(segment)
