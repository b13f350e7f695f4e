"""The benchmark beside other libraries: its figures, its file of results, and that no process outlives a run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import peers
import supervised
from peers import Point, Points, System, UserError

pytestmark = pytest.mark.tools

# A trainer with an engine: in a session of its own, deaf to SIGTERM, with shared memory mapped.
ENGINE = """
import mmap, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "wb+") as file:
    file.write(bytes(4096)); file.flush()
    memory = mmap.mmap(file.fileno(), 4096)
    print("mapped", flush=True)
    time.sleep(600)
"""
TRAINER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], start_new_session=True)
time.sleep(600)
"""
REPORTER = """
import argparse, json, time
parser = argparse.ArgumentParser()
parser.add_argument("--points")
path = parser.parse_known_args()[0].points
for frames, mean in ((0, None), (400, 10.0), (800, 80.0)):
    with open(path, "a") as file:
        file.write(json.dumps({"time": time.time(), "frames": frames, "mean": mean}) + "\\n")
    time.sleep(0.2)
time.sleep(600)
"""


def options(folder, *flags):
    return peers.parse([f"--results={folder / 'results.jsonl'}", "--seeds", "1", "--minutes=1", *flags])


def test_rate_is_the_median_of_windows_after_the_warm_up():
    speeds = [1000] * 5 + [10] * 5 + [20] * 5 + [90] * 5  # frames in each second; the slow start of all is left out
    points = [Point(float(second), sum(speeds[:second]), None) for second in range(len(speeds) + 1)]
    assert peers.rate(points) == 20.0
    assert peers.rate([Point(p.seconds, 7 * int(p.seconds), None) for p in points]) == 7.0


def test_rate_of_a_run_that_is_too_short_is_unknown():
    assert peers.rate([Point(0.0, 0, None), Point(9.0, 900, None)]) is None


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "points"
    points = Points(path, start=100.0)
    points.read()
    whole = json.dumps({"time": 103.0, "frames": 8, "mean": 76.0}) + "\n"
    path.write_text(whole + whole[:9])
    points.read()
    assert points.all == [Point(3.0, 8, 76.0)]
    path.write_text(whole + whole)
    points.read()
    assert len(points.all) == 2


def test_a_target_reached_after_the_limit_is_missed(tmp_path):
    points = Points(tmp_path / "none", start=0.0)
    points.all = [Point(30.0, 100, 50.0), Point(61.0, 200, 99.0)]
    result = peers.outcome(points, "sb3_ppo", options(tmp_path), reason="")
    assert (result["outcome"], result["best_mean"]) == ("missed", 50.0)
    points.all.insert(1, Point(60.0, 150, 75.0))
    result = peers.outcome(points, "sb3_ppo", options(tmp_path), reason="")
    assert (result["outcome"], result["seconds"], result["frames"]) == ("reached", 60.0, 150)


def test_nothing_outlives_a_run(tmp_path):
    memory = Path(f"/dev/shm/ViZDoomTest{time.time_ns()}")
    log = tmp_path / "log"
    with supervised.running([sys.executable, "-c", TRAINER, ENGINE, str(memory)], tmp_path, log) as process:
        end = time.monotonic() + 30
        while "mapped" not in log.read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        environment = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
        mark = next(entry for entry in environment if entry.startswith(supervised.MARK))
        assert len(supervised.marked(mark)) == 2
    assert supervised.marked(mark) == []
    assert not memory.exists()


def test_runs_are_kept_and_not_repeated(tmp_path, monkeypatch, capsys):
    runner = tmp_path / "runner.py"
    runner.write_text(REPORTER)
    monkeypatch.setitem(peers.SYSTEMS, "this", System("ours", (str(runner),)))
    chosen = options(tmp_path, "--only", "this")
    peers.campaign(chosen)
    peers.campaign(chosen)
    (result,) = peers.finished_runs(chosen.results)
    assert (result["outcome"], result["frames"]) == ("reached", 800)
    assert "1 runs, 1 of them finished before" in capsys.readouterr().err
    assert "| 1 of 1 |" in peers.table(chosen)


def test_a_run_that_fails_is_written_as_failed(tmp_path, monkeypatch):
    runner = tmp_path / "runner.py"
    runner.write_text("raise SystemExit('no games | here')")
    monkeypatch.setitem(peers.SYSTEMS, "this", System("ours", (str(runner),)))
    chosen = options(tmp_path, "--only", "this")
    peers.campaign(chosen)
    assert peers.finished_runs(chosen.results)[0]["reason"] == "no games | here"
    assert "failed: no games / here" in peers.table(chosen)


def test_ratios_are_to_this_program(tmp_path):
    chosen = options(tmp_path)
    runs = [
        {**peers.settings(name, 1, chosen), "outcome": "reached", "frames_per_second": rate, "seconds": seconds}
        for name, rate, seconds in (("this", 1000.0, 40.0), ("sample_factory", 250.0, 300.0))
    ]
    chosen.results.write_text("".join(json.dumps(run) + "\n" for run in runs))
    row = next(line for line in peers.table(chosen).splitlines() if "Sample Factory" in line)
    assert "| 250 | 0.25 | 300 (300) | 7.50 | 1 of 1 |" in row


BARE = str(Path(sys.base_prefix, "bin", "python3"))  # has no packages


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--only", "sb3_ppo"], "--peers-python is missing"),
        (["--only", "sb3_ppo", "--peers-python", "/no/such/python"], "is no Python that runs"),
        (["--only", "sb3_ppo", "--peers-python", BARE], "install benchmarks/requirements-peers.txt"),
        (["--games", "3"], "--games must be an even number"),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, message):
    script = [sys.executable, str(Path(peers.__file__)), f"--results={tmp_path / 'results.jsonl'}", *flags]
    answer = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_file_that_holds_no_results_is_a_mistake(tmp_path):
    chosen = options(tmp_path)
    chosen.results.write_text("frames/s\n")
    with pytest.raises(UserError, match="--results"):
        peers.table(chosen)
