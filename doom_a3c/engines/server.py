"""The parameter server of the cluster engine: the global model behind a protocol that survives lost messages and restarts.

It knows nothing of how calls reach it. Hosts push what they have played under their name, generation and a sequence
number; every push is applied once at most, in the order of its host:

| answer    | when                                                               | the host then           |
|-----------|--------------------------------------------------------------------|-------------------------|
| applied   | counted, and learned from or queued                                | goes on                 |
| duplicate | its sequence number has been seen: the first answer was lost       | goes on                 |
| stale     | older than `max_staleness` updates: counted, but not learned from  | goes on                 |
| full      | the trainer is a second behind (transport `rollouts`)              | sends it again          |
| wait      | the server has restarted and waits for the driver's newest state   | sends it again          |
| rejoin    | the server does not know this host or its generation               | joins, sends it again   |
| fenced    | another host has joined under this name since                      | ends                    |
| done      | the run is over                                                    | ends                    |
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import traceback
from collections import deque
from functools import partial
from typing import Any

from doom_a3c.config import Config, spent
from doom_a3c.engines.channel import Channel, ClosedError
from doom_a3c.engines.messages import Answer, Push, ServerState, Status, size
from doom_a3c.engines.trainer import Played, Trainer
from doom_a3c.engines.updates import DivergedError, Updater, played_scores
from doom_a3c.graphs import Graph
from doom_a3c.learner import Gradients
from doom_a3c.model import GlobalModel, captured, split
from doom_a3c.networks import ACNetwork
from doom_a3c.progress import Progress
from doom_a3c.recording import Gate
from doom_a3c.rollouts import Episode, Rollout

MAX_GIFS = 4  # that wait for the driver
MAX_LAGS = 10_000  # that wait for the driver
ROOM_SECONDS = 1.0  # that a push waits for room in the queue of rollouts: cheaper than to send it again
_TRAINER_SECONDS = 20.0  # for the last update, when a run ends


@dataclasses.dataclass
class Member:
    """A host that has joined."""

    generation: int  # how often a host has joined under this name
    sequence: int = 0  # of its newest push


@dataclasses.dataclass
class Tally:
    """What has come from a host since this server began."""

    frames: int = 0
    pushes: int = 0
    bytes: int = 0  # of the pushes and their answers
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)


class ParameterServer:
    """The global weights, optimizer and counters of a run, and its members. Every method may be called by any thread."""

    def __init__(self, config: Config, model: GlobalModel, progress: Progress, trainer_network: ACNetwork) -> None:
        self._config, self._model, self._progress = config, model, progress
        self._updater = Updater(config, model, progress, None)
        self._split = Graph(partial(split, like=model.network.parameters), ())
        self._rollouts: Channel[Played] = Channel(config.queue_size)
        self._trainer = Trainer(config, model, trainer_network, progress, self._updater, self._rollouts)
        self._thread = threading.Thread(target=self._train, name="trainer", daemon=True)
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._answered: set[str] = set()  # by this server
        self._tallies: dict[str, Tally] = {}
        self._lags: deque[int] = deque(maxlen=MAX_LAGS)
        self._gifs: deque[dict[str, Any]] = deque(maxlen=MAX_GIFS)
        self._gate = Gate()
        self._ready = self._over = self._diverged = False
        self._error: str | None = None

    def start(self, state: ServerState) -> None:
        """Begins with the state that `state` returned; does nothing where the server has begun before."""
        with self._lock:
            if self._ready:
                return
            self._model.restore(state["variables"], int(state["progress"]["updates"]))
            self._progress.restore(state["progress"])
            self._members = {name: Member(*numbers) for name, numbers in state["members"].items()}
            self._ready = True
        if self._config.transport == "rollouts":
            self._thread.start()

    def _train(self) -> None:
        try:
            with contextlib.suppress(ClosedError):
                self._trainer.run()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._diverged = isinstance(error, DivergedError)
        self._error = str(error) if self._diverged else "".join(traceback.format_exception(error))
        self._end()

    def _end(self) -> None:
        self._over = True
        self._rollouts.close()

    def stop(self) -> None:
        """Answers `done` from now on; returns when the update under way is complete."""
        self._end()
        if self._thread.ident is not None:
            self._thread.join(_TRAINER_SECONDS)

    def join(self, host: str) -> Answer:
        """Takes a host in, in place of one that has joined under that name before, which is fenced off."""
        with self._lock:
            if verdict := self._closed():
                return {"verdict": verdict}
            known = self._members.get(host)
            member = self._members[host] = Member(known.generation + 1 if known else 1)
            self._answered.add(host)
            return {**self._news("joined", -1), "generation": member.generation}

    def push(self, host: str, generation: int, sequence: int, push: Push, known_version: int) -> Answer:
        """Takes in what a host has played; the answer holds the weights if they are not those of `known_version`."""
        if push["rollout"] is not None:
            self._rollouts.wait_for_room(ROOM_SECONDS)
        with self._lock:
            verdict = self._closed() or self._refused(host, generation, sequence)
            if verdict is None:
                verdict = self._accept(host, push)
            if verdict in ("applied", "stale"):
                self._members[host].sequence = sequence
            if verdict not in ("applied", "stale", "duplicate"):
                return {"verdict": verdict}
            # Versions count from the state that this server began with: a host may have the same number of another's.
            known_version = known_version if host in self._answered else -1
            self._answered.add(host)
            answer = self._news(verdict, known_version)
            self._tallies.setdefault(host, Tally()).bytes += size(answer)
            return answer

    def retire(self, host: str) -> None:
        """Fences off a host that is given up: should it still push, it is refused."""
        with self._lock:
            if host in self._members:
                self._members[host].generation += 1

    def _closed(self) -> str | None:
        if self._over or spent(self._config, self._progress):
            return "done"
        return None if self._ready else "wait"

    def _refused(self, host: str, generation: int, sequence: int) -> str | None:
        member = self._members.get(host)
        if member is None or generation > member.generation:
            return "rejoin"
        if generation < member.generation:
            self._progress.add_steps(0, 0, (), ["fenced_push"])
            return "fenced"
        return "duplicate" if sequence <= member.sequence else None

    def _accept(self, host: str, push: Push) -> str:
        config = self._config
        lag = max(0, self._model.version - push["version"])  # a restarted server may be behind its hosts
        stale = lag > config.max_staleness
        episodes = [Episode(*episode) for episode in push["episodes"]]
        if not stale and push["rollout"] is not None:
            rollout = Rollout(**push["rollout"])
            if not self._rollouts.offer(Played(rollout, push["version"], episodes, push["faults"])):
                return "full"
        else:
            self._updater.count(push["steps"], episodes, push["faults"])
        if stale:
            self._progress.add_steps(0, 0, (), ["stale_push"])
        elif push["rollout"] is None:
            self._learn(push)
        self._lags.append(lag)
        if push["gifs"] and self._gate.enter():
            self._gifs.extend(push["gifs"])
        tally = self._tallies.setdefault(host, Tally())
        tally.frames += push["steps"] * config.frame_skip
        tally.pushes += 1
        tally.bytes += size(push)
        tally.metrics |= {**push["metrics"], **played_scores(episodes)}
        return "stale" if stale else "applied"

    def _learn(self, push: Push) -> None:
        """Applies a push of gradients; too many that are not finite end the run."""
        try:
            for _ in range(push["not_finite"]):
                self._updater.apply(Gradients((), push["metrics"], False, push["version"]))
            if push["gradients"] is not None:
                gradients = self._split(push["gradients"])
                self._updater.apply(Gradients(gradients, push["metrics"], True, push["version"]))
        except Exception as error:
            self._fail(error)

    def _news(self, verdict: str, known_version: int) -> Answer:
        weights, version = (None, known_version) if known_version == self._model.version else self._model.weights()
        return {"verdict": verdict, "weights": weights, "version": version, "frames": self._progress.frames}

    def fault(self, kind: str) -> None:
        """Counts something that the run has survived."""
        self._progress.add_steps(0, 0, (), [kind])

    def status(self) -> Status:
        """Returns what the driver shows; lags and gifs are handed over, once."""
        with self._lock:
            lags, gifs = list(self._lags), list(self._gifs)
            self._lags.clear()
            self._gifs.clear()
            return {
                "ready": self._ready,
                "over": self._closed() == "done",
                "error": self._error,
                "diverged": self._diverged,
                "progress": self._progress.status(),
                "hosts": {name: dataclasses.asdict(tally) for name, tally in self._tallies.items()},
                "lags": lags,
                "gifs": gifs,
            }

    def state(self) -> ServerState | None:
        """Returns everything that a restarted server goes on from, None before there is any."""
        with self._lock:
            if not self._ready:
                return None
            members = {name: (member.generation, member.sequence) for name, member in self._members.items()}
            state = captured(self._model, self._progress)
            return {"variables": state.variables, "progress": state.progress, "members": members}
