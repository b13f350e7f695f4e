"""Ctrl-C at any moment of a run, sent to the whole process group as a terminal does."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common.processes import engines, family, left_over, until
from doom_a3c.run.checkpoints.checkpoint import load

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
SMALL = (
    "--workers",
    "2",
    "--envs-per-worker",
    "2",
    "--rollout-length",
    "8",
    "--evaluation-episodes",
    "1",
    "--evaluate-every",
    "5",
)
# Becomes the program once the interpreter is up: no program can handle an interrupt before that. If standard input is a
# pseudo-terminal, makes it the controlling terminal.
START = """
import fcntl, os, runpy, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
open("started", "w").close()
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Run:
    """A training run that leads a process group, optionally on a pseudo-terminal; `output` is what it has printed."""

    def __init__(self, folder, terminal, *arguments):
        self.folder, self._master = folder, None
        command = [sys.executable, "-c", START, str(ROOT / "train.py"), "--scenario", "basic", *SMALL, *arguments]
        streams = {"stdin": subprocess.DEVNULL, "stdout": (folder / "output").open("w"), "stderr": subprocess.STDOUT}
        if terminal:
            self._master, slave = os.openpty()
            streams |= {"stdin": slave}
        self.process = subprocess.Popen(command, cwd=folder, start_new_session=True, **streams)
        streams["stdout"].close()
        if terminal:
            os.close(slave)
        assert until((folder / "started").exists, 30)

    def interrupt(self):
        if self._master is None:
            os.killpg(self.process.pid, signal.SIGINT)
        else:
            os.write(self._master, b"\x03")

    def end(self, seconds):
        """Waits for the end; returns the exit status as a shell shows it, or None if it does not come in time."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        finally:
            if self._master is not None:
                os.close(self._master)
                self._master = None
        return 128 - status if status < 0 else status

    @property
    def output(self):
        return (self.folder / "output").read_text()

    @property
    def saved(self):
        return (self.folder / "models" / "last.ckpt").exists()


LATE = 12  # seconds after the start: by then a run trains


def find_trouble(folder, instant, terminal):
    """Interrupts a run `instant` seconds after its start; returns what went wrong, '' for nothing."""
    folder.mkdir()
    run = Run(folder, terminal)
    time.sleep(instant)
    if instant >= LATE:
        until(lambda: run.saved or run.process.poll() is not None, 60)  # on a busy machine it has hardly begun
    processes, games = family(run.process.pid), engines(run.process.pid)
    run.interrupt()
    status = run.end(20)  # 10 on an idle machine
    trouble = []
    if status != 130:
        trouble.append(f"status {status}")
    if "Traceback" in run.output:
        trouble.append(run.output)
    if "ended by SIGINT" in run.output and not run.saved:
        trouble.append("nothing saved")
    if "ended by SIGINT" in run.output and "saving; Ctrl-C again ends at once\n" not in run.output:
        trouble.append(f"no answer: {run.output}")
    if not run.saved and (rest := [path.name for path in folder.iterdir() if path.name not in ("output", "started")]):
        trouble.append(f"folders left: {rest}")
    if run.saved:
        load(folder / "models" / "last.ckpt")
    if until(lambda: not left_over(processes, games.values()), 5) is False:
        trouble.append(f"left over: {left_over(processes, games.values())}")
    return f"{instant:.2f} s: {', '.join(trouble)}" if trouble else ""


def test_ctrl_c_at_any_moment_ends_the_run_cleanly(tmp_path):
    instants = np.geomspace(0.2, LATE, 10)
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(find_trouble, tmp_path / str(number), instant, number % 2 == 0)
            for number, instant in reversed(list(enumerate(instants)))
        ]
    assert list(filter(None, (run.result() for run in runs))) == []
    assert (tmp_path / "9" / "models" / "last.ckpt").exists()


def test_ctrl_c_while_resuming_leaves_the_folder_unchanged(tmp_path):
    first = Run(tmp_path, False, "--frames", "300")
    assert first.end(60) == 0
    (folder,) = (path for path in (tmp_path / "models").iterdir() if path.is_dir() and not path.is_symlink())
    before = {path: path.read_bytes() for path in folder.iterdir()}
    resumed = Run(tmp_path, False, "--resume", "--frames", "1M")
    assert until((folder / ".lock").exists, 30)
    resumed.interrupt()
    assert resumed.end(20) == 130
    assert "interrupted" in resumed.output
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("terminal", [False, True])
def test_a_second_ctrl_c_ends_the_run_at_once(tmp_path, terminal):
    run = Run(tmp_path, terminal, "--evaluation-episodes", "10000", "--frames", "2000")
    assert until(lambda: run.saved or run.process.poll() is not None, 60)  # it evaluates, for a long time
    processes = family(run.process.pid)
    os.kill(max(until(lambda: engines(run.process.pid))), signal.SIGSTOP)  # and a hung engine holds it up
    run.interrupt()
    time.sleep(0.3)
    assert run.process.poll() is None  # or the second one would prove nothing
    run.interrupt()
    start = time.monotonic()
    assert run.end(10) == 130
    assert time.monotonic() - start < 5
    assert until(lambda: not left_over(processes), 5)
