"""Engines and servers that die during a run: a short run of benchmarks.deaths."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


def test_training_survives_and_counts_every_kind_of_death(root):
    command = [sys.executable, "-m", "benchmarks.deaths", "--kills", "5"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=400, check=False)
    assert result.returncode == 0, result.stderr
    assert "did not survive" not in result.stdout
    assert len(re.findall(r"^\| (newborn )?(engine|server|both) \| 1 \|", result.stdout, re.MULTILINE)) == 5
    deaths, counted, status = map(int, re.search(r"(\d+) deaths, (\d+) faults.*status (\d+)", result.stdout).groups())
    assert deaths == 7
    assert counted == deaths
    assert status == 130
