"""The cluster engine on Ray: a parameter server and hosts as actors, and the driver's side that keeps them going.

    host actor (workers + link) --- pushes, answers ---> server actor (global model) <--- status, state --- driver

The driver holds the newest state of the server. A server that has died is started again by Ray and gets that state back;
a host that has died is replaced as long as its machine lives; a machine that joins gets hosts of its own. All actors
belong to the driver's job, so nothing of a run outlives its driver: it goes on with --resume.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from doom_a3c.engines.connection import (
    CALL_SECONDS,
    HostActor,
    MakeHost,
    MakeServer,
    call_server,
    placed_on,
    start_actor,
    start_server,
)
from doom_a3c.engines.host import UnreachableError
from doom_a3c.engines.messages import ServerState, Settings, Status
from doom_a3c.engines.rates import Rates
from doom_a3c.engines.updates import DivergedError
from doom_a3c.model import State
from doom_a3c.progress import Progress
from doom_a3c.recording import Gif
from doom_a3c.settings import UserError
from doom_a3c.summaries import Summaries

_TICK_SECONDS = 0.5
_STATE_SECONDS = 5.0  # between two copies of the server's state: what a dead server loses at most
_PATIENCE_SECONDS = 120.0  # without an answer of the server, until the run ends
_MAX_FAILURES = 3  # of a host in a row, until it is given up
_STOP_SECONDS = 8.0  # for the hosts to end by themselves


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
        settings: Settings,
        make_server: MakeServer,
        make_host: MakeHost,
        state: State,
        progress: Progress,
        make_summaries: Callable[[str], Summaries],
        add_gif: Callable[[Gif], None],
        say: Callable[[str], None],
    ) -> None:
        """`hosts` play on each machine; `make_server` and `make_host` are functions that every machine can import."""
        self._slots, self._device, self._settings = hosts, device, settings
        self._make_server, self._make_host = make_server, make_host
        self._state: ServerState = {"variables": state.variables, "progress": state.progress, "members": {}}
        self._progress, self._add_gif, self._say = progress, add_gif, say
        self._rates = Rates(make_summaries)
        self._server: Any = None
        self._hosts: dict[str, Playing] = {}
        self._failures: dict[str, int] = {}
        self._failure: BaseException | None = None  # of the last host that failed
        self._started = 0
        self._answered = self._copied = time.monotonic()
        self._began = self._over = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Starts the server, and the hosts from a thread that goes on to watch them."""
        self._server = start_server(self._make_server, self._settings, gpu=self._device == "gpu")
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
            self._error = _cause(error)

    def _follow(self) -> None:
        """Looks at everything once, and mends what is broken."""
        if not self._over:
            self._tend_hosts()
        status: Status = call_server("status")
        self._over = status["over"]
        if not status["ready"]:
            call_server("start", self._state)
            if self._began:
                age = time.monotonic() - self._copied
                self._say(f"the parameter server was lost, another goes on from its state of {age:.0f} s ago")
                call_server("fault", "server_restarted")
            self._began = True
            return
        if status["error"]:
            raise (DivergedError if status["diverged"] else RuntimeError)(status["error"])
        self._progress.follow(status["progress"])
        for gif in status["gifs"]:
            self._add_gif(Gif(**{**gif, "data": gif["data"].tobytes()}))
        for name in self._rates.add(status["hosts"], status["lags"], self._progress.frames):
            self._failures.pop(name, None)
        if time.monotonic() - self._copied >= _STATE_SECONDS:
            self.capture()

    def _tend_hosts(self) -> None:
        """Starts hosts on every machine that lacks some, and notices those that have ended."""
        import ray

        playing = {host.ended: name for name, host in self._hosts.items()}
        if playing:
            ended, _ = ray.wait(list(playing), num_returns=len(playing), timeout=0)
            for reference in ended:
                name = playing[reference]
                if not self._note_end(name, self._hosts.pop(name)):
                    return  # it has been told that the run is over: the next status says so, too
        for node in ray.nodes():  # type: ignore[no-untyped-call]  # of Ray
            for slot in range(self._slots if node["Alive"] else 0):
                name = f"{node['NodeID'][:8]}_{slot}"
                if name not in self._hosts and self._failures.get(name, 0) < _MAX_FAILURES:
                    self._hosts[name] = self._start_host(name, node["NodeID"])
        if self._failure is not None and not self._hosts:
            raise self._failure

    def _start_host(self, name: str, node: str) -> Playing:
        actor = start_actor(HostActor, placed_on(node))
        ended = actor.run.remote(self._make_host, self._settings, name, self._started)
        self._started += 1
        return Playing(actor, ended)

    def _note_end(self, name: str, playing: Playing) -> bool:
        """Sees to a host that has ended; tells whether it was lost."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            ray.get(playing.ended)
            return False
        except RayTaskError as error:
            self._failure = _cause(error)
            reason = str(error).strip().splitlines()[-1]
        except RayError as error:
            self._failure, reason = error, "its process or its machine died"
        ray.kill(playing.actor)
        self._rates.lose(name)
        self._failures[name] = self._failures.get(name, 0) + 1
        with contextlib.suppress(UnreachableError):
            call_server("retire", name)
            call_server("fault", "host_lost")
        given_up = f" and is given up after {_MAX_FAILURES} failures in a row"
        self._say(f"host {name} was lost{given_up if self._failures[name] >= _MAX_FAILURES else ''}: {reason}")
        return True

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
        from ray.exceptions import RayError

        with contextlib.suppress(UnreachableError, RayError):
            state: ServerState | None = call_server("state")
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
        from ray.exceptions import RayError

        if self._stop_event.is_set():
            return
        with contextlib.suppress(UnreachableError, RayError):
            call_server("stop")  # no push counts from now on
        with self._lock:
            self._copy()
            self._stop_event.set()
        if self._thread.ident is not None:
            self._thread.join(CALL_SECONDS)
        self._progress.restore(self._state["progress"])
        ends = [playing.ended for playing in self._hosts.values()]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_STOP_SECONDS)
        for playing in self._hosts.values():
            ray.kill(playing.actor)
        if self._server is not None:
            ray.kill(self._server)


def _cause(error: BaseException) -> BaseException:
    """Returns the user's mistake that an actor has raised, else the error itself, which holds the actor's traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, UserError) else error
