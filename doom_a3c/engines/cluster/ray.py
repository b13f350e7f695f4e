"""The cluster engine's use of Ray: an authenticated connection, actors, and calls of the parameter server.

The only module that imports Ray, and only inside functions: Ray is an optional extra, takes a second to import, and reads
the token's settings while it is imported. This module does not import TensorFlow, because every process of the cluster
imports it before a blueprint sets TensorFlow up.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import doom_a3c
from doom_a3c.engines.cluster.access import HOW_TO_GUARD, check, check_reachable, make_own_folder
from doom_a3c.engines.cluster.messages import Server, Settings, UnreachableError
from doom_a3c.quiet import capture_stderr
from doom_a3c.settings.errors import UserError, first_line

if TYPE_CHECKING:
    from doom_a3c.engines.cluster.host import Host

_SERVER = "parameter_server"
CALL_SECONDS = 30.0  # until an unanswered call is repeated
# Ray's processes import this package from here, even if a script found it by changing its own sys.path.
_PACKAGE_FOLDER = str(Path(doom_a3c.__file__).resolve().parents[1])
_OBJECT_STORE = 300 * 2**20  # bytes, in a cluster that this process starts: it holds only messages in flight

MakeServer = Callable[[Settings], Server]
MakeHost = Callable[[Settings, str, int, Server], "Host"]


class Blueprint(NamedTuple):
    """Makes the processes of a run: two functions that every machine can import, and the settings for both."""

    make_server: MakeServer
    make_host: MakeHost
    settings: Settings


class ServerError(Exception):
    """An error in another process of the cluster; the message is its traceback."""


class ProcessLostError(Exception):
    """A process of the cluster died."""


@contextlib.contextmanager
def connect(address: str | None, namespace: str, gpu: bool = False) -> Iterator[None]:
    """Connects to the cluster at `address`, or starts one on this machine for the length of the context.

    Raises:
        UserError: if there is no cluster at `address`, if `gpu` and no machine has a GPU, or as in `access.check`.
    """
    check(address)
    import ray

    with contextlib.ExitStack() as stack:
        own: dict[str, Any] = {}
        if address is None:
            folder = stack.enter_context(make_own_folder())
            own = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE, "_temp_dir": folder}
        else:
            check_reachable(address)
        failure: Exception | None = None
        with capture_stderr():
            stack.callback(ray.shutdown)
            try:
                ray.init(
                    address or "local",
                    namespace=namespace,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    job_config=ray.job_config.JobConfig(_py_driver_sys_path=[_PACKAGE_FOLDER]),
                    **own,
                )
                guarded = address is None or _asks_for_token()
            except Exception as error:  # Ray raises all kinds for a wrong token, another version or no cluster
                failure = error
        if failure is not None:
            reason = first_line(failure)
            raise UserError(f"--address {address}: {reason}" if address else f"Ray does not start: {reason}")
        if not guarded:
            raise UserError(f"the cluster at {address} does not ask for a token: {HOW_TO_GUARD}")
        if gpu and not ray.cluster_resources().get("GPU"):
            raise UserError("--device gpu: Ray knows no GPU in the cluster; use --device cpu or auto")
        yield


def _asks_for_token() -> bool:
    """Returns whether the cluster's head node asks for a token."""
    import ray

    mode: Any = ray.remote(lambda: os.environ.get("RAY_AUTH_MODE"))
    there = mode.options(num_cpus=0, resources={"node:__internal_head__": 0.001})
    return bool(ray.get(there.remote(), timeout=CALL_SECONDS) == "token")


class ServerActor:
    """The actor of the parameter server. After a restart it makes a new server, which waits for its state."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._failure: Exception | None = None
        try:
            self._server = blueprint.make_server(blueprint.settings)
        except Exception as error:  # Ray would only report that the actor died
            self._failure = error

    def call(self, method: str, *arguments: object) -> object:
        """Calls a method of `Server`; raises its error, or the error that prevented the server's creation."""
        if self._failure is not None:
            raise self._failure
        return getattr(self._server, method)(*arguments)


class _ServerProxy:
    """Forwards every method of `Server` to the run's actor, which it finds by name. Thread-safe."""

    def __init__(self) -> None:
        self._actor: Any = None  # Ray's handle has no type; finding it costs a message

    def __getattr__(self, method: str) -> Callable[..., object]:
        if method not in vars(Server):
            raise AttributeError(method)
        return partial(self._call, method)

    def _call(self, method: str, *arguments: object) -> object:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            actor = self._actor or ray.get_actor(_SERVER)
            self._actor = actor
            return ray.get(actor.call.remote(method, *arguments), timeout=CALL_SECONDS)
        except RayTaskError as error:
            raise _unwrap_error(error) from None
        except (RayError, ValueError) as error:  # ValueError: there is no such actor at the moment
            self._actor = None
            _check_loaded(error)
            raise UnreachableError(f"{type(error).__name__}: {error}") from None


def connect_server() -> Server:
    """Returns a proxy of the run's server, which survives restarts of the server.

    Its methods raise UnreachableError if no answer comes, whether or not the call arrived; UserError for a user's
    mistake; and ServerError for any other error of the server.
    """
    return cast(Server, _ServerProxy())


class HostActor:
    """The actor of a host."""

    def run(self, blueprint: Blueprint, name: str, number: int, generation: int) -> None:
        blueprint.make_host(blueprint.settings, name, number, connect_server()).run(generation)


class HostProcess:
    """A host on some machine. Owns its actor."""

    def __init__(self, blueprint: Blueprint, name: str, *, number: int, generation: int, machine: str) -> None:
        """Starts the host. Its `number` seeds its games; its `generation` is unique among all processes."""
        self._actor = start_actor(HostActor, place_on(machine))
        self._ended = self._actor.run.remote(blueprint, name, number, generation)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Returns whether the host has ended, after waiting up to `seconds` for it."""
        import ray

        return bool(ray.wait([self._ended], timeout=seconds)[0])

    def find_failure(self) -> BaseException | None:
        """Returns the error that ended the host, None if it ended with the run."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            ray.get(self._ended)
            return None
        except RayTaskError as error:
            return _unwrap_error(error)
        except RayError as error:
            try:
                _check_loaded(error)
            except UserError as mistake:
                return mistake
            return ProcessLostError("its process or its machine died")

    def kill(self) -> None:
        import ray

        ray.kill(self._actor)


def _unwrap_error(error: Any) -> BaseException:
    """Returns the UserError that an actor raised, or a ServerError with the actor's traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, UserError) else ServerError(str(error).strip())


def _check_loaded(error: Exception) -> None:
    """Raises UserError if an actor's process could not load this package or its blueprint: a new one could not either."""
    if getattr(error, "actor_init_failed", False):
        reason = str(error).strip().splitlines()[-1].strip()
        raise UserError(
            f"Ray's processes cannot load doom_a3c ({reason}): install it, and your own modules, on every machine"
        )


def list_machines() -> list[str]:
    """Returns the ids of the live machines of the cluster."""
    import ray

    nodes = ray.nodes()
    return [node["NodeID"] for node in nodes if node["Alive"]]


def start_actor(kind: type, options: Mapping[str, Any], *arguments: Any) -> Any:
    """Starts an actor that reserves no CPU in Ray's bookkeeping, so that it never waits for one."""
    import ray

    remote: Any = ray.remote(kind)
    return remote.options(num_cpus=0, **options).remote(*arguments)


class ServerProcess:
    """The run's server, on the driver's machine or on one with a GPU; Ray restarts it if it dies. Owns its actor."""

    def __init__(self, blueprint: Blueprint, gpu: bool) -> None:
        import ray

        where = {"num_gpus": 1} if gpu else place_on(ray.get_runtime_context().get_node_id())
        options = {"name": _SERVER, "max_restarts": -1, "max_concurrency": 64, **where}
        self._actor = start_actor(ServerActor, options, blueprint)

    def kill(self) -> None:
        import ray

        ray.kill(self._actor)


def place_on(machine: str) -> dict[str, Any]:
    """Returns the option that pins an actor to a machine; Ray ignores a soft preference of an actor without CPUs."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(machine, soft=False)}
