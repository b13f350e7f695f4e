"""The cluster engine on Ray: a parameter server and hosts as actors, and the driver's side that keeps them going.

    host actor (workers + link) --- pushes, answers ---> server actor (global model) <--- status, state --- driver

The driver holds the newest state of the server. A server that has died is started again by Ray and gets that state back;
a host that has died is replaced as long as its machine lives; a machine that joins gets hosts of its own. All actors
belong to the driver's job, so nothing of a run outlives its driver: it goes on with --resume.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from doom_a3c.engines.host import Host, UnreachableError
from doom_a3c.engines.outbox import Message
from doom_a3c.engines.rates import Rates
from doom_a3c.engines.server import ParameterServer
from doom_a3c.engines.updates import DivergedError
from doom_a3c.model import State
from doom_a3c.progress import Progress
from doom_a3c.quiet import caught_stderr
from doom_a3c.recording import Film
from doom_a3c.settings import UserError
from doom_a3c.summaries import Summaries

_SERVER = "parameter_server"
_CALL_SECONDS = 30.0  # a call that has no answer by then is made again
_TICK_SECONDS = 0.5
_STATE_SECONDS = 5.0  # between two copies of the server's state: what a dead server loses at most
_PATIENCE_SECONDS = 120.0  # without an answer of the server, until the run ends
_MAX_FAILURES = 3  # of a host in a row, until it is given up
_STOP_SECONDS = 8.0  # for the hosts to end by themselves
_OBJECT_STORE = 300 * 2**20  # bytes, of a cluster that this process starts: what is on the way is all it holds

# Read by every process of Ray when it starts. A node that stops answering is given up after 6 seconds and not after 65.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

_HOW_TO_GUARD = (
    "start Ray on every host, and this command, with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH naming the same secret "
    "(docs/scaling.md)"
)

MakeServer = Callable[[Message], ParameterServer]
MakeHost = Callable[[Message, str, int, Callable[..., Any]], Host]


@contextlib.contextmanager
def connected(address: str | None, namespace: str) -> Iterator[None]:
    """Connects to the cluster at `address`, or starts one on this machine that is gone afterwards.

    Raises:
        UserError: if there is no cluster at `address`, or as `check` does.
    """
    check(address)
    import ray

    with contextlib.ExitStack() as stack:
        own: dict[str, Any] = {}
        if address is None:
            folder = tempfile.mkdtemp(prefix="ray_", dir="/tmp")  # short: it holds sockets
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
        yield


def _guarded() -> bool:
    """Tells whether the head of the cluster was started so that it asks for a token."""
    import ray

    mode: Any = ray.remote(lambda: os.environ.get("RAY_AUTH_MODE"))
    there = mode.options(num_cpus=0, resources={"node:__internal_head__": 0.001})
    return bool(ray.get(there.remote(), timeout=_CALL_SECONDS) == "token")


def check(address: str | None) -> None:
    """Sees to it that Ray is there, and lets in only who knows a token: it makes one for a cluster on this machine.

    Raises:
        UserError: if Ray is not installed, or a cluster of several machines would be open to strangers.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if importlib.util.find_spec("ray") is None:
        raise UserError("--engine cluster needs Ray: pip install -r requirements-cluster.txt")
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
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


class _Server:
    """The actor of the parameter server; a restarted one waits for its state."""

    def __init__(self, make: MakeServer, settings: Message) -> None:
        self._server = make(settings)

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the server."""
        return getattr(self._server, method)(*arguments)


class _Host:
    """The actor of a host. It finds the server by name: a handle would not survive everything."""

    def __init__(self, make: MakeHost, settings: Message, name: str, number: int) -> None:
        self._host = make(settings, name, number, _call)

    def run(self) -> None:
        """Plays until the run is over."""
        self._host.run()


def _call(method: str, *arguments: Any) -> Any:
    """Calls a method of the run's server and returns its answer; an error in it is raised here.

    Raises:
        UnreachableError: if no answer has come, whether the call arrived or not.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(ray.get_actor(_SERVER).call.remote(method, *arguments), timeout=_CALL_SECONDS)
    except RayTaskError:
        raise
    except (RayError, ValueError) as error:  # ValueError: there is no such actor now
        raise UnreachableError(f"{type(error).__name__}: {error}") from None


def _actor(kind: type, options: Mapping[str, Any], *arguments: Any) -> Any:
    """Starts an actor; it takes no CPU from Ray's count of them, which is for tasks that wait for their turn."""
    import ray

    remote: Any = ray.remote(kind)
    return remote.options(num_cpus=0, **options).remote(*arguments)


def _on(node: str, soft: bool) -> dict[str, Any]:
    """Returns the option that places an actor on a machine, or if `soft` on another where that one is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=soft)}


class Playing(NamedTuple):
    """A host actor that plays."""

    actor: Any
    ended: Any  # the reference of its `run`


class ClusterEngine:
    """The driver's side of a run. Owns the actors, the newest state of the server, and a thread that watches both."""

    def __init__(
        self,
        *,
        hosts: int,
        device: str,
        settings: Message,
        make_server: MakeServer,
        make_host: MakeHost,
        state: State,
        progress: Progress,
        make_summaries: Callable[[str], Summaries],
        film: Callable[[Film], None],
        say: Callable[[str], None],
    ) -> None:
        """`hosts` play on each machine; `make_server` and `make_host` are functions that every machine can import."""
        self._slots, self._device, self._settings = hosts, device, settings
        self._make_server, self._make_host = make_server, make_host
        self._state: Message = {**state._asdict(), "members": {}}
        self._progress, self._film, self._say = progress, film, say
        self._rates = Rates(make_summaries)
        self._hosts: dict[str, Playing] = {}
        self._failures: dict[str, int] = {}
        self._started = 0
        self._answered = self._copied = time.monotonic()
        self._began = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Starts the server, and the hosts from a thread that goes on to watch them."""
        import ray

        where = (
            {"num_gpus": 1} if self._device.startswith("gpu") else _on(ray.get_runtime_context().get_node_id(), soft=True)
        )
        options = {"name": _SERVER, "max_restarts": -1, "max_concurrency": 64, **where}
        self._server = _actor(_Server, options, self._make_server, self._settings)
        self._thread.start()

    def _run(self) -> None:
        from ray.exceptions import RayError

        self._answered = self._copied = time.monotonic()
        try:
            while not self._stop_event.wait(_TICK_SECONDS):
                try:
                    self._follow()
                    self._answered = time.monotonic()
                except (UnreachableError, RayError) as error:
                    if isinstance(error, RayError) or time.monotonic() - self._answered > _PATIENCE_SECONDS:
                        raise
        except BaseException as error:
            self._error = error

    def _follow(self) -> None:
        """Looks at everything once, and mends what is broken."""
        self._tend_hosts()
        status = _call("status")
        if not status["ready"]:
            _call("start", self._state)
            if self._began:
                _call("fault", "server_restarted")
            self._began = True
            return
        if status["error"]:
            raise DivergedError(status["error"])
        self._progress.follow(status["progress"], status["entropy"], status["lag"])
        for film in status["films"]:
            self._film(Film(list(film["frames"]), film["score"], film["episode"], film["worker"]))
        for name in self._rates.add(status["hosts"], status["lags"], self._progress.frames):
            self._failures.pop(name, None)
        if time.monotonic() - self._copied >= _STATE_SECONDS:
            self.capture()

    def _tend_hosts(self) -> None:
        """Starts hosts on every machine that lacks some, and notices those that have ended."""
        import ray

        ended, _ = ray.wait([playing.ended for playing in self._hosts.values()] or [ray.put(None)], timeout=0)
        for name, playing in list(self._hosts.items()):
            if playing.ended in ended:
                del self._hosts[name]
                self._note_end(name, playing)
        for node in ray.nodes():  # type: ignore[no-untyped-call]  # of Ray
            for slot in range(self._slots if node["Alive"] else 0):
                name = f"{node['NodeID'][:8]}_{slot}"
                if name not in self._hosts and self._failures.get(name, 0) < _MAX_FAILURES:
                    self._hosts[name] = self._start_host(name, node["NodeID"])

    def _start_host(self, name: str, node: str) -> Playing:
        actor = _actor(_Host, _on(node, soft=False), self._make_host, self._settings, name, self._started)
        self._started += 1
        return Playing(actor, actor.run.remote())

    def _note_end(self, name: str, playing: Playing) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            ray.get(playing.ended)
            return  # the run is over
        except RayTaskError as error:
            failure: Exception = error
        except RayError as error:
            failure = error
        ray.kill(playing.actor)
        self._failures[name] = self._failures.get(name, 0) + 1
        with contextlib.suppress(UnreachableError):
            _call("fault", "host_lost")
        if self._failures[name] < _MAX_FAILURES:
            return
        if not self._hosts:
            raise failure
        self._say(f"host {name} is given up after {_MAX_FAILURES} failures: {str(failure).strip().splitlines()[-1]}")

    def check(self) -> None:
        """Raises the error that ended the run's watch: divergence, or no host or server left."""
        if self._error is not None:
            raise self._error

    def capture(self) -> State:
        """Returns the server's state, or the newest known one where the server does not answer."""
        with self._lock:
            if not self._stop_event.is_set():
                self._copy()
            return State(self._state["variables"], self._state["progress"])

    def _copy(self) -> None:
        with contextlib.suppress(UnreachableError):
            state = _call("state")
            if state is not None:
                variables = {name: value.copy() for name, value in state["variables"].items()}  # not Ray's memory
                self._state = {**state, "variables": variables}
                self._copied = time.monotonic()

    def metrics(self) -> dict[str, float]:
        """Returns rates, for TensorBoard."""
        return self._rates.metrics()

    def describe(self) -> str:
        """Returns rates, for the live line."""
        return self._rates.describe()

    def stop(self) -> None:
        """Ends hosts and server; may be called twice."""
        import ray

        if self._stop_event.is_set():
            return
        with contextlib.suppress(UnreachableError):
            _call("stop")  # no push counts from now on
        with self._lock:
            self._copy()
            self._stop_event.set()
        self._progress.restore(self._state["progress"])
        if self._thread.ident is not None:
            self._thread.join(_CALL_SECONDS)
        ends = [playing.ended for playing in self._hosts.values()]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_STOP_SECONDS)
        for playing in self._hosts.values():
            ray.kill(playing.actor)
        ray.kill(self._server)
