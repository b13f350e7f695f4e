"""Runs programs that leave nothing behind, however they end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

MARK = "DOOM_A3C_BENCHMARK"  # an environment variable that identifies the processes of a run


def find_marked(mark: str) -> list[int]:
    """Returns the processes started, directly or not, with a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def find_shared_memory(processes: list[int]) -> set[Path]:
    """Returns the shared memory that processes use: ViZDoom's and torch's leave it behind when killed."""
    found: set[Path] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            found.update(map(Path, re.findall(r"/dev/shm/\S+", Path(f"/proc/{process}/maps").read_text())))
    return found


def kill_run(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kills a run and all it started: engines outlive their trainer and ignore SIGTERM."""
    memory = find_shared_memory(find_marked(mark))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    end = time.monotonic() + 20.0
    while (left := find_marked(mark)) and time.monotonic() < end:
        memory |= find_shared_memory(left)
        for survivor in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(survivor, signal.SIGKILL)
        time.sleep(0.1)
    process.wait()
    for segment in memory:
        segment.unlink(missing_ok=True)
    if left:
        print(f"could not kill processes {left}", file=sys.stderr)


@contextlib.contextmanager
def run_supervised(command: list[str], folder: Path, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command in its own session, with `environment` added to this one's, and leaves nothing behind."""
    value = uuid.uuid4().hex
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment, MARK: value, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_run(process, f"{MARK}={value}")


def read_last_line(log: Path) -> str:
    """Returns a failed run's last line, without colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace")).strip().splitlines()
    return lines[-1].strip()[:200] if lines else "no output"


def terminate(number: int, frame: object) -> None:
    """Turns SIGTERM into Ctrl-C so that a run's processes end with this one."""
    raise KeyboardInterrupt
