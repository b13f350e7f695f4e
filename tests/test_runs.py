"""Run folders, and the links to the newest run."""

import dataclasses
import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import complaint
from run_fakes import tiny_record

from doom_a3c.run.checkpoints import pretrained, runs
from doom_a3c.run.checkpoints.checkpoint import read_label
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.lock import FolderLock, find_progress
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import format_needed_flags
from doom_a3c.run.checkpoints.runs import find_checkpoint, find_run, link_newest, list_runs, open_new_run, open_run
from doom_a3c.run.launch import _name_checkpoint, make_new_run, make_resumed_run
from doom_a3c.run.saver import Saver
from doom_a3c.settings.errors import UserError

VARIABLES = {"a": np.zeros(3, np.float32)}


def record_of(name, models):
    record = tiny_record(name=name)
    return record._replace(config=dataclasses.replace(record.config, models_dir=str(models)))


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path("models")


def save_run(models, name, best=False):
    """Saves the checkpoints of a new run, as a session does at its start."""
    record = record_of(name, models)
    with open_new_run(record) as (record, folder):
        folder.save(VARIABLES, record)
        if best:
            folder.save_best(VARIABLES, record)
        link_newest(folder.folder)
    return folder.folder


def no_links(*arguments):
    raise PermissionError(1, "Operation not permitted")


@pytest.fixture(params=["links", "no links"])
def any_links(request, monkeypatch):
    if request.param == "no links":
        monkeypatch.setattr(Path, "symlink_to", no_links)


def test_a_new_run_is_the_newest_and_leaves_older_runs_alone(models, any_links):
    old = save_run(models, "basic-seed1-20260101-000001", best=True)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()}
    new = save_run(models, "pong-seed1-20260101-000002")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()} == before
    assert find_run(models) == new
    assert read_label(find_checkpoint(models / "last.ckpt")).run == new.name
    assert not find_checkpoint(models / "best.ckpt").exists()  # the older run's best is not the newest's
    assert find_model(str(models)) == new / "last.ckpt"
    assert "best.ckpt; its run saves it with its first evaluation" in complaint(find_model, "models/best.ckpt")
    assert find_model(old.name) == find_model(str(old)) == old / "best.ckpt"


def test_the_best_link_leads_to_a_checkpoint_saved_later(models):
    run = save_run(models, "basic-seed1-20260101-000001")
    with open_run(run) as folder:
        folder.save_best(VARIABLES, tiny_record(name=run.name))
    assert find_checkpoint(models / "best.ckpt") == run / "best.ckpt"
    assert (models / "best.ckpt").exists()


def test_resuming_makes_a_run_the_newest(models, any_links):
    first = save_run(models, "basic-seed1-20260101-000001")
    save_run(models, "pong-seed1-20260101-000002")
    link_newest(first)
    assert find_run(models) == first


def test_a_moved_models_folder_keeps_its_links(models):
    save_run(models, "basic-seed1-20260101-000001", best=True)
    models.rename("elsewhere")
    assert Path("elsewhere/best.ckpt").exists()
    assert find_run(Path("elsewhere")).name == "basic-seed1-20260101-000001"


def test_links_do_not_replace_the_users_files(models):
    models.mkdir()
    (models / "best.ckpt").write_bytes(b"precious")
    run = save_run(models, "basic-seed1-20260101-000001", best=True)
    assert (models / "best.ckpt").read_bytes() == b"precious"
    assert find_run(models) == run
    assert (models / "newest-run.txt").read_text() == f"{run.name}\n"


def test_without_the_newest_run_the_one_saved_last_is_found(models):
    saved_runs = [save_run(models, f"basic-seed1-20260101-00000{number}") for number in (1, 2, 3)]
    for age, run in enumerate(reversed(saved_runs)):
        os.utime(run / "last.ckpt", (1e9 - age, 1e9 - age))
    (saved_runs[2] / "last.ckpt").unlink()
    assert find_run(models) == saved_runs[1]
    assert list_runs(models) == [saved_runs[1], saved_runs[0]]
    assert find_checkpoint(models) == find_model(str(models)) == saved_runs[1] / "last.ckpt"


def test_runs_are_found_by_name_prefix_and_path(models):
    first = save_run(models, "basic-seed1-20260101-000001")
    second = save_run(models, "basic-seed2-20260101-000002")
    assert find_run(models, first.name) == find_run(models, "Basic-seed1") == find_run(models, str(first)) == first
    assert find_model("Basic-seed1") == first / "last.ckpt"
    assert "several runs" in complaint(find_model, "basic-")
    assert "empty" in complaint(find_run, models, "")
    assert "empty" in complaint(find_model, " ")
    message = complaint(find_run, models, "basic")
    assert "basic: several runs" in message
    assert first.name in message
    assert second.name in message
    message = complaint(find_run, models, "basic-sed1")
    assert "basic-sed1: there is no such run" in message
    assert first.name in message
    assert "nowhere" in complaint(find_run, Path("nowhere"), "x")


def test_a_tilde_is_expanded_and_a_folder_of_films_hides_no_model(models, tmp_path, monkeypatch):
    run = save_run(models, "basic-seed1-20260101-000001")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("~/models/last.ckpt") == tmp_path / "models" / run.name / "last.ckpt"
    (tmp_path / "basic").mkdir()  # of play.py --model basic --out basic
    assert find_model("basic") == pretrained.list_models()["basic"]
    (tmp_path / "basic" / "last.ckpt").touch()  # of a run
    assert find_model("basic") == Path("basic/last.ckpt")


@pytest.mark.parametrize("note", ["../outside", "", "missing", "\0", "x" * 5000])
def test_a_damaged_newest_run_file_is_ignored(models, note):
    run = save_run(models, "basic-seed1-20260101-000001")
    Path("outside").mkdir()
    Path("outside/last.ckpt").touch()
    (models / "newest-run.txt").write_text(note)
    assert find_run(models) == run


def test_two_runs_in_one_second_get_different_names(models, monkeypatch):
    names = iter(["basic-seed0-20260101-000001", "basic-seed0-20260101-000002"])
    monkeypatch.setattr(runs, "make_run_name", lambda *parts: next(names))
    record = record_of("basic-seed0-20260101-000001", models)
    with open_new_run(record) as (first, _), open_new_run(record) as (second, folder):
        assert (first.name, second.name) == ("basic-seed0-20260101-000001", "basic-seed0-20260101-000002")
        assert folder.folder == models / second.name
    assert not models.exists()  # neither run started
    assert not Path(record.config.logs_dir).exists()


def test_a_run_that_saved_nothing_leaves_no_logs(models):
    with open_new_run(record_of("basic-seed0-20260101-000001", models)) as (record, _):
        Path("logs", record.name, "global").mkdir()
        Path("logs", record.name, "global", "events").touch()
    assert not any(map(os.path.lexists, ("models", "logs", "frames")))


def test_an_existing_models_folder_stays(models):
    models.mkdir()
    with open_new_run(record_of("basic-seed0-20260101-000001", models)):
        pass
    assert list(models.iterdir()) == []


def test_the_last_frame_of_a_killed_session_is_known(models):
    run = save_run(models, "basic-seed1-20260101-000001")
    with open_run(run) as folder:
        assert folder.lock.killed_at is None
        saver = Saver(folder, tiny_record(name=run.name), 60.0, print)
        saver.note_progress(12_345)
        os.link(run / ".lock", "kept")
    os.rename("kept", run / ".lock")  # as after a kill
    with FolderLock(run) as lock:
        assert lock.killed_at == 12_345
    with FolderLock(run) as lock:
        assert lock.killed_at is None


def test_a_running_session_shows_its_current_frame(models):
    run = save_run(models, "basic-seed1-20260101-000001")
    assert find_progress(run) is None
    with open_run(run) as folder:
        Saver(folder, tiny_record(name=run.name), 60.0, print).note_progress(12_345)
        assert find_progress(run) == 12_345
        os.link(run / ".lock", "kept")
    os.rename("kept", run / ".lock")  # as after a kill
    assert find_progress(run) is None


def test_a_run_directly_in_the_models_folder_is_found(models):
    """Version 1 saved runs there."""
    models.mkdir()
    with open_run(models) as folder:
        folder.save(VARIABLES, tiny_record(name="old-1"))
    assert find_run(models) == models


def test_a_used_up_budget_is_reported_with_the_frames_played(models):
    old = make_new_run({"scenario": "cartpole", "frames": 20_000})
    old = old._replace(counters=old.counters._replace(frames=308_160))
    message = complaint(make_resumed_run, old, {"frames": 100})
    assert "308,160 frames, and its budget is 100;" in message
    assert "its budget is 20,000;" in complaint(make_resumed_run, old, {})
    assert make_resumed_run(old, {"frames": 400_000}).config.frames == 400_000


def test_a_target_already_reached_is_reported_with_the_mean():
    old = make_new_run({"scenario": "cartpole"})
    old = old._replace(counters=old.counters._replace(scores=[50.0] * 99))
    assert make_resumed_run(old, {"target_score": 40.0}).config.target_score == 40  # the mean is over 100 episodes
    old = old._replace(counters=old.counters._replace(scores=[50.0] * 100))
    for target in (40.0, 50.0):
        message = complaint(make_resumed_run, old, {"target_score": target})
        assert all(word in message for word in ("mean", "50.0", f"--target-score is {target:.1f}", "higher"))
    assert make_resumed_run(old, {"target_score": 50.1}).config.target_score == 50.1
    assert make_resumed_run(old, {}).config.target_score is None
    other = {"target_score": 40.0, "scenario": "basic"}  # a game with other scores
    assert make_resumed_run(old, other).config.target_score == 40


def test_resuming_a_modules_game_needs_its_scenario_flag():
    assert format_needed_flags(make_new_run({"scenario": "cartpole"})) == ""
    named = make_new_run({"scenario": "registered_toys:tests/Slow-v0"})
    assert format_needed_flags(named) == " --scenario registered_toys:tests/Slow-v0"


def test_an_error_of_the_game_names_flags_that_find_the_run_again(models):
    run = save_run("my models", "my game-seed1-20260101-000001")
    session = SimpleNamespace(record=record_of(run.name, "my models"))

    def fail():
        with _name_checkpoint(session, CheckpointFolder(run)):
            raise UserError("Mine-v0: KeyError")

    flags = complaint(fail).partition("; ")[2].partition(" continues from ")[0]
    resume, name, models_dir, folder = shlex.split(flags)
    assert (resume, models_dir) == ("--resume", "--models-dir")
    assert find_run(Path(folder), name) == run
