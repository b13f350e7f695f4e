"""The cluster engine on Ray: a parameter server and hosts as actors, supervised by the driver.

    host actor (workers + client) --- pushes, answers ---> server actor (global model) <--- status, state --- driver

The driver keeps a recent copy of the server's state. Ray restarts a dead server, which gets that state back; a dead host is
replaced while its machine lives; a new machine gets its own hosts. All actors belong to the driver's job, so nothing of a
run outlives its driver; --resume continues it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from doom_a3c.engines.cluster.messages import GifMessage, ServerState, UnreachableError
from doom_a3c.engines.cluster.rates import ClusterMetrics, Rates
from doom_a3c.engines.cluster.ray import (
    CALL_SECONDS,
    Blueprint,
    HostProcess,
    ServerError,
    ServerProcess,
    connect_server,
    list_machines,
)
from doom_a3c.engines.state import State
from doom_a3c.engines.updates import DivergedError
from doom_a3c.record.metrics.counters import from_plain, to_plain
from doom_a3c.record.metrics.loggers import Logger
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.errors import UserError

_TICK_SECONDS = 0.5
_STATE_SECONDS = 5.0  # between two copies of the server's state: a dead server loses no more
_PATIENCE_SECONDS = 300.0  # without an answer from the server, after which the run ends
_MAX_FAILURES = 3  # consecutive failures of a host, after which it is abandoned
_STOP_SECONDS = 8.0  # for the hosts to end by themselves
_NO_ANSWER = (UnreachableError, ServerError, UserError)  # UserError: the server could not be made


class ClusterEngine:
    """The driver's side of a run. Owns the processes, a recent state of the server, and the thread that supervises them."""

    def __init__(
        self,
        *,
        hosts: int,
        device: str,
        blueprint: Blueprint,
        state: State,
        progress: Progress,
        logger_called: Callable[[str], Logger],
        add_gif: Callable[[GifMessage], None],
        log: Callable[[str], None],
    ) -> None:
        """`hosts` is the number per machine; every machine must be able to import the functions of `blueprint`."""
        self._slots, self._device, self._blueprint = hosts, device, blueprint
        self._state: ServerState = {"variables": state.variables, "counters": to_plain(state.counters), "members": {}}
        self.reward_sums = state.counters.reward_sums
        self._progress, self._add_gif, self._log = progress, add_gif, log
        self._rates = Rates(logger_called)
        self._server = connect_server()
        self._server_process: ServerProcess | None = None
        self._hosts: dict[str, HostProcess] = {}
        self._generations: dict[str, int] = {}  # of the current or next process under each name
        self._enrolled: dict[str, int] = {}  # generations known to the server
        self._newest = 0  # generation
        self._failures: dict[str, int] = {}
        self._failure: BaseException | None = None  # of the most recently failed host
        self._started = 0
        self._answered = self._copied = time.monotonic()
        self._began = self._over = self._server_is_gone = False
        self._faults: deque[str] = deque()  # still to be counted by the server
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Starts the server, and a thread that starts the hosts and supervises all processes."""
        self._server_process = ServerProcess(self._blueprint, gpu=self._device == "gpu")
        self._thread.start()

    def _run(self) -> None:
        self._answered = self._copied = time.monotonic()
        try:
            while not self._stop_event.wait(_TICK_SECONDS):
                try:
                    self._follow()
                    self._answered = time.monotonic()
                except UnreachableError:
                    if time.monotonic() - self._answered > _PATIENCE_SECONDS:
                        raise
        except BaseException as error:
            self._error = error

    def _follow(self) -> None:
        """Polls the server and the hosts once, replaces dead ones, and updates the progress."""
        if not self._over:
            self._tend_hosts()
        status = self._server.status()
        self._over = status["over"]
        if not status["ready"]:
            self._enrolled = {}
            self._server.start(self._state, dict(self._generations))
            if self._began:
                age = time.monotonic() - self._copied
                self._log(f"the parameter server died; a new one continues from its state {age:.0f} s ago")
                self.add_fault("server_restarted")
            self._began = True
            return
        if status["error"]:
            raise (DivergedError if status["diverged"] else RuntimeError)(status["error"])
        self._enroll()
        self._send_faults()
        for refusal in status["refusals"]:
            self._log(refusal)
        counters = from_plain(status["counters"])
        self.reward_sums = counters.reward_sums
        self._progress.follow(counters, status["entropy"], status["lag"])
        for gif in status["gifs"]:
            self._add_gif(gif)
        for name in self._rates.add(status["hosts"], status["lags"], self._progress.frames):
            self._failures.pop(name, None)
        if time.monotonic() - self._copied >= _STATE_SECONDS:
            self.capture()

    def _tend_hosts(self) -> None:
        """Starts the missing hosts of every machine, and handles those that have ended."""
        for name in [name for name, host in self._hosts.items() if host.has_ended()]:
            if not self._note_end(name, self._hosts.pop(name)):
                return  # the run is over, as the next status will say
        places = {f"{machine[:8]}_{slot}": machine for machine in list_machines() for slot in range(self._slots)}
        missing = [name for name in places if name not in self._hosts and self._failures.get(name, 0) < _MAX_FAILURES]
        if self._failure is not None and not self._hosts and not missing:
            raise self._failure
        for name in missing:
            if name not in self._generations:
                self._generations[name] = self._draw_generation()
            elif self._enrolled.get(name) != self._generations[name]:
                continue  # the old process may still push until the server knows the new generation
            self._start_host(name, places[name])

    def _start_host(self, name: str, machine: str) -> None:
        numbers = {"number": self._started, "generation": self._generations[name]}
        self._hosts[name] = HostProcess(self._blueprint, name, machine=machine, **numbers)
        self._started += 1

    def _draw_generation(self) -> int:
        """Returns an unused generation; the clock makes it larger than any that an earlier driver drew."""
        self._newest = max(self._newest + 1, time.time_ns() // 1000)
        return self._newest

    def _enroll(self) -> None:
        if self._enrolled != self._generations:
            generations = dict(self._generations)
            self._server.enroll(generations)
            self._enrolled = generations  # only after the server's answer

    def _note_end(self, name: str, host: HostProcess) -> bool:
        """Prepares the replacement of an ended host; returns False if it ended because the run is over."""
        failure = host.find_failure()
        if failure is None:
            return False
        self._failure = failure
        host.kill()
        self._rates.drop(name)
        self._failures[name] = self._failures.get(name, 0) + 1
        self.add_fault("host_lost")
        self._generations[name] = self._draw_generation()  # of its replacement
        abandoned = f", and is abandoned after {_MAX_FAILURES} consecutive failures"
        reason = str(failure).splitlines()[-1]
        self._log(f"host {name} died{abandoned if self._failures[name] >= _MAX_FAILURES else ''}: {reason}")
        return True

    def check(self) -> None:
        """Raises the error that ended the run: divergence, or no host or server left."""
        if self._error is not None:
            raise self._error

    def capture(self) -> State:
        """Returns the server's state, or the last known one if the server does not answer."""
        with self._lock:
            if not self._stop_event.is_set():
                self._copy()
            return State(self._state["variables"], from_plain(self._state["counters"]))

    def _copy(self) -> None:
        with contextlib.suppress(*_NO_ANSWER):
            state = self._server.state()
            if state is not None:
                variables = {name: value.copy() for name, value in state["variables"].items()}  # out of Ray's shared memory
                self._state = {**state, "variables": variables}
                self._copied = time.monotonic()

    def add_fault(self, kind: str) -> None:
        """Counts a fault on the server, as soon as the server answers."""
        self._faults.append(kind)
        if self._server_is_gone:
            self._count_faults_here()

    def _count_faults_here(self) -> None:
        with self._lock:
            while self._faults:
                self._progress.add_fault(self._faults.popleft())
            self._state["counters"]["faults"] = dict(self._progress.faults)  # these include the server's last counts

    def _send_faults(self) -> None:
        while self._faults:
            self._server.add_fault(self._faults[0])
            self._faults.popleft()  # only after the server's answer

    def metrics(self) -> ClusterMetrics:
        return self._rates.metrics()

    def describe(self) -> str:
        return self._rates.describe()

    def stop(self) -> None:
        if self._stop_event.is_set():
            return
        with contextlib.suppress(*_NO_ANSWER):
            self._server.stop()  # pushes no longer count
        with self._lock:
            self._copy()
            self._stop_event.set()
        if self._thread.ident is not None:
            self._thread.join(CALL_SECONDS)
        self._progress.follow(from_plain(self._state["counters"]), self._progress.entropy, self._progress.lag)
        self._server_is_gone = True
        self._count_faults_here()
        deadline = time.monotonic() + _STOP_SECONDS
        for host in self._hosts.values():
            host.has_ended(max(0.0, deadline - time.monotonic()))
        for process in (*self._hosts.values(), self._server_process):
            if process is not None:
                process.kill()
