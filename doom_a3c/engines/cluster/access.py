"""Checks, before Ray is imported, that it is installed, that the cluster answers and that a token keeps strangers out."""

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

_FOLDER = "ray_a3c_"  # prefix of the folder of a cluster, followed by a process id

# Removes a folder once its input ends, and repeats it while dying processes still write there, for some seconds.
_REMOVE = 'read -r _; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1"; sleep 0.$i; [ -e "$1" ] || exit; done'

# Read by every process of Ray when it starts. A silent node counts as dead after 6 seconds instead of 65. With Ray's
# default niceness of 15, games and server would hardly run under any other load.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^A worker died",  # a screenful; the engine logs one line instead
}

HOW_TO_GUARD = (
    "start Ray on every machine, and this command, with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH naming the same secret "
    "(docs/scaling.md)"
)


def check(address: str | None) -> None:
    """Prepares the environment so that Ray admits only holders of a token; without an address, Ray makes the token itself.

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
    """Raises UserError if nothing answers at an address: Ray would retry for minutes."""
    machine, _, port = address.rpartition(":")
    try:
        socket.create_connection((machine, int(port)), timeout=5.0).close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"--address {address}: {reason}; it takes the MACHINE:PORT of a cluster started with ray start --head"
        ) from None


@contextlib.contextmanager
def make_own_folder() -> Iterator[str]:
    """Makes a folder for a cluster that this process starts; it is removed when this process ends, even if killed."""
    _sweep()
    folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}_", dir="/tmp")  # short: it holds sockets
    with _start_remover(folder):
        yield folder


def _start_remover(folder: str) -> subprocess.Popen[bytes]:
    """Starts a shell that removes a folder once its input closes: at the end of a `with` block, or with this process.

    Ctrl-C while Ray starts ends this process at once, while Ray's processes keep writing for a moment. The shell runs in
    its own session, out of reach of the terminal's signals.
    """
    command, quiet = ["sh", "-c", _REMOVE, "sh", folder], subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)


def _sweep() -> None:
    """Removes the folders in /tmp of drivers that were killed by SIGKILL."""
    for path in Path("/tmp").glob(f"{_FOLDER}*_*"):
        pid = path.name.removeprefix(_FOLDER).partition("_")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
