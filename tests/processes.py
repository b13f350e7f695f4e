"""Looks at the processes of a program from outside."""

import contextlib
import os
import signal
import time
from pathlib import Path


def _stat(pid):
    """Returns state, parent and session of a process; raises OSError when there is none."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[3])


def alive(pid):
    """Tells whether a process exists and is not merely waiting to be waited for."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def command_line(pid):
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")
    except OSError:
        return []


def family(pid):
    """Returns the ids of all living descendants of a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _ = _stat(path.name)
        except OSError:
            continue
        if state != "Z":
            parents[int(path.name)] = parent
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def instance(pid):
    """Returns the id of an engine's shared memory, '' where the process is none."""
    arguments = command_line(pid)
    return arguments[arguments.index("+viz_instance_id") + 1] if "+viz_instance_id" in arguments else ""


def engines(pid):
    """Returns the ViZDoom engines among the descendants of a process, as instance ids by pid."""
    return {child: instance(child) for child in family(pid) if instance(child)}


def servers(pid):
    """Returns the game servers among the descendants of a process: each leads a session, and its parent one too."""
    found = []
    for child in family(pid):
        try:
            _, parent, session = _stat(child)
            if session == child and _stat(parent)[2] == parent and not instance(child):
                found.append(child)
        except OSError:
            continue
    return sorted(found)


def left_over(pids, segments=()):
    """Returns which of the processes still live, and which shared memory of ViZDoom's has those endings."""
    return [pid for pid in pids if alive(pid)] + [n for n in os.listdir("/dev/shm") if n.endswith(tuple(segments))]


def until(condition, seconds=10.0):
    """Waits until a condition holds; returns its value, or its last one when it never does."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def kill(pid, number=signal.SIGKILL):
    """Sends a signal to a process, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
