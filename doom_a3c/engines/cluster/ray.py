"""The cluster engine's side of Ray: a connection that lets no stranger in, actors, and calls of the parameter server.

The only module that imports Ray, and late: it is an optional extra, takes a second, and reads at once whether there is a
token. TensorFlow is not imported here: every process of the cluster imports this module first, and a blueprint sets it up.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from doom_a3c.engines.cluster.access import HOW_TO_GUARD, check, check_reachable, make_own_folder
from doom_a3c.engines.cluster.messages import Server, Settings, UnreachableError
from doom_a3c.quiet import capture_stderr
from doom_a3c.settings.errors import UserError, first_line

if TYPE_CHECKING:
    from doom_a3c.engines.cluster.host import Host

_SERVER = "parameter_server"
CALL_SECONDS = 30.0  # a call that has no answer by then is made again
_OBJECT_STORE = 300 * 2**20  # bytes, of a cluster that this process starts: what is on the way is all it holds

MakeServer = Callable[[Settings], Server]
MakeHost = Callable[[Settings, str, int, Server], "Host"]


class Blueprint(NamedTuple):
    """Makes the processes of a run: functions that every machine can import, and the settings that both are given."""

    make_server: MakeServer
    make_host: MakeHost
    settings: Settings


class ServerError(Exception):
    """An error in another process of the cluster; the message is its traceback there."""


class ProcessLostError(Exception):
    """A process of the cluster is gone."""


@contextlib.contextmanager
def connect(address: str | None, namespace: str, gpu: bool = False) -> Iterator[None]:
    """Connects to the cluster at `address`, or starts one on this machine that is gone afterwards.

    Raises:
        UserError: if there is no cluster at `address`, no machine has the `gpu` that is wanted, or as `access.check` does.
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
                ray.init(address or "local", namespace=namespace, log_to_driver=False, logging_level=logging.ERROR, **own)
                guarded = address is None or _asks_for_token()
            except Exception as error:  # whatever Ray raises where there is another token, another version, no cluster
                failure = error
        if failure is not None:
            reason = first_line(failure)
            raise UserError(f"--address {address}: {reason}" if address else f"Ray does not start: {reason}")
        if not guarded:
            raise UserError(f"the cluster at {address} asks nobody for a token: {HOW_TO_GUARD}")
        if gpu and not ray.cluster_resources().get("GPU"):
            raise UserError("--device gpu: Ray knows of no GPU in the cluster; --device cpu or auto needs none")
        yield


def _asks_for_token() -> bool:
    """Tells whether the head of the cluster was started so that it asks for a token."""
    import ray

    mode: Any = ray.remote(lambda: os.environ.get("RAY_AUTH_MODE"))
    there = mode.options(num_cpus=0, resources={"node:__internal_head__": 0.001})
    return bool(ray.get(there.remote(), timeout=CALL_SECONDS) == "token")


class ServerActor:
    """The actor that holds the parameter server. A restarted one makes a new server, which waits for its state."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._failure: Exception | None = None
        try:
            self._server = blueprint.make_server(blueprint.settings)
        except Exception as error:  # Ray would only say that the actor has died
            self._failure = error

    def call(self, method: str, *arguments: object) -> object:
        """Returns what a method of `Server` returns; raises its error, or the one that the server could not be made for."""
        if self._failure is not None:
            raise self._failure
        return getattr(self._server, method)(*arguments)


class _ServerProxy:
    """Forwards every method of `Server` to the run's actor, which it finds by name. Threads may share one."""

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
            raise _original(error) from None
        except (RayError, ValueError) as error:  # ValueError: there is no such actor now
            self._actor = None
            raise UnreachableError(f"{type(error).__name__}: {error}") from None


def connect_server() -> Server:
    """Returns the run's server, which may restart behind it.

    Its methods raise UnreachableError where no answer comes, whether the call has arrived or not; UserError for a user's
    mistake; ServerError for anything else that the server raises.
    """
    return cast(Server, _ServerProxy())


class HostActor:
    """The actor of a host."""

    def run(self, blueprint: Blueprint, name: str, number: int, generation: int) -> None:
        """Plays until the run is over."""
        blueprint.make_host(blueprint.settings, name, number, connect_server()).run(generation)


class HostProcess:
    """A host that plays on some machine. Owns its actor."""

    def __init__(self, blueprint: Blueprint, name: str, *, number: int, generation: int, machine: str) -> None:
        """Starts it; hosts of different numbers play different games, and no two processes have one generation."""
        self._actor = start_actor(HostActor, place_on(machine))
        self._ended = self._actor.run.remote(blueprint, name, number, generation)

    def ended(self, seconds: float = 0.0) -> bool:
        """Tells whether it has ended, waiting up to `seconds` for it."""
        import ray

        return bool(ray.wait([self._ended], timeout=seconds)[0])

    def failure(self) -> BaseException | None:
        """Returns the error that ended it, None where it ended because the run is over."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            ray.get(self._ended)
            return None
        except RayTaskError as error:
            return _original(error)
        except RayError:
            return ProcessLostError("its process or its machine died")

    def kill(self) -> None:
        """Ends its process at once."""
        import ray

        ray.kill(self._actor)


def _original(error: Any) -> BaseException:
    """Returns the user's mistake that an actor raised, else an error with the actor's traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, UserError) else ServerError(str(error).strip())


def list_machines() -> list[str]:
    """Returns the ids of the live machines of the cluster."""
    import ray

    nodes = ray.nodes()
    return [node["NodeID"] for node in nodes if node["Alive"]]


def start_actor(kind: type, options: Mapping[str, Any], *arguments: Any) -> Any:
    """Starts an actor; it takes no CPU from Ray's count of them, which is for tasks that wait for their turn."""
    import ray

    remote: Any = ray.remote(kind)
    return remote.options(num_cpus=0, **options).remote(*arguments)


class ServerProcess:
    """The run's server, beside the driver or where a GPU is; Ray starts it again whenever it dies. Owns its actor."""

    def __init__(self, blueprint: Blueprint, gpu: bool) -> None:
        import ray

        where = {"num_gpus": 1} if gpu else place_on(ray.get_runtime_context().get_node_id())
        options = {"name": _SERVER, "max_restarts": -1, "max_concurrency": 64, **where}
        self._actor = start_actor(ServerActor, options, blueprint)

    def kill(self) -> None:
        """Ends the server for good."""
        import ray

        ray.kill(self._actor)


def place_on(machine: str) -> dict[str, Any]:
    """Returns the option that places an actor on a machine and nowhere else (Ray ignores a soft wish without CPUs)."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(machine, soft=False)}
