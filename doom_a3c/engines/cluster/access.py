"""What a cluster needs before Ray is imported: that it is there, that it answers, and that strangers stay out."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from doom_a3c.settings.fields import UserError

_FOLDER = "ray_a3c_"  # begins the name of the folder of a cluster that this process starts, its process id follows

# Read by every process of Ray when it starts. A node that stops answering is given up after 6 seconds and not after 65.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^A worker died",  # a screenful; the engine says it in a line
}

HOW_TO_GUARD = (
    "start Ray on every machine, and this command, with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH naming the same secret "
    "(docs/scaling.md)"
)


def check(address: str | None) -> None:
    """Sees to it that Ray is there, and that only those with a token get in: Ray makes one for a cluster on this machine.

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


def reach(address: str) -> None:
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
def own_folder() -> Iterator[str]:
    """Makes a folder for a cluster that this process starts; it is gone afterwards, as are those of drivers that died."""
    _sweep()
    folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}_", dir="/tmp")  # short: it holds sockets
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Removes what drivers that were killed with signal 9 have left in /tmp."""
    for path in Path("/tmp").glob(f"{_FOLDER}*_*"):
        pid = path.name.removeprefix(_FOLDER).partition("_")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
