"""docs/own-scenario.md from its first command to its last, with budgets of seconds."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from commands import ROOT, call

pytestmark = pytest.mark.process

DOC = (ROOT / "docs" / "own-scenario.md").read_text()
SHORT = {
    "--minutes 4": "--minutes 10 --frames 2000 --workers 1 --envs-per-worker 2 --evaluation-episodes 1",
    "--overlay saliency": "--overlay saliency --episodes 1 --random-episodes 2",
}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the commands of a checkout need."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("train.py", "play.py", "docs", "doom_a3c", "scenarios"):
        os.symlink(ROOT / name, folder / name)
    return folder


def run(line, folder):
    for long, short in SHORT.items():
        line = line.replace(long, short)
    python, program, *arguments = shlex.split(line)
    assert python == "python"
    if program.removesuffix(".py") in ("train", "play"):
        return call(program.removesuffix(".py"), *arguments, cwd=folder)
    return subprocess.run([sys.executable, program, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_every_command_of_the_page_does_what_it_says(folder):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 8
    for line in lines:
        if line.startswith(("pip ", "tensorboard ")):
            continue
        result = run(line, folder)
        assert result.returncode == 0, (line, result.stderr)
        if "make_orchard" in line:
            (scenario,) = blocks("toml")
            (folder / "own" / "orchard.toml").write_text(scenario)
            (config,) = blocks("ini")
            assert (folder / "own" / "orchard.cfg").read_text() == config
        if "--doctor" in line:
            assert "map01 of orchard.wad is played" in result.stdout
    made = {path.name for path in (folder / "own" / "result").iterdir()}
    assert {"index.html", "episode_000.gif", "scores.csv"} <= made
    assert (folder / "frames" / "comparison.png").exists()
