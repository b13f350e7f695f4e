"""Checks before Ray is imported: that it is installed, that the cluster answers, and that strangers stay out."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from doom_a3c.settings.errors import UserError

_FOLDER = "ray_a3c_"  # and a process id: begins the name of the folder of its cluster

# Removes a folder when its input ends, for as long as others still write there, which is no more than some seconds.
_REMOVE = 'read -r _; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1"; sleep 0.$i; [ -e "$1" ] || exit; done'

# Read by every process of Ray when it starts. A node that stops answering is given up after 6 seconds and not after 65.
# With Ray's niceness of 15, games and server would all but stand still beside whatever else a machine does.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^A worker died",  # a screenful; the engine says it in a line
}

HOW_TO_GUARD = (
    "start Ray on every machine, and this command, with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH naming the same secret "
    "(docs/scaling.md)"
)


def check(address: str | None) -> None:
    """Prepares the environment for Ray, which then admits only holders of a token: for a cluster of its own it makes one.

    Raises:
        UserError: if Ray is not installed, or a cluster of several machines would be open to strangers.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if importlib.util.find_spec("ray") is None:
        raise UserError("--engine cluster needs Ray: pip install -r requirements-cluster.txt")
    if address is None:
        os.environ["RAY_AUTH_MODE"] = "token"
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if os.environ.get("RAY_AUTH_MODE") != "token" or not (os.environ.get("RAY_AUTH_TOKEN") or path.is_file()):
        raise UserError(f"--address without a token would let in anyone who can reach the cluster: {HOW_TO_GUARD}")


def check_reachable(address: str) -> None:
    """Raises UserError where nobody answers at an address: Ray would try for minutes."""
    machine, _, port = address.rpartition(":")
    try:
        socket.create_connection((machine, int(port)), timeout=5.0).close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"--address {address}: {reason}; it takes MACHINE:PORT of a cluster that ray start --head has begun"
        ) from None


@contextlib.contextmanager
def make_own_folder() -> Iterator[str]:
    """Makes a folder for a cluster that this process starts; it is gone soon after this process, however that ends."""
    _sweep()
    folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}_", dir="/tmp")  # short: it holds sockets
    with _start_remover(folder):
        yield folder


def _start_remover(folder: str) -> subprocess.Popen[bytes]:
    """Starts a shell that removes a folder once it is asked to by the end of the block, or this process has ended.

    Ctrl-C while Ray starts ends this process at once, and Ray's processes write on for a moment. The shell's input closes
    with this process; in a session of its own it gets no signal of the terminal.
    """
    command, quiet = ["sh", "-c", _REMOVE, "sh", folder], subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)


def _sweep() -> None:
    """Removes the folders that drivers killed by SIGKILL have left in /tmp."""
    for path in Path("/tmp").glob(f"{_FOLDER}*_*"):
        pid = path.name.removeprefix(_FOLDER).partition("_")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
