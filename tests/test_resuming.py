"""Runs that are ended early by a signal or a kill, and runs that resume from a saved state."""

import contextlib
import json
import re
import shutil
import signal
import time

import pytest
from commands import SMALL, Running, call, train
from fakes import until

from benchmarks.common.processes import engines, kill, left_over
from doom_a3c.run.checkpoints.checkpoint import load, save
from doom_a3c.run.training import StoppingRule

pytestmark = pytest.mark.process

QUICK = ("--workers", 1, "--evaluate-every", 0, "--evaluation-episodes", 1)
MINE = ("--scenario", "mine.toml", *QUICK, "--frames", 300)
RESUME = ("--resume", "--models-dir", "own", "--frames", 600)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a finished short run of CartPole; its scenario file says where the checkpoints are."""
    folder = tmp_path_factory.mktemp("trained")
    for name in ("mine", "other"):
        (folder / f"{name}.toml").write_text('base = "cartpole"\n[training]\nmodels_dir = "own"\n')
    result = call("train", *MINE, cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


def runs_of(folder):
    """Returns the folders of the runs in `own`."""
    return [path for path in (folder / "own").iterdir() if path.is_dir()]


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(trained, tmp_path, symlinks=True, dirs_exist_ok=True)


def test_a_new_run_keeps_the_first_and_is_resumed_by_default(folder):
    (first,) = runs_of(folder)
    before = {path: path.read_bytes() for path in first.iterdir()}
    second = call("train", *MINE, "--seed", 2, cwd=folder)
    assert second.returncode == 0, second.stderr
    assert {path: path.read_bytes() for path in first.iterdir()} == before
    assert "-seed2-" in load(folder / "own" / "last.ckpt").record.name
    resumed = call("train", *RESUME, cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    assert {path: path.read_bytes() for path in first.iterdir()} == before
    named = call("train", "--resume", first.name, *RESUME[1:], cwd=folder)
    assert named.returncode == 0, named.stderr
    assert load(folder / "own" / "last.ckpt").record.name == first.name


@pytest.mark.parametrize("name", ["mine", "other"])
def test_resuming_with_another_game_resets_the_best_score(folder, name):
    for path in runs_of(folder)[0].glob("*.ckpt"):
        variables, record = load(path)
        save(path, variables, record._replace(best=record.best._replace(score=1e9)))
    resumed = call("train", *RESUME, "--scenario", f"{name}.toml", cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    record = load(folder / "own" / "best.ckpt").record
    assert (record.scenario.name, record.best.score < 1e9) == (name, name == "other")


@contextlib.contextmanager
def started(cwd, *arguments):
    """Runs basic, and yields after its first checkpoint."""
    with Running("train", "--scenario", "basic", *SMALL, "--checkpoint-every", 1, *arguments, cwd=cwd) as process:
        last = cwd / "models" / "last.ckpt"
        until(lambda: last.exists() or process.status() is not None, "the first checkpoint", seconds=60)
        assert process.status() is None, process.end()
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_without_leftovers(tmp_path, number):
    with started(tmp_path) as process:
        games = engines(process.pid)
        assert len(games) >= 4
        kill(process.pid, number)
        if number == signal.SIGTERM:  # timeout sends it to its command, and then to the group
            time.sleep(0.1)
            kill(process.pid, number)
        result = process.end(30)  # 10 on an idle machine
    answer = f"{StoppingRule.SAVING}\n" if number == signal.SIGINT else ""
    assert (result.returncode, result.stderr) == (128 + number, answer)
    assert left_over(games, games.values()) == []
    resumed = train(tmp_path, "--resume", "--minutes", 0.02)
    assert resumed.returncode == 0, resumed.stderr


def test_kill_9_leaves_a_whole_checkpoint_and_no_engines(tmp_path):
    with started(tmp_path) as process:
        games = engines(process.pid)
        kill(process.pid)
        process.end()
    until(lambda: not left_over(games, games.values()), "the end of the games", seconds=5)
    (lock,) = (tmp_path / "models").glob("*/.lock")
    lock.write_text(re.sub(r"frame [\d,]+$", "frame 1,000,000", lock.read_text().rstrip("\0")))
    resumed = train(tmp_path, "--resume", "--minutes", 0.02)
    assert resumed.returncode == 0, resumed.stderr
    frames = int(re.search(r"resuming at frame ([\d,]+)", resumed.stdout)[1].replace(",", ""))
    assert f"{1_000_000 - frames:,} frames are played again" in resumed.stdout
    assert "train.py --resume basic-seed" in resumed.stdout  # ended by --minutes


def test_training_continues_when_engines_die(tmp_path):
    with started(tmp_path, "--summary", "summary.json") as process:
        for pid in list(engines(process.pid))[:2]:
            kill(pid)
        last = tmp_path / "models" / "last.ckpt"
        until(lambda: load(last).record.counters.faults == {"engine_died": 2}, "the notice", seconds=120, pause=0.2)
        assert process.status() is None
        kill(process.pid, signal.SIGINT)
        process.end(30)  # 10 on an idle machine
    assert json.loads((tmp_path / "summary.json").read_text())["faults"] == {"engine_died": 2}


def test_a_run_of_the_queue_engine_can_be_resumed(tmp_path):
    small = ("--workers", "2", "--envs-per-worker", "2", "--evaluate-every", "0", "--evaluation-episodes", "1")
    first = call("train", "--scenario", "CartPole-v1", "--engine", "queue", "--frames", "300", *small, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    resumed = call("train", "--resume", "--frames", "600", "--summary", "summary.json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["frames"] >= 600
    assert load(tmp_path / "models" / "last.ckpt").record.config.engine == "queue"


def cut(data):
    return data[:5_000]


def flipped(data):
    """Returns data with flipped bits among the weights, where reading the record does not notice."""
    middle = len(data) // 2
    return data[:middle] + bytes(each ^ 255 for each in data[middle : middle + 6]) + data[middle + 6 :]


def test_a_damaged_checkpoint_points_to_the_newest_intact_one(folder):
    (models,) = runs_of(folder)
    whole = models / "frames-000000000001.ckpt"
    data = (models / "last.ckpt").read_bytes()
    whole.write_bytes(data)
    for damaged, words in ((cut, "cut off"), (flipped, "checksum")):
        for path in {*models.glob("*.ckpt")} - {whole, models / "best.ckpt"}:  # some may be two names of one file
            path.write_bytes(damaged(data))
        refused = call("train", *RESUME, cwd=folder)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert words in refused.stderr
        assert refused.stderr.endswith(f"cp own/{models.name}/{whole.name} own/{models.name}/last.ckpt\n")
    (models / "last.ckpt").write_bytes(whole.read_bytes())
    assert call("train", *RESUME, cwd=folder).returncode == 0
