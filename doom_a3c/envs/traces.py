"""What game servers and engines leave behind: processes that print into a folder, shared memory, logs."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import time
from pathlib import Path

LAST_BYTES = 4096  # of a log, in which its last line is looked for


def last_line(folder: Path) -> str:
    """Returns the last line that was printed into the newest log under a folder that says anything."""
    logs = sorted(folder.rglob("log"), key=lambda path: path.stat().st_mtime, reverse=True) if folder.exists() else []
    for log in logs:
        lines = [line.strip() for line in log.read_bytes()[-LAST_BYTES:].decode(errors="replace").splitlines()]
        if any(lines):
            return [line for line in lines if line][-1]
    return ""


def clear(folder: Path) -> None:
    """Kills every process that prints into a folder, and removes its engines' shared memory and the folder itself."""
    for output in glob.glob("/proc/[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(output)).is_relative_to(folder):
                os.kill(int(output.split("/")[2]), signal.SIGKILL)
    remove_traces(folder)


def remove_traces(folder: Path) -> None:
    """Removes a folder, and the shared memory of the dead engines that have noted their arguments in it."""
    for arguments in folder.glob("**/arguments"):
        with contextlib.suppress(OSError):
            remove_shared_memory(instance_in(arguments.read_text().split()))
    shutil.rmtree(folder, ignore_errors=True)


def instance_in(arguments: list[str]) -> str:
    """Returns the id in the names of an engine's shared memory, '' where the arguments are no engine's."""
    with contextlib.suppress(ValueError, IndexError):
        return arguments[arguments.index("+viz_instance_id") + 1]
    return ""


def remove_shared_memory(instance: str) -> None:
    """Removes the shared memory of a dead engine."""
    for segment in glob.glob(f"/dev/shm/ViZDoom*{glob.escape(instance)}") if instance else ():
        with contextlib.suppress(OSError):
            os.unlink(segment)


def remove_orphans(since: float) -> None:
    """Removes engines' shared memory that is newer than `since` and in no process.

    An engine that is killed before its launcher has noted its id leaves such. Another trainer's, just made, is younger
    than a second.
    """
    mapped = set()
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[-1] for line in Path(maps).read_text().splitlines() if "/dev/shm/ViZDoom" in line}
    for segment in glob.glob("/dev/shm/ViZDoom*"):
        with contextlib.suppress(OSError):
            if segment not in mapped and since - 1 < os.stat(segment).st_ctime < time.time() - 1:
                os.unlink(segment)
