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
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from doom_a3c import catalog  # noqa: E402  # the project need not be installed
from doom_a3c.cli import command, remote  # noqa: E402
from doom_a3c.config import Config  # noqa: E402
from doom_a3c.settings import validated  # noqa: E402

PORT = 6379


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
                places = [placed_on(others[index % len(others)], soft=False) for index in range(count)]
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


def faults(options: argparse.Namespace) -> None:
    """Prints a table of what each death costs."""
    from doom_a3c.engines.cluster import ClusterEngine
    from doom_a3c.engines.connection import connected
    from doom_a3c.progress import Progress
    from doom_a3c.summaries import Summaries

    config, settings, builder = settings_of(options.scenario, hosts=2, workers=1, frames=10**12)
    with tempfile.TemporaryDirectory() as logs, connected(options.address, "faults"):
        engine = ClusterEngine(
            hosts=2,
            device="cpu",
            settings=settings,
            make_server=remote.server,
            make_host=remote.host,
            state=start_state(config, builder),
            progress=Progress(),
            make_summaries=lambda name: Summaries(Path(logs) / name),
            film=lambda film: None,
            say=print,
        )
        engine.start()

        def status() -> Any:
            engine.check()
            found = patiently("status")
            return found if found["ready"] else None

        def pushes() -> dict[str, int]:
            return {name: tally["pushes"] for name, tally in until(status)["hosts"].items()}

        until(lambda: len(pushes()) == 2 and min(pushes().values()) > 20)
        print("| killed | seconds until updates flow again | updates lost |\n|---|---|---|", flush=True)
        for _ in range(options.repeats):
            start = kill("ray::HostActor")
            time.sleep(1.0)  # what was on the way has come
            more_than(pushes, pushes())
            print(f"| a host | {time.monotonic() - start:.1f} | its unsent rollouts |", flush=True)
        for _ in range(options.repeats):
            time.sleep(2.0)
            before = until(status)["progress"]["updates"]
            start = kill("ray::ServerActor")
            time.sleep(0.5)
            first = until(status)["progress"]["updates"]
            more_than(lambda: {"all": until(status)["progress"]["updates"]}, {"all": first})
            print(f"| the server | {time.monotonic() - start:.1f} | {max(0, before - first)} |", flush=True)
        engine.stop()


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Returns a condition's value once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError("what was waited for has not come")
        time.sleep(0.05)
    return value


def more_than(counts: Callable[[], dict[str, int]], known: dict[str, int]) -> None:
    """Waits until all counts are higher than those."""
    until(lambda: all(count > known[name] for name, count in counts().items()))


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


@contextlib.contextmanager
def machines(count: int, rate: str | None) -> Iterator[str]:
    """Makes that many machines of this one, with Ray on each; yields the address of their cluster.

    The driver's own, `a3c0`, is one more: it has the parameter server and plays no host in `load`.
    """
    folder = Path(tempfile.mkdtemp(prefix="n", dir="/tmp"))
    token = folder / "token"
    token.write_text(os.urandom(32).hex())
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    names = [f"a3c{index}" for index in range(count + 1)]

    def run(line: str) -> None:
        done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{line}: {done.stderr or done.stdout}")

    try:
        run("ip netns add a3cb")
        run("ip netns exec a3cb ip link add bridge type bridge")
        run("ip netns exec a3cb ip link set bridge up")
        for index, name in enumerate(names):
            run(f"ip netns add {name}")
            run(f"ip link add to_{name} netns a3cb type veth peer name eth0 netns {name}")
            run(f"ip netns exec a3cb ip link set to_{name} master bridge up")
            run(f"ip netns exec {name} ip addr add 10.77.0.{index + 1}/24 dev eth0")
            run(f"ip netns exec {name} ip link set eth0 up")
            run(f"ip netns exec {name} ip link set lo up")
            if rate:
                for place, device in ((name, "eth0"), ("a3cb", f"to_{name}")):
                    run(f"ip netns exec {place} tc qdisc add dev {device} root tbf rate {rate} burst 256kb latency 50ms")
        ray = Path(sys.executable).parent / "ray"
        for index, name in enumerate(names):
            role = f"--head --port={PORT} --include-dashboard=false" if index == 0 else f"--address=10.77.0.1:{PORT}"
            limits = f"--num-cpus=1 --object-store-memory=200000000 --temp-dir={folder}/{index}"
            run(f"ip netns exec {name} {sys.executable} {ray} start {role} --node-ip-address=10.77.0.{index + 1} {limits}")
        yield f"10.77.0.1:{PORT}"
    finally:
        for name in (*names, "a3cb"):
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


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
    if options.machines:
        with machines(options.machines, options.rate) as address:
            arguments = [argument for argument in sys.argv[1:] if argument != "--machines"]
            arguments.remove(str(options.machines))
            inside = ["ip", "netns", "exec", "a3c0", sys.executable, str(Path(__file__).resolve())]
            return subprocess.run([*inside, *arguments, "--address", address], check=False).returncode
    command.import_tensorflow(1, verbose=False, device="cpu")
    (load if options.what == "load" else faults)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
