"""Measures the cluster engine: how much one parameter server carries, and how soon updates flow again after a death.

    python benchmarks/cluster.py load --hosts 1 2 4
    python benchmarks/cluster.py faults
    sudo python benchmarks/cluster.py load --machines 3 --rate 1gbit

`load`: fake hosts push gradients or rollouts of the scenario's size to a real server as fast as it answers. `faults`: real
hosts train, and one process after the other is killed with signal 9. With --machines the hosts are machines of their own:
network namespaces of this one, joined by a bridge (needs root and iproute2); they are gone afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from machines import cut_machine, kill_machine, kill_raylet, machine, machines, start_ray  # noqa: E402  # beside this file

from doom_a3c import catalog  # noqa: E402  # the project need not be installed
from doom_a3c.cli import command, remote  # noqa: E402
from doom_a3c.config import Config  # noqa: E402
from doom_a3c.settings import validated  # noqa: E402


class FakeHost:
    """Pushes as a host would, without playing."""

    def __init__(self, name: str, message: dict[str, Any]) -> None:
        self._name, self._message = name, message

    def run(self, seconds: float) -> list[float]:
        """Returns the time of each push that was taken in, in seconds; tries that found the queue full are part of it."""
        from doom_a3c.engines.connection import call_server

        joined = call_server("join", self._name)
        version, sequence, times = joined["version"], 0, []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sequence += 1
            start = time.monotonic()
            while True:
                message = {**self._message, "version": version}
                answer = call_server("push", self._name, joined["generation"], sequence, message, version)
                version = answer["version"]
                if answer["verdict"] != "full":
                    break
                time.sleep(0.01)
            times.append(time.monotonic() - start)
        return times


def settings_of(scenario: str, **changes: Any) -> tuple[Config, dict[str, Any], Any]:
    """Returns a scenario's settings, the same as plain data, and what builds its networks."""
    from doom_a3c.cli.build import Builder

    found = catalog.find(scenario)
    config = validated(Config, {**found.training, "scenario": scenario, "engine": "cluster", **changes}, "settings")
    return config, remote.settings(config, found, 0), Builder(found, config.frame_skip)


def start_state(config: Config, builder: Any) -> Any:
    """Returns the state of a run that has not begun."""
    from doom_a3c.model import GlobalModel, captured
    from doom_a3c.optimizers import make_optimizer
    from doom_a3c.progress import Progress

    network = builder.network("global", 0)
    return captured(GlobalModel(network, make_optimizer(config.optimizer, network.parameters, None)), Progress())


def push_of(config: Config, builder: Any, state: Any) -> dict[str, Any]:
    """Returns a push of the size that a host of this scenario would send."""
    message: dict[str, Any] = {"version": 0, "steps": config.games * config.rollout_length, "episodes": [], "faults": []}
    message |= {"gradients": None, "rollout": None, "not_finite": 0, "metrics": {"Losses/Entropy": 0.0}, "films": []}
    length, games = config.rollout_length, config.games
    if config.transport == "gradients":
        names = [variable.name.split(":")[0] for variable in builder.network("any", 0).parameters]
        size = sum(state.variables[name].size for name in names)
        return {**message, "gradients": np.full(size, 1e-6, np.float32)}
    decisions = {name: np.zeros((length, games), np.float32) for name in ("rewards", "discounts", "values", "next_values")}
    rollout = {
        "observations": np.repeat(np.repeat(builder.example[None], length + 1, 0), games, 1),
        "resets": np.zeros((length + 1, games), np.float32),
        "core_state": tuple(part.numpy() for part in builder.network("any", 0).initial_state(games)),
        "actions": np.zeros((length, games), np.int32),
        "ends": np.zeros((length, games), np.bool_),
        "log_probs": np.full((length, games), -1.0, np.float32),
        **decisions,
    }
    return {**message, "rollout": rollout}


def load(options: argparse.Namespace) -> None:
    """Prints a table of what the server carries."""
    from doom_a3c.engines.connection import connected, placed_on, start_actor, start_server
    from doom_a3c.engines.server import size

    print("| transport | hosts | pushes/s | p50 ms | p95 ms | MB/s sent |\n|---|---|---|---|---|---|", flush=True)
    for transport in options.transports:
        config, settings, builder = settings_of(options.scenario, transport=transport, frames=10**12)
        state = start_state(config, builder)
        message = push_of(config, builder, state)
        for count in options.hosts:
            with connected(options.address, f"load-{transport}-{count}"):
                import ray  # not before: it reads at once whether there is a token

                server = start_server(remote.server, settings, gpu=False)
                patiently("start", {**state._asdict(), "members": {}})
                nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])  # type: ignore[no-untyped-call]
                here = ray.get_runtime_context().get_node_id()
                others = [node for node in nodes if node != here] or nodes
                places = [placed_on(others[index % len(others)]) for index in range(count)]
                hosts = [start_actor(FakeHost, place, f"fake_{i}", message) for i, place in enumerate(places)]
                ray.get([host.run.remote(2.0) for host in hosts])  # everything is compiled and connected
                times = np.concatenate(ray.get([host.run.remote(options.seconds) for host in hosts]))
                rate = len(times) / options.seconds
                p50, p95 = np.percentile(times, [50, 95]) * 1000
                sent = rate * size(message) / 1e6
                print(f"| {transport} | {count} | {rate:.1f} | {p50:.0f} | {p95:.0f} | {sent:.1f} |", flush=True)
                for actor in (*hosts, server):
                    ray.kill(actor)


def patiently(method: str, *arguments: Any, seconds: float = 60.0) -> Any:
    """Calls the server until the call reaches it; returns its answer."""
    from doom_a3c.engines.connection import call_server
    from doom_a3c.engines.host import UnreachableError

    end = time.monotonic() + seconds
    while True:
        try:
            return call_server(method, *arguments)
        except UnreachableError:
            if time.monotonic() > end:
                raise
        time.sleep(0.05)


class Trial:
    """A training run that this process can watch and hurt. Owns the driver's engine."""

    def __init__(self, options: argparse.Namespace, hosts: int, logs: str) -> None:
        from doom_a3c.engines.cluster import ClusterEngine
        from doom_a3c.progress import Progress
        from doom_a3c.summaries import Summaries

        config, settings, builder = settings_of(options.scenario, hosts=hosts, workers=1, frames=10**12)
        self.engine = ClusterEngine(
            hosts=hosts,
            device="cpu",
            settings=settings,
            make_server=remote.server,
            make_host=remote.host,
            state=start_state(config, builder),
            progress=Progress(),
            make_summaries=lambda name: Summaries(Path(logs) / name),
            add_gif=lambda gif: None,
            say=lambda line: None,
        )
        self.engine.start()

    def status(self) -> Any:
        """Returns the server's status, once there is one that is ready."""

        def ready() -> Any:
            self.engine.check()
            found = patiently("status")
            return found if found["ready"] else None

        return until(ready)

    def updates(self) -> int:
        """Returns the number of updates so far."""
        count: int = self.status()["progress"]["updates"]
        return count

    def pushes(self) -> dict[str, int]:
        """Returns how often each host has pushed."""
        return {name: tally["pushes"] for name, tally in self.status()["hosts"].items()}

    def all_push(self, known: dict[str, int]) -> bool:
        """Tells whether every host has pushed more often than that."""
        return all(count > known.get(name, 0) for name, count in self.pushes().items())

    def longest_pause(self, seconds: float) -> float:
        """Returns the longest time without an update in the next seconds."""
        end, last, count, pause = time.monotonic() + seconds, time.monotonic(), self.updates(), 0.0
        while (now := time.monotonic()) < end:
            newest = self.updates()
            pause = max(pause, now - last)
            last, count = (now, newest) if newest > count else (last, count)
            time.sleep(0.02)
        return pause


def faults(options: argparse.Namespace) -> None:
    """Prints a table of what each death costs, of processes or of machines."""
    from doom_a3c.engines.connection import connected

    with tempfile.TemporaryDirectory() as logs, connected(options.address, "faults"):
        trial = Trial(options, 1 if options.address else 2, logs)
        hosts = options.machines + 1 if options.address else 2
        until(lambda: len(trial.pushes()) == hosts and min(trial.pushes().values()) > 20)
        (machine_faults if options.address else process_faults)(trial, options)
        trial.engine.stop()
    if not options.address:
        driver_fault(options)


def process_faults(trial: Trial, options: argparse.Namespace) -> None:
    """Kills hosts and servers."""
    print("| killed | seconds until updates flow again | updates lost |\n|---|---|---|", flush=True)
    for _ in range(options.repeats):
        start = kill("ray::HostActor")
        time.sleep(1.0)  # what was on the way has come
        known = trial.pushes()
        until(functools.partial(trial.all_push, known))
        print(f"| a host | {time.monotonic() - start:.1f} (its own; the other's never stop) | 0 |", flush=True)
    for _ in range(options.repeats):
        time.sleep(2.0)
        before = trial.updates()
        start = kill("ray::ServerActor")
        time.sleep(0.5)
        first = trial.updates()
        while trial.updates() <= first:
            time.sleep(0.02)
        print(f"| the server | {time.monotonic() - start:.1f} | {max(0, before - first)} |", flush=True)


def machine_faults(trial: Trial, options: argparse.Namespace) -> None:
    """Hurts the last machine in one way after the other, and has it join again."""
    import ray

    def alive() -> int:
        return sum(node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]  # of Ray

    count = alive()
    print("| machine | longest pause of all updates, s | given up or taken in after, s |\n|---|---|---|", flush=True)
    for what, hurt in (("its raylet killed", kill_raylet), ("all killed", kill_machine), ("cut off", cut_machine)):
        with ThreadPoolExecutor() as pool:
            start = time.monotonic()
            hurt(options.machines)
            pause = pool.submit(trial.longest_pause, 15.0)
            until(lambda: alive() < count)
            noticed = time.monotonic() - start
            print(f"| {what} | {pause.result():.1f} | {noticed:.1f} |", flush=True)
        if hurt is not cut_machine:
            kill_machine(options.machines)  # what the raylet has left
            start, known = time.monotonic(), len(trial.pushes())
            start_ray(options.machines)
            while len(trial.pushes()) <= known:
                time.sleep(0.1)
            print(f"| joins | - | {time.monotonic() - start:.1f} |", flush=True)


def driver_fault(options: argparse.Namespace) -> None:
    """Kills a driver and resumes its run, as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{name}-dir={folder}/{name}" for name in ("models", "frames", "logs")]
        flags = ["--engine=cluster", "--checkpoint-every=0.5", "--evaluate-every=0", "--quiet", *outputs]
        train = [sys.executable, str(ROOT / "train.py"), *flags]

        def updates() -> int:
            with contextlib.suppress(OSError), zipfile.ZipFile(f"{folder}/models/last.ckpt") as archive:
                return int(json.loads(archive.read("checkpoint.json"))["progress"]["updates"])
            return 0

        def learning(run: subprocess.Popen[bytes], known: int) -> None:
            until(lambda: updates() > known)
            run.kill()
            run.wait()

        learning(subprocess.Popen([*train, f"--scenario={options.scenario}"]), 30)
        saved, start = updates(), time.monotonic()
        learning(subprocess.Popen([*train, "--resume"]), saved)
        print(f"| the driver, then --resume | {time.monotonic() - start:.1f} | since the last checkpoint |", flush=True)


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Returns a condition's value once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError("what was waited for has not come")
        time.sleep(0.05)
    return value


def kill(name: str) -> float:
    """Kills the first process of this session's that has a name; returns the time."""
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            if (path / "cmdline").read_bytes().startswith(name.encode()) and descends(int(path.name)):
                os.kill(int(path.name), signal.SIGKILL)
                return time.monotonic()
    raise ProcessLookupError(name)


def descends(pid: int) -> bool:
    """Tells whether this process has started that one, or one that has."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def main() -> int:
    """Measures what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("load", "faults"))
    parser.add_argument("--scenario", default="basic", help="whose network and rollouts (default basic)")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4], help="load: fake hosts (default 1 2 4)")
    parser.add_argument("--transports", nargs="+", default=["gradients", "rollouts"], help="load: default both")
    parser.add_argument("--seconds", type=float, default=8.0, help="load: length of a measurement (default 8)")
    parser.add_argument("--repeats", type=int, default=3, help="faults: deaths of each kind (default 3)")
    parser.add_argument("--machines", type=int, default=0, help="network namespaces that play (default 0: this machine)")
    parser.add_argument("--rate", help="of the links between those: 1gbit, for example")
    parser.add_argument("--address", help="of a cluster that runs already")
    options = parser.parse_args()
    if options.machines and not options.address:
        with machines(options.machines, options.rate) as address:
            inside = ["ip", "netns", "exec", machine(0), sys.executable, str(Path(__file__).resolve())]
            return subprocess.run([*inside, *sys.argv[1:], "--address", address], check=False).returncode
    command.import_tensorflow(1, verbose=False, device="cpu")
    (load if options.what == "load" else faults)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
