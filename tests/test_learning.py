"""Training to a score, minutes long: python -m pytest -m learning."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_basic_is_learned_and_the_best_checkpoint_plays_it(tmp_path, seed):
    arguments = ["--scenario", "basic.wad", "--frames", "1500000", "--seed", str(seed), "--summary", "summary.json"]
    subprocess.run([sys.executable, str(ROOT / "train.py"), *arguments, "--quiet"], cwd=tmp_path, check=True)
    assert json.loads((tmp_path / "summary.json").read_text())["mean_100"] >= 75
    arguments = ["--model", "models/best.ckpt", "--episodes", "100", "--record", "0", "--out", "played", "--quiet"]
    subprocess.run([sys.executable, str(ROOT / "play.py"), *arguments], cwd=tmp_path, check=True)
    assert json.loads((tmp_path / "played" / "summary.json").read_text())["mean"] >= 75
