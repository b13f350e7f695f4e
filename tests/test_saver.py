"""Saving: when a checkpoint is due, and what it contains."""

import errno
from types import SimpleNamespace

import pytest
from fakes import model
from run_fakes import tiny_record

from doom_a3c.engines.local import capture_state
from doom_a3c.engines.updates import DivergedError
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run import saver as module
from doom_a3c.run.checkpoints import folder as folder_module
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best
from doom_a3c.run.saver import Saver


@pytest.fixture
def state():
    progress = Progress()
    progress.add_steps(8, 32, [1.5, -2.0], ["engine_died"])
    return capture_state(model(), progress)


def test_a_checkpoint_is_due_one_interval_after_the_last(tmp_path, monkeypatch, state):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, [].append)
    due = []
    for clock[0] in (100.0, 159.0, 160.0):
        due.append(saver.is_due())
    saver.save(state, Best())
    for clock[0] in (160.0, 219.0, 220.0):
        due.append(saver.is_due())
    saver.save_best(state, Best())  # does not count
    assert [*due, saver.is_due()] == [False, False, True, False, False, True, True]


def test_a_checkpoint_holds_the_run_and_its_current_counters(tmp_path, state):
    record = tiny_record(restarts=2)
    saver, best = Saver(CheckpointFolder(tmp_path), record, 60.0, [].append), Best(3.5, "sample")
    saver.save(state, best)
    newest = load(tmp_path / "last.ckpt")
    assert newest.record == record._replace(counters=state.counters, best=best)
    assert newest.variables.keys() == state.variables.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frames-000000000032.ckpt", "last.ckpt"]


def test_the_best_is_saved_in_a_separate_file(tmp_path, state):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, [].append)
    saver.save_best(state, Best(3.5, "greedy"))
    assert [path.name for path in tmp_path.iterdir()] == ["best.ckpt"]
    assert load(tmp_path / "best.ckpt").record.best == Best(3.5, "greedy")


@pytest.fixture
def disk(monkeypatch):
    """A fake disk; it is full while `disk[0]` is true."""
    full, write = [False], folder_module.save

    def save(path, variables, record):
        if full[0]:
            raise OSError(28, "No space left on device")
        write(path, variables, record)

    monkeypatch.setattr(folder_module, "save", save)
    return full


def test_a_full_disk_warns_once_and_the_save_is_retried(tmp_path, monkeypatch, state, disk):
    clock, lines = [100.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, lines.append)
    saver.begin(state, Best())
    before = (tmp_path / "last.ckpt").read_bytes()
    disk[0] = True
    saver.save_best(state, Best(7.0, "greedy"))
    saver.save(state, Best(7.0, "greedy"))
    assert (tmp_path / "last.ckpt").read_bytes() == before
    with pytest.raises(module.SaveError, match=r"No space left on device"):
        saver.check()
    for clock[0], due in ((109.0, False), (110.0, True)):
        assert saver.is_due() == due
    disk[0] = False
    saver.save(state, Best(7.0, "greedy"))
    saver.check()
    assert [load(tmp_path / f"{name}.ckpt").record.best.score for name in ("best", "last")] == [7.0, 7.0]
    assert lines == [
        "warning: checkpoints not written: No space left on device; trying again",
        "checkpoints written again",
    ]


def test_a_folder_blocking_the_temporary_file_is_named(tmp_path, state):
    (tmp_path / ".saving-frames-000000000000").mkdir()
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print)
    with pytest.raises(module.SaveError, match=r"\.saving-frames-000000000000.*directory"):
        saver.begin(state._replace(counters=state.counters._replace(frames=0)), Best())


def test_the_newest_state_is_saved_if_only_the_best_does_not_fit(tmp_path, monkeypatch, state):
    def save_best(folder, variables, record):
        raise OSError(errno.ENOSPC, "No space left on device")

    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print)
    saver.begin(state, Best())
    monkeypatch.setattr(CheckpointFolder, "save_best", save_best)
    saver.save_best(state, Best(7.0, "greedy"))
    saver.save(state._replace(counters=state.counters._replace(frames=96)), Best(7.0, "greedy"))
    assert load(tmp_path / "last.ckpt").record.counters.frames == 96
    with pytest.raises(module.SaveError, match=r"No space left.*best weights are not saved"):
        saver.check()
    monkeypatch.undo()
    saver.save(state, Best(7.0, "greedy"))
    saver.check()
    assert load(tmp_path / "best.ckpt").record.best.score == 7.0


@pytest.mark.parametrize(("room", "kept"), [(3, [64, 96, 128]), (2, [96, 128]), (1, [96])])
def test_a_full_disk_drops_older_checkpoints_for_the_newest(tmp_path, monkeypatch, state, room, kept):
    monkeypatch.setattr(folder_module, "KEPT", 5)
    write, lines = folder_module.save, []

    def save(path, variables, record):  # needs room for one more file beside the one it replaces
        files = {path.stat().st_ino for path in tmp_path.glob("*.ckpt")}
        if len(files) >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, variables, record)

    def at(frames):
        return state._replace(counters=state.counters._replace(frames=frames))

    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, lines.append)
    for frames in (0, 32, 64, 96):
        saver.save(at(frames), Best())
    last = (tmp_path / "last.ckpt").read_bytes()
    monkeypatch.setattr(folder_module, "save", save)
    saver.save(at(128), Best())
    assert [int(path.stem.split("-")[1]) for path in sorted(tmp_path.glob("frames-*"))] == kept
    assert ((tmp_path / "last.ckpt").read_bytes() == last) == (kept[-1] == 96)
    assert sum("full" in line for line in lines) == 1
    monkeypatch.undo()
    saver.save(at(160), Best())
    assert load(tmp_path / "last.ckpt").record.counters.frames == 160


def test_on_a_full_disk_newer_best_weights_replace_the_last(tmp_path, monkeypatch, state):
    def at(frames):
        return state._replace(counters=state.counters._replace(frames=frames))

    def save(path, variables, record):
        if len({path.stat().st_ino for path in tmp_path.glob("*.ckpt")}) >= 2:
            assert load(tmp_path / "last.ckpt").record.counters.frames in (0, 64)  # whole at every instant
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, variables, record)

    write, lines = folder_module.save, []
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, lines.append)
    saver.save(at(0), Best())
    saver.save_best(at(64), Best(7.0, "greedy"))
    monkeypatch.setattr(folder_module, "save", save)
    saver.save(at(96), Best(7.0, "greedy"))
    saver.check()
    names = {path.name: load(path).record.counters.frames for path in tmp_path.iterdir()}
    assert names == {"best.ckpt": 64, "frames-000000000096.ckpt": 96, "last.ckpt": 96}
    assert len(lines) == 1


@pytest.mark.parametrize("room", [2, 3, 6])
def test_a_full_disk_without_hard_links_never_hangs_a_save(tmp_path, monkeypatch, state, room):
    def link(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def save(path, variables, record):
        if len(list(tmp_path.glob("*.ckpt"))) >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, variables, record)

    write = folder_module.save
    monkeypatch.setattr(folder_module.os, "link", link)
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, [].append)
    for frames in (0, 32, 64):
        saver.save(state._replace(counters=state.counters._replace(frames=frames)), Best())
    monkeypatch.setattr(folder_module, "save", save)
    saver.save(state._replace(counters=state.counters._replace(frames=96)), Best())
    assert load(tmp_path / "last.ckpt").record.counters.frames in (64, 96)


def test_the_last_error_says_which_checkpoint_has_the_weights(tmp_path, state, disk):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, [].append)
    saver.save(state, Best())
    disk[0] = True
    saver.save(state, Best(7.0, "greedy"))  # the same weights after their evaluation
    with pytest.raises(module.SaveError, match=r"last\.ckpt has the newest weights, without .*evaluation") as raised:
        saver.check()
    assert "not saved" not in str(raised.value)
    saver.save(state._replace(counters=state.counters._replace(frames=1064)), Best())
    with pytest.raises(module.SaveError, match=r"newest state is not saved.*last\.ckpt is older by 1,032 frames"):
        saver.check()


def test_the_last_error_says_where_the_best_weights_are(tmp_path, state, disk):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, [].append)
    saver.save(state, Best())
    disk[0] = True
    saver.save_best(state, Best(7.0, "greedy"))
    with pytest.raises(module.SaveError, match=r"last\.ckpt has the best weights, and best\.ckpt has not"):
        saver.check()


def test_a_full_disk_never_costs_the_best(tmp_path, state, disk):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, [].append)
    saver.save_best(state, Best(7.0, "greedy"))
    saver.save(state, Best(7.0, "greedy"))
    disk[0] = True
    saver.save_best(state, Best(9.0, "greedy"))
    saver.save(state, Best(9.0, "greedy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.ckpt", "frames-000000000032.ckpt", "last.ckpt"]


def test_a_run_that_cannot_be_saved_does_not_start(tmp_path, state, disk):
    disk[0] = True
    lines = []
    with pytest.raises(module.SaveError, match=r"No space left on device.* needs \d+ kB"):
        (saver := Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, lines.append)).begin(state, Best())
    saver.save(state, Best())  # as at the end of every session
    assert lines == []  # no message that the save is retried


def test_low_disk_space_is_reported_at_the_start(tmp_path, monkeypatch, state):
    lines = []
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, lines.append)
    saver.begin(state, Best())
    assert lines == []
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    saver.begin(state, Best())
    assert "1 kB free" in lines[0]


def test_non_finite_weights_are_never_saved(tmp_path, state):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print)
    saver.save(state, Best())
    before = (tmp_path / "last.ckpt").read_bytes()
    state.variables["policy/kernel"][0, 0] = float("nan")
    for save in (saver.save, saver.save_best):
        with pytest.raises(DivergedError, match="not finite"):
            save(state, Best())
    assert (tmp_path / "last.ckpt").read_bytes() == before
    assert not (tmp_path / "best.ckpt").exists()


def test_a_delayed_best_never_replaces_a_better_one(tmp_path, state, disk):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print)
    disk[0] = True
    saver.save_best(state, Best(7.0, "greedy"))
    disk[0] = False
    saver.save_best(state, Best(9.0, "greedy"))
    saver.save(state, Best(9.0, "greedy"))
    assert load(tmp_path / "best.ckpt").record.best.score == 9.0
