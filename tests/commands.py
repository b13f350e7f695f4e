"""Runs train.py and play.py as users do, each in its own process."""

import contextlib
import functools
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common.processes import family, kill

ROOT = Path(__file__).parent.parent
SMALL = (
    *("--workers", "2", "--envs-per-worker", "2", "--rollout-length", "8", "--minibatches", "1"),
    *("--evaluation-episodes", "2", "--evaluate-every", "0"),
)
IMPORTED = ("tensorflow", "vizdoom", "gymnasium", "ale_py", "imageio.v3", "matplotlib.figure", "tensorboard.summary")
PARTS = (
    "cli.train",
    "cli.play",
    "cli.ending",
    "run.launch",
    "run.session",
    "run.play.playback",
    "run.film_maker",
    "engines.threads",
    "record.metrics.tensorboard",
)


@functools.cache
def forks():
    """Starts a process that imports what the programs import; each program is a fork of it.

    Importing TensorFlow takes longer than most calls in the tests, and it starts no threads until it is used. A fork skips
    Python's own cleanup at the very end of a process; `RunningAnew` does not.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, *(f"doom_a3c.{part}" for part in PARTS)])
    before = Path.cwd()
    os.chdir(ROOT)  # so that it finds the package
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.chdir(before)
    return context


def become(argv, cwd, environment, stdout, stderr):
    """Turns this process into the program."""
    for descriptor, name in ((0, os.devnull), (1, stdout), (2, stderr)):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    others = [each for each in sys.path if not Path(each).is_relative_to(ROOT / "tests")]
    sys.path[:] = [str(ROOT), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *others]
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


class Running:
    """A running program with empty input and no terminal. Leaving the context kills it if it still runs."""

    def __init__(self, program, *arguments, cwd, **environment):
        self._argv = [str(ROOT / f"{program}.py"), *map(str, arguments)]
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [Path(self._folder.name, name) for name in ("stdout", "stderr")]
        self._process = self._start(cwd, {**os.environ, **environment})
        self.pid = self._process.pid

    def _start(self, cwd, environment):
        process = forks().Process(target=become, args=(self._argv, cwd, environment, *self._outputs))
        process.start()
        return process

    def status(self, seconds=0):
        """Waits at most `seconds` for the end; returns the exit status, or None if the program still runs."""
        self._process.join(seconds)
        return self._process.exitcode

    def end(self, seconds=120):
        """Waits for the end; returns the result."""
        status = self.status(seconds)
        result = subprocess.CompletedProcess(self._argv, status, *(path.read_text() for path in self._outputs))
        assert status is not None, f"has not ended: {result}"
        return result

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.status() is None:
            for pid in family(self.pid) | {self.pid}:
                kill(pid)
        self.status(None)
        self._folder.cleanup()


class RunningAnew(Running):
    """A program in a fresh interpreter, from its first import to the end of its process."""

    def _start(self, cwd, environment):
        stdout, stderr = (path.open("w") for path in self._outputs)
        with stdout, stderr:
            return subprocess.Popen(
                [sys.executable, *self._argv],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )

    def status(self, seconds=0):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode


def call(program, *arguments, cwd, start=Running, timeout=120, **environment):
    """Returns how a program ended; it must end within `timeout` seconds."""
    with start(program, *arguments, cwd=cwd, **environment) as process:
        return process.end(timeout)


def play(cwd, *arguments):
    """Plays with hardly any random play for comparison."""
    return call("play", "--random-episodes", "2", *arguments, cwd=cwd)


def train(cwd, *arguments):
    return call("train", "--scenario", "basic.wad", *SMALL, *arguments, cwd=cwd)


def output_of(*arguments, cwd, **environment):
    """Returns the last line that a Python process prints; it must exit with status 0."""
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n")[-2]
