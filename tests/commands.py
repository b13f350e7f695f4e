"""train.py and play.py as users call them, in processes of their own."""

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = (
    *("--workers", "2", "--games", "2", "--rollout-length", "8", "--minibatches", "1"),
    *("--evaluation-episodes", "2", "--evaluate-every", "0"),
)
IMPORTED = ("tensorflow", "vizdoom", "gymnasium", "ale_py", "imageio.v3", "matplotlib.figure", "tensorboard.summary")
PARTS = ("cli.train", "cli.play", "run.launch", "run.playback", "run.film_maker", "engines.threads", "record.tensorboard")


@functools.cache
def forks():
    """Starts a process that imports what a program does, of which each call is a copy.

    Importing TensorFlow takes longer than what most tests call a program for, and starts no threads before it is used. What
    Python does last of all, with what a program has left, is not done in a copy: `call_anew` is for that.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, *(f"doom_a3c.{part}" for part in PARTS)])
    before = Path.cwd()
    os.chdir(ROOT)  # where it finds the package
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.chdir(before)
    return context


def become(argv, cwd, environment, stdout, stderr):
    """Turns this process into a program."""
    for descriptor, name in ((0, os.devnull), (1, stdout), (2, stderr)):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    own = [each for each in sys.path if not Path(each).is_relative_to(ROOT / "tests")]
    sys.path[:] = [str(ROOT), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *own]
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


def call(program, *arguments, cwd, timeout=120, **environment):
    """Returns how a program ended that had nothing to read and nobody who sees it."""
    argv = [str(ROOT / f"{program}.py"), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        process = forks().Process(target=become, args=(argv, cwd, {**os.environ, **environment}, *outputs))
        process.start()
        process.join(timeout)
        code = process.exitcode
        process.kill()  # one that has not ended
        result = subprocess.CompletedProcess(argv, code, *(path.read_text() for path in outputs))
    assert code is not None, f"has not ended: {result}"
    return result


def call_anew(program, *arguments, cwd):
    """Returns how a program ended, from its first import to the end of its process."""
    command = [sys.executable, str(ROOT / f"{program}.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def play(cwd, *arguments):
    """Plays, with next to no random play beside it."""
    return call("play", "--random-episodes", "2", *arguments, cwd=cwd)


def train(cwd, *arguments):
    return call("train", "--scenario", "basic.wad", *SMALL, *arguments, cwd=cwd)


def output_of(*arguments, cwd, **environment):
    """Returns the last line that a Python process prints; it must end well."""
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
