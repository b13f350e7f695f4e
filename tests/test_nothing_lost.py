"""What users do to runs by accident: nothing is lost or overwritten, and failing output never ends a run."""

import signal
import subprocess
import sys

import pytest
from commands import ROOT, Running, call
from fakes import until

from benchmarks.common.processes import kill
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.settings.trust import GameOverride

pytestmark = pytest.mark.process

QUICK = (
    "--scenario",
    "cartpole",
    "--workers",
    "1",
    "--envs-per-worker",
    "4",
    "--evaluate-every",
    "0",
    "--evaluation-episodes",
    "1",
)


@pytest.fixture
def running(tmp_path):
    """A run that has started training."""
    with Running("train", *QUICK, "--quiet", "--summary", "summary.json", cwd=tmp_path) as process:
        until((tmp_path / "models" / "last.ckpt").exists, "the first checkpoint", seconds=60)
        yield process


def test_an_unwritable_summary_fails_but_saves_the_model(tmp_path):
    result = call("train", *QUICK, "--frames", "300", "--summary", "/dev/full", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == "train.py: /dev/full could not be written: No space left on device; the model is saved\n"
    assert load(tmp_path / "models" / "last.ckpt").record.counters.frames >= 300


def test_a_run_in_use_is_not_resumed_and_another_can_start(tmp_path, running):
    name = load(tmp_path / "models" / "last.ckpt").record.name
    refused = call("train", "--resume", cwd=tmp_path)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert f"models/{name} is in use by {name} (process {running.pid} on " in refused.stderr
    played = call("play", "--episodes", 1, "--record-episodes", 0, "--random-episodes", 0, cwd=tmp_path)
    assert "still training, at frame " in played.stdout
    assert call("train", *QUICK, "--frames", "300", cwd=tmp_path).returncode == 0
    assert running.status() is None
    kill(running.pid, signal.SIGTERM)
    assert running.end(30).returncode == 128 + signal.SIGTERM
    assert not (tmp_path / "models" / name / ".lock").exists()


def test_a_run_killed_early_can_be_resumed(tmp_path, running):
    kill(running.pid)
    running.end()
    resumed = call("train", "--resume", "--minutes", "0.01", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert load(tmp_path / "models" / "last.ckpt").record.restarts == 1


def piped(folder, line):
    """Runs one of the programs in a shell, with its output redirected."""
    command = ["bash", "-o", "pipefail", "-c", f"{sys.executable} {ROOT}/{line}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", ">/dev/full 2>&1", "| head -1"])
def test_a_run_finishes_even_if_its_output_fails(tmp_path, redirection):
    result = piped(tmp_path, f"train.py {' '.join(QUICK)} --frames 300 {redirection}")
    assert (result.returncode, result.stderr) == (0, "")
    assert load(tmp_path / "models" / "last.ckpt").record.counters.frames >= 300
    result = piped(tmp_path, f"play.py --episodes 1 --record-episodes 0 --random-episodes 1 {redirection}")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "result" / "summary.json").exists()


@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), ("1</dev/null", "Bad file descriptor")]
)
@pytest.mark.parametrize("arguments", ["train.py --list-scenarios", "play.py --list-models"])
def test_a_list_that_cannot_be_printed_gives_an_error(tmp_path, arguments, redirection, why):
    lost = piped(tmp_path, f"{arguments} {redirection}")
    message = f"{arguments.partition(' ')[0]}: standard output could not be written: {why}\n"
    assert (lost.returncode, lost.stderr) == (1, message)


@pytest.mark.parametrize("redirection", ["| head -1", ">&-"])
@pytest.mark.parametrize("arguments", ["--list-scenarios", "--help"])
def test_lists_and_help_end_without_a_traceback(tmp_path, arguments, redirection):
    assert piped(tmp_path, f"train.py {arguments} {redirection}").stderr == ""


def train_on_a_toy(folder, game, *flags):
    arguments = (f"unusable_toys:{game}", *QUICK[2:], "--frames", "300", "--evaluation-episodes", "1", *flags)
    return call("train", "--scenario", *arguments, cwd=folder, PYTHONPATH=str(ROOT / "tests"))


def test_a_failing_reset_gives_a_one_line_error(tmp_path):
    result = train_on_a_toy(tmp_path, "NoLevel-v0")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert "NoLevel-v0 cannot be reset: RuntimeError: no level file" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("FailsLater-v0", " cannot be stepped: RuntimeError: the level has an end"),
        ("QuitsLater-v0", " cannot be stepped: SystemExit: 3"),
        ("OldStep-v0", ": step() returns 4 values"),
        ("ChangesShape-v0", ": its observation_space is Box(-9.0, 9.0, (5,), float64)"),
    ],
)
def test_a_failing_step_gives_a_one_line_error_and_saves_the_run(tmp_path, game, message, processes):
    flags = ("--game-processes", processes, "--rollout-length", "2")
    result = train_on_a_toy(tmp_path, game, *map(str, flags))
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert f"{game}{message}" in result.stderr
    assert "/last.ckpt" in result.stderr
    load(tmp_path / "models" / "last.ckpt", GameOverride(scenario="cartpole"))


def test_verbose_shows_where_an_environment_failed(tmp_path):
    assert "in step" in train_on_a_toy(tmp_path, "FailsLater-v0", "--verbose").stderr


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("NanObservations-v0", "observations that are not finite"),
        ("NanRewards-v0", "rewards that are not finite"),
        ("HugeNumbers-v0", "observations that are not finite, or beyond 1e+15"),
    ],
)
def test_a_run_without_a_finite_update_fails_and_says_why(tmp_path, game, message):
    result = train_on_a_toy(tmp_path, game)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert f"unusable_toys:{game}" in result.stderr
    assert message in result.stderr
