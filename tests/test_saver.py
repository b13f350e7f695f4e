"""Saving: when a checkpoint is due, and what it says."""

import pytest
from fakes import model
from run_fakes import run_record

from doom_a3c.agent.model import captured
from doom_a3c.record.progress import Progress
from doom_a3c.run import saver as module
from doom_a3c.run.checkpoint import CheckpointFolder, load
from doom_a3c.run.evaluation import Best
from doom_a3c.run.saver import Saver


@pytest.fixture
def state():
    progress = Progress()
    progress.add_steps(8, 32, [1.5, -2.0], ["engine_died"])
    return captured(model(), progress)


def test_a_checkpoint_is_due_so_many_seconds_after_the_last_one(tmp_path, monkeypatch, state):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    saver = Saver(CheckpointFolder(tmp_path), run_record(), 60.0)
    due = []
    for clock[0] in (100.0, 159.0, 160.0):
        due.append(saver.due())
    saver.save(state, Best())
    for clock[0] in (160.0, 219.0, 220.0):
        due.append(saver.due())
    saver.save_best(state, Best())  # is none of those
    assert [*due, saver.due()] == [False, False, True, False, False, True, True]


def test_a_checkpoint_has_the_run_as_it_began_and_the_counters_of_the_moment(tmp_path, state):
    record = run_record(restarts=2)
    saver, best = Saver(CheckpointFolder(tmp_path), record, 60.0), Best(3.5, "sample")
    saver.save(state, best)
    newest = load(tmp_path / "last.ckpt")
    assert newest.record == record._replace(counters=state.counters, best=best)
    assert newest.variables.keys() == state.variables.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frames-000000000032.ckpt", "last.ckpt"]


def test_the_best_is_a_file_of_its_own(tmp_path, state):
    saver = Saver(CheckpointFolder(tmp_path), run_record(), 60.0)
    saver.save_best(state, Best(3.5, "greedy"))
    assert [path.name for path in tmp_path.iterdir()] == ["best.ckpt"]
    assert load(tmp_path / "best.ckpt").record.best == Best(3.5, "greedy")
