"""Runs that end early by a signal or a kill, and runs that go on from what another has saved."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, SMALL, call, train
from fakes import until

from benchmarks.processes import engines, left_over
from doom_a3c.run.checkpoint import load, save


def small(folder, name, text=""):
    """Writes a scenario file on CartPole; returns the arguments that train it for a moment."""
    (folder / f"{name}.toml").write_text(f'base = "cartpole"\n{text}\n')
    quick = ("--workers", 1, "--evaluate-every", 0, "--evaluation-episodes", 1)
    return ("--scenario", f"{name}.toml", "--frames", 2000, *quick)


def test_a_folder_that_the_scenario_file_names_is_not_overwritten_either(tmp_path):
    arguments = small(tmp_path, "mine", '[training]\nmodels_dir = "own"')
    assert call("train", *arguments, cwd=tmp_path).returncode == 0
    before = (tmp_path / "own" / "last.ckpt").read_bytes()
    refused = call("train", *arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert "own/last.ckpt holds another run" in refused.stderr
    assert (tmp_path / "own" / "last.ckpt").read_bytes() == before


@pytest.mark.parametrize("other", [False, True])
def test_a_run_that_goes_on_with_another_game_begins_its_best_anew(tmp_path, other):
    assert call("train", *small(tmp_path, "mine"), cwd=tmp_path).returncode == 0
    for path in (tmp_path / "models").iterdir():
        variables, record = load(path)
        save(path, variables, record._replace(best=record.best._replace(score=1e9)))
    arguments = small(tmp_path, "other" if other else "mine")
    resumed = call("train", "--resume", *arguments, "--frames", 4000, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    record = load(tmp_path / "models" / "best.ckpt").record
    assert (record.scenario.name, record.best.score < 1e9) == (("other", True) if other else ("mine", False))


def started(cwd, *arguments):
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "--scenario", "basic", *SMALL, "--checkpoint-every", "1", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (Path(cwd) / "models" / "last.ckpt").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_ends_and_leaves_nothing(tmp_path, number):
    process = started(tmp_path)
    games = engines(process.pid)
    assert len(games) >= 4
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)  # 10 on an idle machine
    assert process.returncode == 128 + number
    assert errors == ""
    assert left_over(games, games.values()) == []
    resumed = train(tmp_path, "--resume", "--minutes", 0.02)
    assert resumed.returncode == 0, resumed.stderr


def test_kill_9_leaves_a_whole_checkpoint_and_no_engines(tmp_path):
    process = started(tmp_path)
    games = engines(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 5
    while left_over(games, games.values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over(games, games.values()) == []
    resumed = train(tmp_path, "--resume", "--minutes", 0.02)
    assert resumed.returncode == 0, resumed.stderr


def test_training_goes_on_when_engines_die(tmp_path):
    process = started(tmp_path, "--summary", "summary.json")
    killed = list(engines(process.pid))[:2]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    last = tmp_path / "models" / "last.ckpt"
    until(lambda: load(last).record.counters.faults == {"engine_died": 2}, "the notice", seconds=120, pause=0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)  # 10 on an idle machine
    assert json.loads((tmp_path / "summary.json").read_text())["faults"] == {"engine_died": 2}


def test_a_run_of_the_queue_engine_is_resumed(tmp_path):
    small = ("--workers", "2", "--games", "2", "--evaluate-every", "0", "--evaluation-episodes", "1")
    first = call("train", "--scenario", "CartPole-v1", "--engine", "queue", "--frames", "2000", *small, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    resumed = call("train", "--resume", "--frames", "3000", "--summary", "summary.json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["frames"] >= 3000
    assert load(tmp_path / "models" / "last.ckpt").record.config.engine == "queue"


def cut(data):
    return data[:5_000]


def flipped(data):
    """Returns data with damage amid the weights, where no reader of the record comes by."""
    middle = len(data) // 2
    return data[:middle] + bytes(each ^ 255 for each in data[middle : middle + 6]) + data[middle + 6 :]


@pytest.mark.parametrize(("damaged", "words"), [(cut, "cut off"), (flipped, "Bad CRC-32")])
def test_a_damaged_checkpoint_names_the_newest_whole_one(tmp_path, damaged, words):
    assert call("train", *small(tmp_path, "mine"), "--checkpoint-every", 1, cwd=tmp_path).returncode == 0
    models = tmp_path / "models"
    whole = models / "frames-000000000001.ckpt"
    whole.write_bytes((models / "last.ckpt").read_bytes())
    spoilt = damaged(whole.read_bytes())
    for path in {*models.glob("*.ckpt")} - {whole, models / "best.ckpt"}:  # some may be one file of two names
        path.write_bytes(spoilt)
    refused = call("train", "--resume", "--frames", 4000, cwd=tmp_path)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert words in refused.stderr
    assert refused.stderr.endswith(
        f"the newest whole one is models/{whole.name}: cp models/{whole.name} models/last.ckpt\n"
    )
    (models / "last.ckpt").write_bytes(whole.read_bytes())
    assert call("train", "--resume", "--frames", 4000, cwd=tmp_path).returncode == 0
