"""Machines inside this one: network namespaces on a bridge, with Ray on each. Needs root and iproute2."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PORT = 6379
_BRIDGE = "a3cb"
_FOLDER = "A3C_MACHINES"  # environment variable: where the machines keep their files


@contextlib.contextmanager
def make_machines(count: int, rate: str | None) -> Iterator[str]:
    """Makes machines 0 to `count`, 0 for the driver; yields the address of their cluster. `rate` limits their links."""
    from doom_a3c.engines.cluster.access import ENVIRONMENT

    folder = Path(tempfile.mkdtemp(prefix="n", dir="/tmp"))  # short: it holds sockets
    (folder / "token").write_text(os.urandom(32).hex())
    os.environ |= {**ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    os.environ[_FOLDER] = str(folder)
    try:
        _run(f"ip netns add {_BRIDGE}")
        _run(f"ip netns exec {_BRIDGE} ip link add bridge type bridge")
        _run(f"ip netns exec {_BRIDGE} ip link set bridge up")
        for index in range(count + 1):
            name = machine_name(index)
            _run(f"ip netns add {name}")
            _run(f"ip link add to_{name} netns {_BRIDGE} type veth peer name eth0 netns {name}")
            _run(f"ip netns exec {_BRIDGE} ip link set to_{name} master bridge up")
            _run(f"ip netns exec {name} ip addr add {_ip(index)}/24 dev eth0")
            _run(f"ip netns exec {name} ip link set eth0 up")
            _run(f"ip netns exec {name} ip link set lo up")
            for place, device in ((name, "eth0"), (_BRIDGE, f"to_{name}")) if rate else ():
                _run(f"ip netns exec {place} tc qdisc add dev {device} root tbf rate {rate} burst 256kb latency 50ms")
            start_ray(index)
        yield f"{_ip(0)}:{PORT}"
    finally:
        for index in range(count + 1):
            kill_machine(index)
            subprocess.run(["ip", "netns", "del", machine_name(index)], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", _BRIDGE], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def machine_name(index: int) -> str:
    """Returns the name of a machine's namespace."""
    return f"a3c{index}"


def _ip(index: int) -> str:
    return f"10.77.0.{index + 1}"


def _run(line: str) -> None:
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{line}: {done.stderr or done.stdout}")


def start_ray(index: int) -> None:
    """Starts Ray on a machine: the head of the cluster on machine 0, else a node that joins it."""
    ray = f"{sys.executable} {Path(sys.executable).parent / 'ray'}"
    role = f"--head --port={PORT} --include-dashboard=false" if index == 0 else f"--address={_ip(0)}:{PORT}"
    limits = f"--num-cpus=1 --object-store-memory=200000000 --temp-dir={os.environ[_FOLDER]}/{index}"
    _run(f"ip netns exec {machine_name(index)} {ray} start {role} --node-ip-address={_ip(index)} {limits}")


def kill_machine(index: int, name: str = "") -> None:
    """Kills, with signal 9, a machine's processes that have `name` in their command."""
    found = subprocess.run(["ip", "netns", "pids", machine_name(index)], capture_output=True, text=True, check=False)
    for pid in found.stdout.split():
        with contextlib.suppress(OSError):
            if name in Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]:
                os.kill(int(pid), signal.SIGKILL)


def kill_raylet(index: int) -> None:
    """Kills only a machine's raylet."""
    kill_machine(index, "raylet")


def cut_machine(index: int) -> None:
    """Takes a machine off the network silently."""
    _run(f"ip netns exec {_BRIDGE} ip link set to_{machine_name(index)} down")


def mend_machine(index: int) -> None:
    """Puts a cut-off machine back on the network."""
    _run(f"ip netns exec {_BRIDGE} ip link set to_{machine_name(index)} up")
