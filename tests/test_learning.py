"""Training to a score, minutes long: python -m pytest -m learning."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def train(cwd, *arguments):
    """Returns the summary of a run of train.py."""
    command = [sys.executable, str(ROOT / "train.py"), *map(str, arguments), "--summary", "summary.json", "--quiet"]
    subprocess.run(command, cwd=cwd, check=True)
    return json.loads((cwd / "summary.json").read_text())


def play_best(cwd):
    """Plays 100 greedy episodes with the best checkpoint; returns the mean score."""
    arguments = [
        "--model",
        "models/best.ckpt",
        "--episodes",
        "100",
        "--policy",
        "greedy",
        "--record-episodes",
        "0",
        "--out",
        "played",
        "--quiet",
    ]
    subprocess.run([sys.executable, str(ROOT / "play.py"), *arguments], cwd=cwd, check=True)
    return json.loads((cwd / "played" / "summary.json").read_text())["mean"]


@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_basic_is_learned_and_the_best_checkpoint_plays_it(tmp_path, seed):
    assert train(tmp_path, "--scenario", "basic.wad", "--frames", 1_500_000, "--seed", seed)["mean_100"] >= 75
    assert play_best(tmp_path) >= 75


@pytest.mark.learning
@pytest.mark.parametrize("engine", ["threads", "queue"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_cartpole_is_learned_and_stays_learned(tmp_path, seed, engine):
    arguments = ("--scenario", "CartPole-v1", "--engine", engine, "--frames", 1_500_000, "--evaluate-every", 0)
    assert train(tmp_path, *arguments, "--seed", seed)["mean_100"] >= 475
    assert play_best(tmp_path) >= 475


@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_queue_engine_learns_basic(tmp_path, seed):
    arguments = ("--scenario", "basic", "--engine", "queue", "--frames", 1_500_000)
    assert train(tmp_path, *arguments, "--seed", seed)["mean_100"] >= 75


@pytest.mark.learning
@pytest.mark.parametrize("name", ["r2_n_step_bootstrap", "r2_n_step_zero", "r4_queue"])
def test_the_published_settings_learn_cartpole(tmp_path, name):
    summary = train(tmp_path, "--scenario", f"reference/{name}", "--seed", 1, "--evaluate-every", 0)
    assert summary["best_evaluation"] == 200 or summary["mean_100"] >= 150
