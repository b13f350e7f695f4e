"""The cluster engine on real Ray, as users run it: what it survives, what it leaves behind and whom it lets in."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from commands import call
from fakes import until as until_within

from benchmarks.common.processes import family
from doom_a3c.engines.cluster.access import ENVIRONMENT
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.training import StoppingRule
from doom_a3c.settings.trust import GameOverride

pytestmark = [
    pytest.mark.process,
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (requirements-cluster.txt)"),
]
ROOT = Path(__file__).parent.parent
MIXTURE = "registered_toys:tests/Mixture-v0"  # a choice and two numbers
RUN = ("--engine", "cluster", "--workers", "1", "--evaluation-episodes", "2")
SECONDS = 900  # the most that anything may take under other load
until = partial(until_within, seconds=SECONDS, pause=0.5)


@pytest.fixture
def folder(tmp_path):
    """The folder of a run; kills all processes that the run leaves behind."""
    yield tmp_path
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)
    for path in ray_folders(tmp_path):
        shutil.rmtree(path)


def ray_folders(folder):
    """Returns Ray's folders for the runs and clusters of this test; other tests may run beside it."""
    noted = (folder / "pids").read_text().split() if (folder / "pids").exists() else []
    names = [f"ray_{os.getpid()}_*", *(f"ray_a3c_{pid}_*" for pid in noted)]
    return [path for name in names for path in Path("/tmp").glob(name)]


def start_run(folder, *arguments, scenario="cartpole"):
    flags = (*RUN, "--scenario", scenario, "--evaluate-every", 0, *arguments)
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *map(str, flags)],
            cwd=folder,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT / "tests")},
        )
    with (folder / "pids").open("a") as pids:
        print(run.pid, file=pids)
    return run


def read_output(folder):
    return (folder / "output").read_text()


def finish(folder, run):
    _, errors = run.communicate(timeout=SECONDS)
    return run.returncode, read_output(folder), errors


def run_to_end(folder, *arguments, **options):
    return finish(folder, start_run(folder, *arguments, **options))


def refusal(folder, *arguments):
    """Returns the one-line error that refuses a run."""
    result = call("train", *RUN, "--scenario", "cartpole", *arguments, cwd=folder)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result
    return result.stderr


def processes_of(folder):
    """Returns the names, by pid, of the processes that work in a folder: a run's, and those of its Ray."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name = (path / "cmdline").read_bytes().split(b"\0")[0].decode()
            if name and f"TMPDIR={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = name
        except OSError:
            continue
    return found


def pids(folder, name):
    return [pid for pid, known in processes_of(folder).items() if name in known]


def counts(folder, scenario="cartpole"):
    """Returns the counters of the newest checkpoint, or fresh ones before there is any."""
    path = folder / "models" / "last.ckpt"
    return load(path, GameOverride(scenario=scenario)).record.counters if path.exists() else Progress().counters()


def leftovers(folder):
    """Returns what a run could leave behind on this machine, apart from processes."""
    found = (*Path("/dev/shm").iterdir(), *ray_folders(folder))
    others = ("ViZDoom", "sem.mp-")  # from tests that run beside this one; CartPole and Ray have neither
    return {str(path) for path in found if not path.name.startswith(others)}


def test_a_killed_driver_leaves_nothing_and_its_run_resumes(folder, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # must not apply to our own cluster
    before = leftovers(folder)
    run = start_run(folder, "--frames", 100_000_000, "--checkpoint-every", 2, scenario=MIXTURE)
    until(lambda: counts(folder, MIXTURE).updates > 0, "the first checkpoint")
    for pid in pids(folder, "raylet"):
        assert b"RAY_AUTH_MODE=token" in (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
    until(lambda: list((folder / "frames").glob("*/*.gif")), "the first recording")
    until(lambda: {path.name[:5] for path in (folder / "logs").glob("*/*")} >= {"globa", "serve", "host_"}, "the logs")
    niceness = {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids(folder, "Actor")}
    assert niceness == {os.getpriority(os.PRIO_PROCESS, 0)}
    run.kill()
    run.communicate()
    until(lambda: processes_of(folder) == {}, "the end of all processes")
    checkpoint = counts(folder, MIXTURE)
    budget = checkpoint.episodes + 100
    status, output, errors = run_to_end(
        folder, "--resume", "--hosts", 2, "--episodes", budget, "--summary", "summary.json", scenario=MIXTURE
    )
    assert (status, errors) == (0, "")
    assert "resuming at frame" in output
    assert "2 hosts a machine" in output
    assert processes_of(folder) == {}
    assert leftovers(folder) <= before  # the next run removes what the killed one could not
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped_by"] == "episodes"
    assert budget <= summary["episodes"] < budget + 1000
    assert summary["frames"] == summary["steps"] > checkpoint.frames
    assert summary["frames"] % 256 == 0  # whole rollouts
    assert summary["faults"] == {}
    assert len(counts(folder, MIXTURE).curve) == summary["episodes"]
    assert counts(folder, MIXTURE).updates == summary["updates"] > checkpoint.updates


def test_interrupting_a_run_while_ray_starts_leaves_nothing(folder):
    run = start_run(folder)
    until(lambda: ray_folders(folder), "the folder of Ray")
    run.send_signal(signal.SIGINT)
    status, _, errors = finish(folder, run)
    assert (status, errors) == (130, "train.py: interrupted\n")
    until(lambda: processes_of(folder) == {} and not ray_folders(folder), "the end of processes and folder")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("environment", "remedy"),
    [({}, "RAY_AUTH_MODE=token"), ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere"}, "RAY_AUTH_TOKEN_PATH")],
)
def test_connecting_without_a_token_is_refused_in_one_line(folder, monkeypatch, environment, remedy):
    monkeypatch.setenv("HOME", str(folder))  # where Ray keeps the token of this machine
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert remedy in refusal(folder, "--address", f"127.0.0.1:{free_port()}")
    assert not list(folder.glob("models"))


def test_an_address_without_a_cluster_is_a_one_line_error(folder, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    address = f"127.0.0.1:{free_port()}"
    assert address in refusal(folder, "--address", address)


def cluster_with(folder, mode):
    """Starts a one-machine cluster as a user would; returns its address."""
    port = free_port()
    (folder / "token").write_text("a" * 64)
    ray_start(folder, mode, "--head", f"--port={port}", "--include-dashboard=false")
    return f"127.0.0.1:{port}"


def ray_start(folder, mode, *role):
    """Adds a machine to a cluster, or starts one."""
    options = (
        "--node-ip-address=127.0.0.1",
        "--object-store-memory=100000000",
        "--num-cpus=1",
        "--include-log-monitor=false",
    )
    place = f"--temp-dir=/tmp/ray_{os.getpid()}_{free_port()}"
    tokens = {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    environment = {**os.environ, **ENVIRONMENT, "TMPDIR": str(folder), **tokens}
    command = [Path(sys.executable).parent / "ray", "start", *role, *options, place]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=SECONDS)


@pytest.fixture
def secret(folder, monkeypatch):
    """Gives runs the token of this test's cluster."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "token"))


def survives(folder, pid, fault, times=1):
    """Kills a process of a run; waits for a checkpoint that records the fault, and for a later one with more updates."""
    before = counts(folder)
    os.kill(pid, signal.SIGKILL)
    mended = until(lambda: counts(folder).faults.get(fault) == times and counts(folder), f"the notice of {fault}")
    after = until(lambda: counts(folder).updates > mended.updates + 5 and counts(folder), "learning on")
    assert before.frames <= mended.frames < after.frames
    assert before.updates <= mended.updates


def test_a_run_survives_faults_and_leaves_a_users_cluster_intact(folder, secret):
    (folder / "short.toml").write_text('base = "duel"\n[game.match]\nminutes = 0.1\n[training]\nopponents = "self"\n')
    doom = ("--envs-per-worker", 2, "--gif-every", 0)  # a match of two agents
    address = cluster_with(folder, "token")
    before = set(pids(folder, "gcs_server") + pids(folder, "raylet"))
    endless = ("--address", address, "--frames", 100_000_000, "--checkpoint-every", 1)
    run = start_run(folder, *doom, *endless, scenario="short.toml")
    until(lambda: counts(folder).updates > 5, "the first checkpoint")
    (host,) = pids(folder, "ray::HostActor")
    engines = set(pids(folder, "vizdoom"))
    assert len(engines & family(host)) == len(engines) == 2
    survives(folder, host, "host_lost")
    until(lambda: not engines & set(pids(folder, "vizdoom")), "the end of its engines")
    assert len(pids(folder, "ray::HostActor")) == 1
    ray_start(folder, "token", f"--address={address}")
    until(lambda: len(list((folder / "logs").glob("*/host_*"))) == 2, "the second host's pushes")
    assert len(pids(folder, "ray::HostActor")) == 2
    seen = len(read_output(folder))
    survives(folder, *pids(folder, "ray::ServerActor"), "server_restarted")
    until(lambda: "| engine 2 hosts: " in read_output(folder)[seen:], "a line of the rates of both")
    (machine,) = set(pids(folder, "raylet")) - before
    survives(folder, machine, "host_lost", times=2)
    actors = pids(folder, "ray::HostActor") + pids(folder, "ray::ServerActor")
    members = {*actors, *(pid for actor in actors for pid in family(actor))}
    assert len(members & set(pids(folder, "vizdoom"))) == 2
    run.send_signal(signal.SIGINT)
    status, output, errors = finish(folder, run)
    assert (status, errors) == (130, f"{StoppingRule.SAVING}\n")
    assert "died" in output
    assert "host_lost 2" in output
    assert "server_restarted 1" in output
    assert set(pids(folder, "gcs_server") + pids(folder, "raylet")) == before
    until(lambda: not members & set(processes_of(folder)), "the end of the actors and their engines")
    frames = counts(folder).frames + 1000
    resume_flags = ("--resume", "--scenario", "short.toml", "--address", address, "--transport", "rollouts")
    resumed = call("train", *RUN, "--evaluate-every", 0, *resume_flags, "--frames", frames, cwd=folder, timeout=SECONDS)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert counts(folder).frames >= frames
    assert set(pids(folder, "gcs_server") + pids(folder, "raylet")) == before


def test_a_users_cluster_without_token_checks_is_refused(folder, secret):
    assert "does not ask for a token" in refusal(folder, "--address", cluster_with(folder, "disabled"))
