"""Measures the cluster engine: the load one parameter server handles, and recovery times after a death.

    python -m benchmarks.cluster load --hosts 1 2 4
    python -m benchmarks.cluster faults
    sudo python -m benchmarks.cluster load --machines 3 --rate 1gbit
    sudo python -m benchmarks.cluster train --machines 2 --rate 1gbit

`load`: fake hosts push gradients or rollouts of the scenario's size to a real server as fast as it answers. `train`: real
hosts train for a while. `faults`: real hosts train while processes or machines are killed with signal 9 or cut off, one at
a time. With --machines, the hosts' machines are network namespaces of this one, joined by a bridge (as root, with iproute2)
and removed afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import ROOT
from benchmarks.common.records import read_plain_record
from benchmarks.stress.cluster_load import measure_load
from benchmarks.stress.machines import (
    cut_machine,
    kill_machine,
    kill_raylet,
    machine_name,
    make_machines,
    mend_machine,
    start_ray,
)
from benchmarks.stress.trial import Trial, wait_until
from doom_a3c.run.imports import import_tensorflow


def measure_training(options: argparse.Namespace) -> None:
    """Prints the throughput of real hosts."""
    from doom_a3c.engines.cluster.ray import connect

    print(
        "| transport | hosts | frames/s | pushes/s | p50 ms | p95 ms | mean of 100 |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for transport in options.transports:
        count = options.machines + 1 if options.address else max(options.hosts)
        each = 1 if options.address else count
        with tempfile.TemporaryDirectory() as folder, connect(options.address, f"train-{transport}"):
            trial = Trial(options.scenario, each, Path(folder), transport=transport)
            wait_until(functools.partial(trial.all_play, count))
            before, start, times = trial.status(), time.monotonic(), []
            while (passed := time.monotonic() - start) < options.seconds:
                time.sleep(0.25)
                after = trial.status()
                times += [tally["metrics"]["push_seconds"] for tally in after["hosts"].values()]
            frames, pushes = (
                sum(tally[key] - before["hosts"].get(name, {}).get(key, 0) for name, tally in after["hosts"].items())
                / passed
                for key in ("frames", "pushes")
            )
            p50, p95 = np.percentile(times, [50, 95]) * 1000
            score = np.mean(after["counters"]["scores"])
            print(
                f"| {transport} | {count} | {frames:,.0f} | {pushes:.1f} | {p50:.0f} | {p95:.0f} | {score:.1f} |",
                flush=True,
            )
            trial.engine.stop()


def measure_faults(options: argparse.Namespace) -> None:
    """Prints a table of the cost of each process or machine death."""
    from doom_a3c.engines.cluster.ray import connect

    with tempfile.TemporaryDirectory() as folder, connect(options.address, "faults"):
        trial = Trial(options.scenario, 1 if options.address else 2, Path(folder))
        hosts = options.machines + 1 if options.address else 2
        wait_until(functools.partial(trial.all_play, hosts))
        (measure_machine_faults if options.address else measure_process_faults)(trial, options)
        trial.engine.stop()
        print(
            f"\n{len(trial.audit.applied())} updates reached the weights, {trial.audit.twice()} of them twice", flush=True
        )
    if not options.address:
        measure_driver_fault(options)


def measure_process_faults(trial: Trial, options: argparse.Namespace) -> None:
    """Kills hosts and servers."""
    audit = trial.audit
    print(
        "| killed | until its updates flow again, s | longest pause of all updates, s | updates lost |\n|---|---|---|---|",
        flush=True,
    )
    for _ in range(options.repeats):
        known = audit.generations()
        start = kill("ray::HostActor")
        again = wait_until(functools.partial(audit.first_of_a_new_generation, known))
        print(f"| a host | {again - start:.1f} | {audit.longest_pause(start):.1f} | {audit.lost()[-1]} |", flush=True)
        time.sleep(2.0)
    for _ in range(options.repeats):
        time.sleep(4.0)
        start = kill("ray::ServerActor")
        again = wait_until(functools.partial(audit.first_after_a_beginning, start))
        print(f"| the server | {again - start:.1f} | {audit.longest_pause(start):.1f} | {audit.lost()[-1]} |", flush=True)


def measure_machine_faults(trial: Trial, options: argparse.Namespace) -> None:
    """Breaks the last machine in each way in turn, and lets it rejoin."""
    import ray

    def alive() -> int:
        return sum(node["Alive"] for node in ray.nodes())

    audit, last, count = trial.audit, options.machines, alive()
    print("| a machine | longest pause of all updates, s | given up after, s | updates lost | rejoins after, s |")
    print("|---|---|---|---|---|", flush=True)
    for fault, hurt in (("loses its raylet", kill_raylet), ("is killed", kill_machine), ("is cut off", cut_machine)):
        start = time.time()
        hurt(last)
        wait_until(lambda: alive() < count)
        given_up = time.time() - start
        time.sleep(max(0.0, 10.0 - given_up))
        pause, fenced, note = audit.longest_pause(start), audit.fenced, ""
        if hurt is cut_machine:
            mend_machine(last)
            time.sleep(10.0)
            note = f" (back on the network, it sent {audit.fenced - fenced} pushes, all refused)"
        kill_machine(last)  # the processes still alive
        joined, known = time.time(), set(trial.pushes())
        start_ray(last)
        wait_until(functools.partial(trial.newcomers, known))
        joined = time.time() - joined
        print(f"| {fault}{note} | {pause:.1f} | {given_up:.1f} | {sum(audit.lost())} | {joined:.1f} |", flush=True)


def measure_driver_fault(options: argparse.Namespace) -> None:
    """Kills a driver and resumes its run, as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{name}-dir={folder}/{name}" for name in ("models", "frames", "logs")]
        flags = ["--engine=cluster", "--checkpoint-every=10", "--evaluate-every=0", "--quiet", *outputs]
        train = [sys.executable, str(ROOT / "train.py"), *flags]

        def updates() -> int:
            with contextlib.suppress(OSError):
                return int(read_plain_record(Path(folder, "models", "last.ckpt"))["progress"]["updates"])
            return 0

        run = subprocess.Popen([*train, f"--scenario={options.scenario}"])
        try:
            first = wait_until(lambda: updates() > 30 and updates())
            saved = wait_until(lambda: updates() > first and updates())
            time.sleep(5.0)
            run.kill()
            run.wait()
            start, lost = time.monotonic(), (saved - first) / 10 * 5
            run = subprocess.Popen([*train, "--checkpoint-every=0.5", "--resume"])
            wait_until(lambda: updates() > saved)
            seconds = time.monotonic() - start
            print(f"| the driver, then --resume | {seconds:.1f} | the same | about {lost:.0f}, of 5 s |", flush=True)
        finally:  # a killed driver's cluster shuts down by itself
            run.kill()
            run.wait()


def kill(name: str) -> float:
    """Kills this session's first process with a given name; returns the time."""
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            if (path / "cmdline").read_bytes().startswith(name.encode()) and is_descendant(int(path.name)):
                os.kill(int(path.name), signal.SIGKILL)
                return time.time()
    raise ProcessLookupError(name)


def is_descendant(pid: int) -> bool:
    """Returns whether this process started that one, even indirectly."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def main() -> int:
    """Runs the chosen measurement."""
    parser = make_parser("cluster", __doc__)
    parser.add_argument("measurement", choices=("load", "train", "faults"))
    parser.add_argument("--scenario", default="basic", help="scenario to train, or to take push sizes from (default basic)")
    parser.add_argument(
        "--hosts",
        type=int,
        nargs="+",
        default=[1, 2, 4],
        help="load: numbers of fake hosts; train: uses the largest (default 1 2 4)",
    )
    parser.add_argument(
        "--transports", nargs="+", default=["gradients", "rollouts"], help="load, train: transports (default both)"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="load, train: length of a measurement (default 8)")
    parser.add_argument("--repeats", type=int, default=3, help="faults: deaths of each kind (default 3)")
    parser.add_argument("--machines", type=int, default=0, help="network namespaces to play in (default 0: this machine)")
    parser.add_argument("--rate", help="bandwidth of the links between machines, for example 1gbit")
    parser.add_argument("--address", help="address of a running cluster")
    options = parser.parse_args()
    if options.machines and not options.address:
        with make_machines(options.machines, options.rate) as address:
            inside = ["ip", "netns", "exec", machine_name(0), sys.executable, "-m", "benchmarks.cluster"]
            return subprocess.run([*inside, *sys.argv[1:], "--address", address], cwd=ROOT, check=False).returncode
    import_tensorflow(1, verbose=False, device="cpu")
    {"load": measure_load, "train": measure_training, "faults": measure_faults}[options.measurement](options)
    return 0


if __name__ == "__main__":
    run_command("cluster", main)
