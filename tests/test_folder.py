"""The models folder: one run at a time, no file of another run overwritten, and the best ever is never lost."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from commands import ROOT
from fakes import complaint
from run_fakes import tiny_record

from doom_a3c.run.checkpoints.checkpoint import load, save
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.lock import FolderLock
from doom_a3c.run.checkpoints.run_record import Best
from doom_a3c.settings.errors import UserError

VARIABLES = {"a": np.float32([1, 2])}


@pytest.fixture
def folder(tmp_path):
    return CheckpointFolder(tmp_path)


def best(score, name="run-1", scenario="basic"):
    record = tiny_record(name=name, best=Best(score))
    return record._replace(scenario=replace(record.scenario, name=scenario))


def test_a_resumed_run_adopts_a_best_newer_than_its_checkpoint(folder):
    save(folder.best, VARIABLES, best(305.2))
    assert folder.adopt_best(best(252.4)).best.score == 305.2
    save(folder.best, VARIABLES, best(100.0))  # the file counts: that best could not be written
    assert folder.adopt_best(best(252.4)).best.score == 100.0


def test_without_a_best_checkpoint_there_is_no_score_to_beat(folder):
    assert folder.adopt_best(best(252.4)).best.score is None  # removed, or never written, as on a full disk


@pytest.mark.parametrize(("name", "scenario"), [("run-1", "other"), ("run-2", "basic")])
def test_the_best_of_another_game_or_run_is_set_aside(folder, name, scenario):
    for _ in range(2):
        save(folder.best, VARIABLES, best(100.0))
        assert folder.adopt_best(best(20.0, name, scenario)).best.score is None
        assert not folder.best.exists()
    kept = [load(folder.folder / f"{stem}.ckpt").record.best.score for stem in ("best-basic", "best-basic-2")]
    assert kept == [100.0, 100.0]


def test_the_best_of_a_game_returns_with_the_game(folder):
    save(folder.best, VARIABLES, best(100.0))
    assert folder.adopt_best(best(20.0, scenario="other")).best.score is None
    save(folder.best, VARIABLES, best(7.0, scenario="other"))
    assert folder.adopt_best(best(20.0)).best.score == 100.0
    assert load(folder.best).record.best.score == 100.0
    assert folder.adopt_best(best(1.0, scenario="other")).best.score == 7.0


def test_a_damaged_best_is_set_aside(folder):
    folder.best.write_bytes(b"damaged")
    assert folder.adopt_best(best(20.0)).best.score is None
    assert (folder.folder / "best-unreadable.ckpt").read_bytes() == b"damaged"


# The lock

HOLDER = """
import sys, time
from pathlib import Path
from doom_a3c.run.checkpoints.lock import FolderLock
with FolderLock(Path(sys.argv[1])) as lock:
    lock.note("basic-1", 1024)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "models")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_lock_is_held_until_its_process_dies(tmp_path, holder, death):
    message = complaint(FolderLock, tmp_path / "models")
    assert f"models is in use by basic-1 (process {holder.pid} on " in message
    assert "at frame 1,024" in message
    holder.send_signal(death)
    holder.wait()
    with FolderLock(tmp_path / "models"), pytest.raises(UserError):
        FolderLock(tmp_path / "models")
    with FolderLock(tmp_path / "models"):
        pass


def test_a_run_does_not_write_to_a_removed_or_retaken_folder(tmp_path):
    with FolderLock(tmp_path / "models") as first:
        mine = CheckpointFolder(first.folder, first)
        mine.save(VARIABLES, tiny_record(name="mine-1"))
        shutil.rmtree(tmp_path / "models")
        with pytest.raises(OSError, match="removed"):
            mine.save(VARIABLES, tiny_record(name="mine-1"))
        with FolderLock(tmp_path / "models") as second:
            other = CheckpointFolder(second.folder, second)
            other.save(VARIABLES, tiny_record(name="other-1"))
            with pytest.raises(OSError, match="another run"):
                mine.save_best(VARIABLES, tiny_record(name="mine-1"))
            assert load(other.last).record.name == "other-1"
            first.__exit__()
            assert second.is_held()


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path):
    (tmp_path / ".lock").mkdir()
    assert "--models-dir" in complaint(FolderLock, tmp_path)
    (tmp_path / ".lock").rmdir()
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".lock").symlink_to("victim")
    assert "--models-dir" in complaint(FolderLock, tmp_path)
    assert (tmp_path / "victim").read_text() == "precious"
    (tmp_path / ".lock").unlink()
    os.mkfifo(tmp_path / ".lock")
    assert ".lock" in complaint(FolderLock, tmp_path)


def test_a_lock_file_with_garbage_in_it_still_locks(tmp_path):
    with FolderLock(tmp_path):
        (tmp_path / ".lock").write_bytes(b"\x1b[2J\xff" * 1000)
        assert "in use by another run" in complaint(FolderLock, tmp_path)


def test_untrained_weights_are_removed_once_trained_ones_exist(folder):
    trained = tiny_record()._replace(counters=tiny_record().counters._replace(frames=100))
    folder.save(VARIABLES, tiny_record())
    assert [path.name for path in folder.folder.glob("frames-*")] == ["frames-000000000000.ckpt"]
    folder.save(VARIABLES, trained)
    assert [path.name for path in folder.folder.glob("frames-*")] == ["frames-000000000100.ckpt"]
