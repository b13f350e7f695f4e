"""The benchmark against other libraries: its rule, its figures and results, and that no process outlives a run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from commands import ROOT

from benchmarks import peers
from benchmarks.common import supervised
from benchmarks.comparison.figures import EPISODES, Mean, Point, Run, compute_rate, summarize_learning
from benchmarks.comparison.runners.report import Report
from benchmarks.comparison.runners.this_training import report_training_games
from benchmarks.comparison.systems import SYSTEMS, System
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rewards import RewardStats
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.actors import ActorFactory
from doom_a3c.run.builder import Builder
from doom_a3c.settings.catalog import find
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError

pytestmark = pytest.mark.tools

# A trainer with an engine in its own session that ignores SIGTERM and has shared memory mapped.
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
parser.add_argument("--report")
path = parser.parse_known_args()[0].report
for frames, scores in ((0, []), (400, [10.0] * 100), (800, [80.0] * 100)):
    with open(path, "a") as file:
        for told in ({"frames": frames}, *({"score": score} for score in scores)):
            file.write(json.dumps({"time": time.time(), **told}) + "\\n")
    time.sleep(0.2)
time.sleep(600)
"""


def options(folder, *flags):
    return peers.parse([f"--results={folder / 'results.jsonl'}", "--seeds", "1", "--minutes=1", *flags])


def run_of(folder, *lines):
    """Returns a run that has reported these lines."""
    path = folder / "report.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run = Run(path, start=0.0)
    run.read()
    return run


def episode(at, score):
    return {"time": at, "score": score}


# The rule


def test_the_mean_is_checked_after_every_episode(tmp_path):
    # It is at the target only briefly, within a rollout: frames are reported at rollout ends, at 100 and 300 s.
    scores = [75.0] * EPISODES + [-300.0] * 5
    lines = [episode(100.0 + number, score) for number, score in enumerate(scores)]
    run = run_of(tmp_path, {"time": 100.0, "frames": 1000}, *lines, {"time": 300.0, "frames": 2000})
    assert len(run.means) == len(scores) - EPISODES + 1
    assert run.reached(75.0, limit=250.0) == Mean(199.0, 75.0)
    assert run.means[-1].score == pytest.approx((95 * 75 - 5 * 300) / 100)
    result = summarize_learning(run, 75.0, 250.0, reason="")
    assert (result["outcome"], result["seconds"], result["frames"], result["episodes"]) == ("reached", 199.0, 1000, 105)


def test_too_few_episodes_have_no_mean(tmp_path):
    run = run_of(tmp_path, *[episode(float(number), 90.0) for number in range(EPISODES - 1)])
    assert run.means == []
    assert run.reached(75.0, limit=1000.0) is None


def test_a_target_reached_after_the_limit_is_missed(tmp_path):
    scores = [50.0] * EPISODES + [99.0] * EPISODES
    lines = [episode(float(number), score) for number, score in enumerate(scores)]
    late = summarize_learning(run_of(tmp_path, *lines), 75.0, 150.0, reason="")
    assert (late["outcome"], late["best_mean"]) == ("missed", pytest.approx(50 + 0.49 * 51))
    in_time = summarize_learning(run_of(tmp_path, *lines), 75.0, 151.0, reason="")
    assert (in_time["outcome"], in_time["seconds"]) == ("reached", 151.0)


def test_a_partial_line_waits_for_its_rest(tmp_path):
    path = tmp_path / "report"
    run = Run(path, start=100.0)
    run.read()
    whole = json.dumps({"time": 103.0, "frames": 8}) + "\n"
    path.write_text(whole + whole[:9])
    run.read()
    assert run.points == [Point(3.0, 8)]
    path.write_text(whole + whole)
    run.read()
    assert len(run.points) == 2


def test_rate_is_the_median_of_windows_after_the_warm_up():
    speeds = [1000] * 5 + [10] * 5 + [20] * 5 + [90] * 5  # frames in each second; the warm-up is left out
    points = [Point(float(second), sum(speeds[:second])) for second in range(len(speeds) + 1)]
    assert compute_rate(points) == 20.0
    assert compute_rate([Point(p.seconds, 7 * int(p.seconds)) for p in points]) == 7.0


def test_a_run_that_is_too_short_has_no_rate():
    assert compute_rate([]) is None
    assert compute_rate([Point(0.0, 0), Point(9.0, 900)]) is None


# Reports of the games


def reported(path):
    return [line["score"] for line in map(json.loads, path.read_text().splitlines()) if "score" in line]


@pytest.mark.parametrize("gif_every", [0, 1])
def test_workers_report_every_episode(tmp_path, gif_every):
    config = Config(rollout_length=200, envs_per_worker=2, gif_every=gif_every)
    builder = Builder(find("cartpole"), config)
    make_actor = ActorFactory(config, builder, Progress(), RewardStats(), lambda recording: None, restarts=0)
    with report_training_games(Report(tmp_path / "report"), frame_skip=1):
        actor = make_actor(0, Policy(builder.make_network("worker", 0)))
    with closing(actor):
        played = actor.play_rollout().stats.episodes
    assert len(played) > 2
    assert reported(tmp_path / "report") == [episode.score for episode in played]


def test_the_peers_game_has_this_programs_actions():
    from benchmarks.comparison.runners.basic_games import make_basic
    from doom_a3c.envs.doom.setup import name_available_actions
    from doom_a3c.settings import catalog

    own = name_available_actions(catalog.find("basic").game)
    game = make_basic(frame_skip=4)
    assert game.action_space.n == len(own)
    names = [button.name for button in game.unwrapped.game.get_available_buttons()]
    pressed = [game.unwrapped.button_map[game.action(action)] for action in range(len(own))]
    assert sorted("+".join(n for n, down in zip(names, each, strict=True) if down) for each in pressed) == sorted(own)
    game.close()


# torch and TensorFlow in one process abort.
STABLE_BASELINES = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from functools import partial
from pathlib import Path
from benchmarks.comparison.runners import stable_baselines
from stable_baselines3.common.vec_env import SubprocVecEnv
path = Path(sys.argv[2])
games = SubprocVecEnv([partial(stable_baselines.make_game, 4, path)] * 2, start_method="fork")
games.seed(1)
before, random = games.reset(), np.random.default_rng(2)
sums, ended = np.zeros(2), []
for step in range(450):
    after, rewards, dones, infos = games.step([1, random.integers(3)])  # the first walks to the right until its time is up
    sums += rewards
    for game in np.flatnonzero(dones):
        last_is_seen = bool((infos[game]["terminal_observation"] == before[game]).all())
        truncated = bool(infos[game]["TimeLimit.truncated"])
        ended.append([int(game), 100 * float(sums[game]), truncated, last_is_seen])
        sums[game] = 0
    before = after
games.close()
print(json.dumps({"ended": ended}))
"""


def test_stable_baselines_gets_truncations_and_reports_scores(tmp_path):
    arguments = [str(ROOT), str(tmp_path / "report")]
    command = [sys.executable, "-c", STABLE_BASELINES, *arguments]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr
    ended = json.loads(answer.stdout.splitlines()[-1])["ended"]
    assert sorted(reported(tmp_path / "report")) == pytest.approx(sorted(score for _, score, _, _ in ended), abs=0.01)
    walker = [truncated for game, _, truncated, _ in ended if game == 0]
    assert len(walker) == 450 // 75
    assert all(walker)
    shooter = [(score, truncated) for game, score, truncated, _ in ended if game == 1]
    assert any(not truncated for _, truncated in shooter)
    assert all(truncated or score > -280 for score, truncated in shooter)  # a kill pays 106
    assert all(last_is_seen for *_, last_is_seen in ended)


# Campaigns


def test_nothing_outlives_a_run(tmp_path):
    memory = Path(f"/dev/shm/ViZDoomTest{time.time_ns()}")
    log = tmp_path / "log"
    with supervised.run_supervised([sys.executable, "-c", TRAINER, ENGINE, str(memory)], tmp_path, log) as process:
        end = time.monotonic() + 30
        while "mapped" not in log.read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        environment = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
        mark = next(entry for entry in environment if entry.startswith(supervised.MARK))
        assert len(supervised.find_marked(mark)) == 2
    assert supervised.find_marked(mark) == []
    assert not memory.exists()


def write_runner(folder, monkeypatch, source):
    """Writes a runner that any interpreter can import; returns its module's name in a tuple."""
    (folder / "toy_runner.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return ("toy_runner",)


def test_finished_runs_are_kept_and_not_repeated(tmp_path, monkeypatch, capsys):
    runner = write_runner(tmp_path, monkeypatch, REPORTER)
    monkeypatch.setitem(SYSTEMS, "this", System("ours", runner, tuned="its own game"))
    chosen = options(tmp_path, "--only", "this")
    peers.campaign(chosen)
    peers.campaign(chosen)
    (result,) = peers.read_finished_runs(chosen.results)
    assert (result["outcome"], result["frames"]) == ("reached", 800)
    assert "1 runs, 1 of them finished before" in capsys.readouterr().err
    assert "| 1 of 1 | its own game |" in peers.make_table(chosen)


def test_results_of_another_rule_are_left_out(tmp_path):
    chosen = options(tmp_path)
    old = {key: value for key, value in peers.make_settings("this", 1, chosen).items() if key != "rule"}
    chosen.results.write_text(json.dumps({**old, "outcome": "reached", "frames_per_second": 9.0, "seconds": 1.0}) + "\n")
    assert peers.make_table(chosen) == ""


def test_every_learning_system_states_its_tuning():
    assert all(system.tuned for system in SYSTEMS.values() if system.learns)


def test_a_failing_run_is_recorded_as_failed(tmp_path, monkeypatch):
    runner = write_runner(tmp_path, monkeypatch, "raise SystemExit('no games | here')")
    monkeypatch.setitem(SYSTEMS, "this", System("ours", runner))
    chosen = options(tmp_path, "--only", "this")
    peers.campaign(chosen)
    assert peers.read_finished_runs(chosen.results)[0]["reason"] == "no games | here"
    assert "failed: no games / here" in peers.make_table(chosen)


def test_ratios_are_relative_to_this_program(tmp_path):
    chosen = options(tmp_path)
    runs = [
        {**peers.make_settings(name, 1, chosen), "outcome": "reached", "frames_per_second": speed, "seconds": seconds}
        for name, speed, seconds in (("this", 1000.0, 40.0), ("sample_factory", 250.0, 300.0))
    ]
    chosen.results.write_text("".join(json.dumps(run) + "\n" for run in runs))
    row = next(line for line in peers.make_table(chosen).splitlines() if "Sample Factory" in line)
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
def test_wrong_options_give_a_one_line_error(tmp_path, flags, message):
    script = [sys.executable, "-m", "benchmarks.peers", f"--results={tmp_path / 'results.jsonl'}", *flags]
    answer = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_file_without_results_is_an_error(tmp_path):
    chosen = options(tmp_path)
    chosen.results.write_text("frames/s\n")
    with pytest.raises(UserError, match="--results"):
        peers.make_table(chosen)
