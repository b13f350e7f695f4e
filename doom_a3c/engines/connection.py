"""The cluster engine's side of Ray: a connection that lets no stranger in, actors, and calls of the parameter server.

Nothing here knows what a run does; `cluster` drives it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from doom_a3c.engines.host import Host, UnreachableError
from doom_a3c.engines.messages import Settings
from doom_a3c.engines.server import ParameterServer
from doom_a3c.quiet import caught_stderr
from doom_a3c.settings import UserError

_SERVER = "parameter_server"
_FOLDER = "ray_a3c_"  # begins the name of the folder of a cluster that this process starts, its process id follows
CALL_SECONDS = 30.0  # a call that has no answer by then is made again
_OBJECT_STORE = 300 * 2**20  # bytes, of a cluster that this process starts: what is on the way is all it holds

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

_HOW_TO_GUARD = (
    "start Ray on every host, and this command, with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH naming the same secret "
    "(docs/scaling.md)"
)

MakeServer = Callable[[Settings], ParameterServer]
MakeHost = Callable[[Settings, str, int, Callable[..., Any]], Host]


@contextlib.contextmanager
def connected(address: str | None, namespace: str, gpu: bool = False) -> Iterator[None]:
    """Connects to the cluster at `address`, or starts one on this machine that is gone afterwards.

    Raises:
        UserError: if there is no cluster at `address`, no machine has the `gpu` that is wanted, or as `check` does.
    """
    check(address)
    import ray

    _server.cache_clear()
    with contextlib.ExitStack() as stack:
        own: dict[str, Any] = {}
        if address is None:
            _sweep()
            folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}_", dir="/tmp")  # short: it holds sockets
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            own = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE, "_temp_dir": folder}
        else:
            _reach(address)
        failure: Exception | None = None
        with caught_stderr():
            stack.callback(ray.shutdown)
            try:
                ray.init(address or "local", namespace=namespace, log_to_driver=False, logging_level=logging.ERROR, **own)
                guarded = address is None or _guarded()
            except Exception as error:  # whatever Ray raises where there is another token, another version, no cluster
                failure = error
        if failure is not None:
            reason = (str(failure).strip() or type(failure).__name__).splitlines()[0]
            raise UserError(f"--address {address}: {reason}" if address else f"Ray does not start: {reason}")
        if not guarded:
            raise UserError(f"the cluster at {address} asks nobody for a token: {_HOW_TO_GUARD}")
        if gpu and not ray.cluster_resources().get("GPU"):  # type: ignore[no-untyped-call]  # of Ray
            raise UserError("--device gpu: Ray knows of no GPU in the cluster; --device cpu or auto needs none")
        yield


def _sweep() -> None:
    """Removes what drivers that were killed with signal 9 have left in /tmp."""
    for path in Path("/tmp").glob(f"{_FOLDER}*_*"):
        pid = path.name.removeprefix(_FOLDER).partition("_")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)


def _guarded() -> bool:
    """Tells whether the head of the cluster was started so that it asks for a token."""
    import ray

    mode: Any = ray.remote(lambda: os.environ.get("RAY_AUTH_MODE"))
    there = mode.options(num_cpus=0, resources={"node:__internal_head__": 0.001})
    return bool(ray.get(there.remote(), timeout=CALL_SECONDS) == "token")


def check(address: str | None) -> None:
    """Sees to it that Ray is there, and lets in only who knows a token: Ray makes one for a cluster on this machine.

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
        raise UserError(f"--address without a token would let everyone in who reaches the cluster: {_HOW_TO_GUARD}")


def _reach(address: str) -> None:
    """Raises UserError where nobody answers at an address: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"--address {address}: {reason}; it takes HOST:PORT of a cluster that ray start --head has begun"
        ) from None


class ServerActor:
    """The actor of the parameter server; a restarted one waits for its state."""

    def __init__(self, make: MakeServer, settings: Settings) -> None:
        self._failure: Exception | None = None
        try:
            self._server = make(settings)
        except Exception as error:  # Ray would only say that the actor has died
            self._failure = error

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the server."""
        if self._failure is not None:
            raise self._failure
        return getattr(self._server, method)(*arguments)


class HostActor:
    """The actor of a host. It finds the server by name."""

    def run(self, make: MakeHost, settings: Settings, name: str, number: int) -> None:
        """Plays until the run is over."""
        make(settings, name, number, call_server).run()


@functools.cache
def _server() -> Any:
    """Returns the run's server, found by its name: that costs a message of its own."""
    import ray

    return ray.get_actor(_SERVER)


def call_server(method: str, *arguments: Any) -> Any:
    """Calls a method of the run's server and returns its answer; an error in it is raised here.

    Raises:
        UnreachableError: if no answer has come, whether the call arrived or not.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(_server().call.remote(method, *arguments), timeout=CALL_SECONDS)
    except RayTaskError:
        raise
    except (RayError, ValueError) as error:  # ValueError: there is no such actor now
        _server.cache_clear()
        raise UnreachableError(f"{type(error).__name__}: {error}") from None


def start_actor(kind: type, options: Mapping[str, Any], *arguments: Any) -> Any:
    """Starts an actor; it takes no CPU from Ray's count of them, which is for tasks that wait for their turn."""
    import ray

    remote: Any = ray.remote(kind)
    return remote.options(num_cpus=0, **options).remote(*arguments)


def start_server(make: MakeServer, settings: Settings, gpu: bool) -> Any:
    """Starts the run's server beside the driver, or where a GPU is; Ray starts it again whenever it dies."""
    import ray

    where = {"num_gpus": 1} if gpu else placed_on(ray.get_runtime_context().get_node_id())
    options = {"name": _SERVER, "max_restarts": -1, "max_concurrency": 64, **where}
    return start_actor(ServerActor, options, make, settings)


def placed_on(node: str) -> dict[str, Any]:
    """Returns the option that places an actor on a machine and nowhere else (Ray ignores a soft wish without CPUs)."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
