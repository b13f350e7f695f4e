"""The cluster engine on real Ray, as users call it: what it survives, what it leaves behind, whom it lets in."""

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
RUN = ("--scenario", "cartpole", "--engine", "cluster", "--workers", "1", "--evaluation-episodes", "2")
SECONDS = 900  # that anything may take, beside whatever else
until = partial(until_within, seconds=SECONDS, pause=0.5)


@pytest.fixture
def folder(tmp_path):
    """Where a run works; whatever it has started is ended."""
    yield tmp_path
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)
    for path in ray_folders(tmp_path):
        shutil.rmtree(path)


def ray_folders(folder):
    """Returns where Ray has kept its files for the runs and clusters of a test: others play beside it."""
    noted = (folder / "pids").read_text().split() if (folder / "pids").exists() else []
    names = [f"ray_{os.getpid()}_*", *(f"ray_a3c_{pid}_*" for pid in noted)]
    return [path for name in names for path in Path("/tmp").glob(name)]


def started(folder, *arguments):
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *RUN, "--evaluate-every", "0", *map(str, arguments)],
            cwd=folder,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    with (folder / "pids").open("a") as pids:
        print(run.pid, file=pids)
    return run


def said(folder):
    return (folder / "output").read_text()


def finished(folder, run):
    _, errors = run.communicate(timeout=SECONDS)
    return run.returncode, said(folder), errors


def ran(folder, *arguments):
    return finished(folder, started(folder, *arguments))


def refused(folder, *arguments):
    """Returns the one line that refuses a run."""
    result = call("train", *RUN, *arguments, cwd=folder)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result
    return result.stderr


def processes_of(folder):
    """Returns the names of the processes that work in a folder, by pid: a run's, and those of its Ray."""
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


def saved(folder):
    """Returns the counters of the newest checkpoint, none before there is one."""
    path = folder / "models" / "last.ckpt"
    return load(path, GameOverride(scenario="cartpole")).record.counters if path.exists() else Progress().counters()


def traces(folder):
    """Returns what a run could leave behind on this machine, besides processes."""
    found = (*Path("/dev/shm").iterdir(), *ray_folders(folder))
    others = ("ViZDoom", "sem.mp-")  # of tests beside this one; CartPole and Ray have neither
    return {str(path) for path in found if not path.name.startswith(others)}


def test_a_killed_driver_takes_everything_along_and_its_run_is_resumed_to_its_budget(folder, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # which is not for us
    before = traces(folder)
    run = started(folder, "--frames", 100_000_000, "--checkpoint-every", 2)
    until(lambda: saved(folder).updates > 0, "the first checkpoint")
    for pid in pids(folder, "raylet"):
        assert b"RAY_AUTH_MODE=token" in (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
    until(lambda: list((folder / "frames").glob("*/*.gif")), "the first recording")
    until(lambda: {path.name[:5] for path in (folder / "logs").glob("*/*")} >= {"globa", "serve", "host_"}, "the logs")
    niceness = {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids(folder, "Actor")}
    assert niceness == {os.getpriority(os.PRIO_PROCESS, 0)}
    run.kill()
    run.communicate()
    until(lambda: processes_of(folder) == {}, "the end of all processes")
    checkpoint = saved(folder)
    budget = checkpoint.episodes + 100
    status, output, errors = ran(folder, "--resume", "--hosts", 2, "--episodes", budget, "--summary", "summary.json")
    assert (status, errors) == (0, "")
    assert "resuming at frame" in output
    assert "2 hosts a machine" in output
    assert processes_of(folder) == {}
    assert traces(folder) <= before  # what the killed one could not remove is removed by the next
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped_by"] == "episodes"
    assert budget <= summary["episodes"] < budget + 500
    assert summary["frames"] == summary["steps"] > checkpoint.frames
    assert summary["frames"] % 256 == 0  # whole rollouts
    assert summary["faults"] == {}
    assert len(saved(folder).curve) == summary["episodes"]
    assert saved(folder).updates == summary["updates"] > checkpoint.updates


def test_a_run_that_is_interrupted_while_ray_starts_leaves_nothing(folder):
    run = started(folder)
    until(lambda: ray_folders(folder), "the folder of Ray")
    run.send_signal(signal.SIGINT)
    status, _, errors = finished(folder, run)
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
def test_a_cluster_without_a_token_is_refused_in_one_line(folder, monkeypatch, environment, remedy):
    monkeypatch.setenv("HOME", str(folder))  # where Ray keeps the token of this machine
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert remedy in refused(folder, "--address", f"127.0.0.1:{free_port()}")
    assert not list(folder.glob("models"))


def test_an_address_where_no_cluster_is_says_so_in_one_line(folder, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    address = f"127.0.0.1:{free_port()}"
    assert address in refused(folder, "--address", address)


def cluster_with(folder, mode):
    """Starts a cluster of one machine as a user would; returns its address."""
    port = free_port()
    (folder / "token").write_text("a" * 64)
    ray_start(folder, mode, "--head", f"--port={port}", "--include-dashboard=false")
    return f"127.0.0.1:{port}"


def ray_start(folder, mode, *role):
    """Adds a machine to a cluster, or begins one."""
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
    """The token of this test's cluster, for a run."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "token"))


def survives(folder, pid, fault, times=1):
    """Kills a process of a run; returns when a checkpoint tells of that, and a later one that the run has learned on."""
    before = saved(folder)
    os.kill(pid, signal.SIGKILL)
    mended = until(lambda: saved(folder).faults.get(fault) == times and saved(folder), f"the notice of {fault}")
    after = until(lambda: saved(folder).updates > mended.updates + 5 and saved(folder), "learning on")
    assert before.frames <= mended.frames < after.frames
    assert before.updates <= mended.updates


def test_a_run_on_a_users_cluster_survives_its_actors_and_machines_and_leaves_it_as_it_was(folder, secret):
    doom = ("--scenario", "basic", "--envs-per-worker", 2, "--gif-every", 0)
    address = cluster_with(folder, "token")
    before = set(pids(folder, "gcs_server") + pids(folder, "raylet"))
    run = started(folder, *doom, "--address", address, "--frames", 100_000_000, "--checkpoint-every", 1)
    until(lambda: saved(folder).updates > 5, "the first checkpoint")
    (host,) = pids(folder, "ray::HostActor")
    engines = set(pids(folder, "vizdoom"))
    assert len(engines & family(host)) == len(engines) == 2
    survives(folder, host, "host_lost")
    until(lambda: not engines & set(pids(folder, "vizdoom")), "the end of its engines")
    assert len(pids(folder, "ray::HostActor")) == 1
    ray_start(folder, "token", f"--address={address}")
    until(lambda: len(list((folder / "logs").glob("*/host_*"))) == 2, "the second host's pushes")
    assert len(pids(folder, "ray::HostActor")) == 2
    seen = len(said(folder))
    survives(folder, *pids(folder, "ray::ServerActor"), "server_restarted")
    until(lambda: "| engine 2 hosts: " in said(folder)[seen:], "a line of the rates of both")
    (machine,) = set(pids(folder, "raylet")) - before
    survives(folder, machine, "host_lost", times=2)
    actors = pids(folder, "ray::HostActor") + pids(folder, "ray::ServerActor")
    members = {*actors, *(pid for actor in actors for pid in family(actor))}
    assert len(members & set(pids(folder, "vizdoom"))) == 2
    run.send_signal(signal.SIGINT)
    status, output, errors = finished(folder, run)
    assert (status, errors) == (130, f"{StoppingRule.SAVING}\n")
    assert "died" in output
    assert "host_lost 2" in output
    assert "server_restarted 1" in output
    assert set(pids(folder, "gcs_server") + pids(folder, "raylet")) == before
    until(lambda: not members & set(processes_of(folder)), "the end of the actors and their engines")
    frames = saved(folder).frames + 1000
    goes_on = ("--resume", "--scenario", "basic", "--address", address, "--transport", "rollouts", "--frames", frames)
    resumed = call("train", *RUN, "--evaluate-every", 0, *goes_on, cwd=folder, timeout=SECONDS)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert saved(folder).frames >= frames
    assert set(pids(folder, "gcs_server") + pids(folder, "raylet")) == before


def test_a_users_cluster_that_asks_for_no_token_is_refused(folder, secret):
    assert "does not ask for a token" in refused(folder, "--address", cluster_with(folder, "disabled"))
