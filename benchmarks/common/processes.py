"""Inspects a program's processes from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


def _fields(pid: int) -> list[str]:
    """Returns a live process's fields in /proc from its state on; raises OSError if there is none."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError
    return fields


def alive(pid: int) -> bool:
    """Returns whether a process exists and is not a zombie."""
    return parent(pid) != 0


def parent(pid: int) -> int:
    """Returns the parent of a live process, 0 if there is none."""
    with contextlib.suppress(OSError):
        return int(_fields(pid)[1])
    return 0


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the CPU time used by live processes so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(map(int, _fields(pid)[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def memory(pids: Iterable[int], *kinds: str) -> float:
    """Returns the megabytes that processes use, shared pages counted proportionally.

    `kinds` of pages are 'Pss_Anon', 'Pss_File' and 'Pss_Shmem'; all if none is given.
    """
    total = 0
    wanted = tuple(f"{kind}:" for kind in kinds or ("Pss",))
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(wanted))
    return total / 1000


def family(pid: int) -> set[int]:
    """Returns the live descendants of a process."""
    parents = {int(path.name): parent(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found = {pid}
    while more := {child for child, its in parents.items() if its in found} - found:
        found |= more
    return found - {pid}


def instance(pid: int) -> str:
    """Returns the id in an engine's shared memory names, '' if the process is not an engine."""
    with contextlib.suppress(OSError):
        arguments = (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")
        return arguments[arguments.index("+viz_instance_id") + 1] if "+viz_instance_id" in arguments else ""
    return ""


def engines(pid: int) -> dict[int, str]:
    """Returns the ViZDoom engines among the descendants of a process, as instance ids by process."""
    return {child: instance(child) for child in family(pid) if instance(child)}


def servers(pid: int) -> list[int]:
    """Returns the game servers among the descendants of a process: its grandchildren, whose parent is the fork server."""
    return sorted(child for child in family(pid) if parent(parent(child)) == pid)


def left_over(pids: Iterable[int], instances: Iterable[str] = ()) -> list[int | str]:
    """Returns the processes still alive, and the shared memory that these engines left."""
    names: list[str] = [name for name in os.listdir("/dev/shm") if name.endswith(tuple(instances))]
    return [*(pid for pid in pids if alive(pid)), *names]


def until(condition: Callable[[], Value], seconds: float = 10.0) -> Value:
    """Waits until a condition holds; returns its value, or the last one if it never does."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Sends a signal to a process, if it exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
