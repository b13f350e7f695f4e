"""The benchmarks.faults campaigns: the broken promises they notice, and their comparisons."""

from types import SimpleNamespace

import numpy as np
import pytest
from run_fakes import tiny_record

from benchmarks import faults
from benchmarks.common.records import check_whole
from benchmarks.stress.campaigns import disk, kills, soak
from benchmarks.stress.campaigns.kills import Promised
from benchmarks.stress.campaigns.runs import Announced, Count, Event, Results, Run, read_frames
from doom_a3c.run.checkpoints.checkpoint import save
from doom_a3c.run.checkpoints.run_record import Best

pytestmark = pytest.mark.tools

SAID = """training cartpole: 1 workers x 4 games, 1,000 frames; logs in logs
evaluation at 4,608 frames: greedy 132.0 +- 19.0, sampled 84.0 +- 2.00, 2 episodes each, the highest so far
0.5% | 4:51 left | frames 10,240/2,000,000, 6,831 a second | evaluation 132.0, best 132.0 | episodes 446 | entropy 0.187
evaluation at 12,544 frames: greedy -3.5 +- 0.50, sampled -7.25 +- 9.00, 2 episodes each
evaluation at 21,056 frames: greedy -72.0 +- 5.00, sampled 140.5 +- 30.5, 2 episodes each, the highest so far
evaluation at 30,000 frames: greedy 500.0 +- 0.00, sampled 50"""


def checkpoint(path, frames, score=None):
    path.parent.mkdir(exist_ok=True)
    counts = {"frames": frames, "steps": 250, "updates": 10, "episodes": 3}
    record = tiny_record()
    record = record._replace(counters=record.counters._replace(**counts), best=Best(score))
    save(path, {"weights": np.arange(1000, dtype=np.float32)}, record)


@pytest.fixture
def run(tmp_path):
    """A run that has ended and left a log."""
    (tmp_path / "log").write_text(SAID)
    return Run(SimpleNamespace(pid=0, poll=lambda: 1, returncode=1), tmp_path, tmp_path / "log")


def test_announcements_are_read_from_whole_lines(run):
    assert run.announced() == [Announced(4608, 132.0), Announced(21056, 140.5)]
    assert run.frames_shown() == 10240


@pytest.mark.parametrize(
    ("last", "best", "complaint"),
    [
        ((900, None), (700, 140.5), "last.ckpt went back: 900 frames after 1,000"),
        ((1000, None), (700, 131.0), "best.ckpt scores 131.0, 140.5 had been announced"),
        ((1000, None), (600, 140.5), "best.ckpt is of 600 frames, 700 had been announced"),
        ((1000, None), None, "best.ckpt is gone"),
        (None, (700, 140.5), "last.ckpt went back: -1 frames after 1,000"),
    ],
)
def test_a_checkpoint_behind_its_promise_fails(run, last, best, complaint):
    for path, content in ((run.last, last), (run.best, best)):
        if content:
            checkpoint(path, *content)
    with pytest.raises(ValueError, match=complaint):
        kills.check(run, Promised(Announced(700, 140.5), Count(1000, 250, 10, 3)), 140.5)


def test_checkpoints_that_keep_their_promises_pass(run):
    checkpoint(run.last, 1000)
    checkpoint(run.best, 700, 140.46)  # announced with one decimal
    kills.check(run, Promised(Announced(700, 140.5), Count(1000, 250, 10, 3)), 140.5)


def test_a_damaged_checkpoint_fails(run):
    checkpoint(run.last, 1000)
    data = run.last.read_bytes()
    run.last.write_bytes(data[:-1] + b"x")
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged"):
        check_whole(run.last)
    run.last.write_bytes(data[:100])
    with pytest.raises(ValueError, match=r"last\.ckpt"):
        read_frames(run.last)


def test_results_persist_and_make_a_table(tmp_path, capsys):
    results = Results(tmp_path / "results.jsonl")
    results.add(Event(kills.CAMPAIGN, "cartpole, save", True, 1.0, 8.0))
    results.add(Event(kills.CAMPAIGN, "cartpole, save", False, 3.0, None, "gone"))
    results.add(Event(disk.CAMPAIGN, "disk full", True, 0.0, 0.5))
    assert len(Results(tmp_path / "results.jsonl").of(kills.CAMPAIGN)) == 2
    text = faults.make_table(results.of(kills.CAMPAIGN))
    assert (
        "| kill -9 of train.py: cartpole, save | 2 | 1 | 2.0 (3.0) s since the last checkpoint, or the start | 8.0 (8.0) |"
        in text
    )
    assert "- 1 times kill -9 of train.py: cartpole, save: gone" in text


def samples(**changes):
    """Returns an hour of samples, one every ten seconds; `changes` are how much values grow a second."""
    start = soak.Sample(0.0, 0, 1000.0, 60, 200, 5.0, 1.0)._asdict()
    growing = {"frames": 100.0, **changes}
    return [
        soak.Sample(**{name: value + growing.get(name, 0) * second for name, value in {**start, "seconds": second}.items()})
        for second in range(0, 3600, 10)
    ]


def test_a_flat_soak_passes():
    rows = {row.what: row for row in soak.compare_windows(samples(), 60)}
    assert all(row.held for row in rows.values())
    assert rows["frames/s"].first == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"megabytes": 0.02}, "memory, MB"),
        ({"descriptors": 0.01}, "file descriptors"),
        ({"threads": 0.01}, "threads"),
        ({"shared": 0.001}, "/dev/shm, MB"),
    ],
)
def test_a_growing_soak_fails(changes, failed):
    assert [row.what for row in soak.compare_windows(samples(**changes), 60) if not row.held] == [failed]


def test_a_log_may_grow_steadily_but_not_ever_faster():
    assert all(row.held for row in soak.compare_windows(samples(log=0.001), 60))
    faster = [each._replace(log=each.seconds**2 / 1e6) for each in samples()]
    assert [row.what for row in soak.compare_windows(faster, 60) if not row.held] == ["TensorBoard, MB an hour"]


def test_a_falling_frame_rate_fails_and_a_rising_one_passes():
    slower = [each._replace(frames=each.frames - each.seconds**2 / 200) for each in samples()]
    assert [row.what for row in soak.compare_windows(slower, 60) if not row.held] == ["frames/s"]
    faster = [each._replace(frames=each.frames + each.seconds**2 / 200) for each in samples()]
    assert all(row.held for row in soak.compare_windows(faster, 60))
