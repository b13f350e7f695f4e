"""train.py and play.py as users call them, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = ("--workers", "2", "--games", "2", "--rollout-length", "8", "--evaluation-episodes", "2", "--evaluate-every", "0")


def call(program, *arguments, cwd):
    return subprocess.run(
        [sys.executable, str(ROOT / f"{program}.py"), *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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
