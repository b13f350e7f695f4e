"""The parameter server of the cluster engine: the global model, with a protocol that survives lost messages and restarts.

The server does not depend on how calls reach it. Hosts push gradients or rollouts with their name, generation and a
sequence number; every push is applied at most once, in the order in which its host sent it. The driver draws a unique,
increasing generation for each process of a host, which tells the server, even a restarted one, whose pushes still count.

| answer    | when                                                               | the host then           |
|-----------|--------------------------------------------------------------------|-------------------------|
| applied   | counted, and learned from or queued                                | continues               |
| duplicate | its sequence number is known: the first answer was lost            | continues               |
| stale     | more policy lag than `max_policy_lag`: counted, not learned from   | continues               |
| refused   | the push is invalid: not counted                                   | continues               |
| full      | the trainer is a second behind (transport `rollouts`)              | repeats the push        |
| wait      | the server has restarted and waits for the driver's state,         | repeats the push        |
|           | or does not know this host yet                                     |                         |
| fenced    | a newer process has this name, or 3 pushes were refused            | ends                    |
| done      | the run is over                                                    | ends                    |
"""

from __future__ import annotations

import copy
import dataclasses
import threading
import traceback
from collections import deque
from functools import partial

from doom_a3c.agent.learner import Gradients, LearnerMetrics
from doom_a3c.agent.model import GlobalModel, split
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Episode
from doom_a3c.agent.rollouts import Rollout, RolloutStats, VersionedRollout
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.cluster.members import Members
from doom_a3c.engines.cluster.messages import (
    Answer,
    GifMessage,
    Push,
    ServerState,
    ServerStatus,
    Verdict,
    count_bytes,
    is_count,
)
from doom_a3c.engines.cluster.validation import InvalidPushError, PushRules
from doom_a3c.engines.local import capture_state
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.trainer import Trainer
from doom_a3c.engines.update_log import average_episodes
from doom_a3c.engines.updates import DivergedError, SharedStepSize, Updater
from doom_a3c.record.metrics.counters import from_plain, parse_moments, to_plain
from doom_a3c.record.metrics.loggers import flatten
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.rate_limiter import RateLimiter
from doom_a3c.settings.config import Config

MAX_GIFS = 4  # waiting for the driver
SECONDS_BETWEEN_GIFS = 60.0  # over all hosts
MAX_LAGS = 10_000  # waiting for the driver
MAX_REFUSALS = 20  # waiting for the driver
ROOM_SECONDS = 1.0  # for which a push waits for room in the queue of rollouts: cheaper than repeating it
TRAINER_SECONDS = 10.0  # for the last update at the end of a run; twice this is less than the time-out of a call


@dataclasses.dataclass
class Tally:
    """Totals of a host's pushes since this server started."""

    frames: int = 0
    pushes: int = 0
    bytes: int = 0  # of the pushes and their answers
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)  # newest values, by name


class ParameterServer:
    """The `Server` of a run: its global weights, optimizer, counters and members. Thread-safe."""

    def __init__(
        self,
        config: Config,
        model: GlobalModel,
        progress: Progress,
        trainer_network: ACNetwork,
        *,
        rollouts: Channel[VersionedRollout] | None = None,
        gif_limiter: RateLimiter | None = None,
    ) -> None:
        """`rollouts` is the trainer's queue; by default a new one with the queue_size of the settings."""
        self._config, self._model, self._progress = config, model, progress
        self._updater = Updater(config, model, progress, SharedStepSize.from_config(config), None)
        self._rules = PushRules(config, model.network)
        self._split = model.network.compile("split", partial(split, like=model.network.parameters))
        self._rollouts: Channel[VersionedRollout] = Channel(config.queue_size) if rollouts is None else rollouts
        trainer = Trainer(config, model, trainer_network, progress, self._updater, self._rollouts, 0)
        loops = {"trainer": trainer.run} if config.transport == "rollouts" else {}
        self._threads = ThreadGroup(loops, self._end, lambda: None)
        self._lock = threading.Lock()
        self._members = Members()
        self._answered: set[str] = set()  # hosts with an answer from this server
        self._tallies: dict[str, Tally] = {}
        self._lags: deque[int] = deque(maxlen=MAX_LAGS)
        self._gifs: deque[GifMessage] = deque(maxlen=MAX_GIFS)
        self._refusals: deque[str] = deque(maxlen=MAX_REFUSALS)
        self._gif_limiter = gif_limiter or RateLimiter(SECONDS_BETWEEN_GIFS)
        self._ready = self._over = False
        self._failure: BaseException | None = None  # raised while applying a push

    def start(self, state: ServerState, hosts: dict[str, int]) -> None:
        with self._lock:
            self._members.enroll(hosts)
            if self._ready:
                return
            counters = from_plain(state["counters"])
            self._model.restore(state["variables"], counters.updates, counters.halvings)
            self._model.reward_stats.replace(counters.reward_sums)
            self._progress.restore(counters)
            self._members.restore(state["members"])
            self._ready = True
        self._threads.start()

    def enroll(self, hosts: dict[str, int]) -> None:
        with self._lock:
            self._members.enroll(hosts)

    def _end(self) -> None:
        self._over = True
        self._rollouts.close()

    def stop(self) -> None:
        self._end()
        self._threads.stop(TRAINER_SECONDS)

    def join(self, host: str, generation: int) -> Answer:
        with self._lock:
            if verdict := self._check_open() or self._members.check_push(host, generation):
                return {"verdict": verdict}
            self._answered.add(host)
            return self._make_answer("joined", -1)

    def push(self, host: str, generation: int, sequence: int, push: Push, known_version: int) -> Answer:
        complaint = self._find_complaint(sequence, push, known_version)
        if complaint is None and push["rollout"] is not None:
            self._rollouts.wait_for_room(ROOM_SECONDS)
        with self._lock:
            verdict = self._check_open() or self._members.check_push(host, generation)
            verdict = verdict or self._judge(host, sequence, push, complaint)
            if verdict == "fenced":
                self._progress.add_fault("fenced_push")
            if verdict not in ("applied", "stale", "duplicate", "refused"):
                return {"verdict": verdict}
            # Versions count from this server's first state: a host may have the same number from an earlier server.
            known_version = known_version if host in self._answered and type(known_version) is int else -1
            self._answered.add(host)
            answer = self._make_answer(verdict, known_version)
            self._tallies.setdefault(host, Tally()).bytes += count_bytes(answer)
            return {**answer, "reason": complaint} if complaint else answer

    def _find_complaint(self, sequence: object, push: object, known_version: object) -> str | None:
        """Returns the complaint about an invalid push, None for a valid one."""
        if not (is_count(sequence) and type(known_version) is int):
            return "its sequence number or version is not a whole number"
        try:
            self._rules.check(push)
        except InvalidPushError as error:
            return str(error)
        return None

    def _check_open(self) -> Verdict | None:
        if self._over or self._config.exhausted_budget(self._progress):
            return "done"
        return None if self._ready else "wait"

    def _judge(self, host: str, sequence: int, push: Push, complaint: str | None) -> Verdict:
        member, numbered = self._members[host], is_count(sequence)
        if numbered and sequence <= member.sequence:
            return "duplicate"
        verdict: Verdict = "refused" if complaint else self._accept(host, push)
        if complaint:
            member.refused += 1
            self._progress.add_fault("invalid_push")
            self._refusals.append(f"refused a push of host {host}: {complaint}")
        elif verdict == "applied":
            member.refused = 0
        if numbered and verdict != "full":
            member.sequence = sequence
        return verdict

    def _accept(self, host: str, push: Push) -> Verdict:
        lag = max(0, self._model.version - push["version"])  # a restarted server may be behind its hosts
        stale = lag > self._config.max_policy_lag
        episodes = [Episode(*episode) for episode in push["episodes"]]
        sums = parse_moments(push["reward_sums"])
        stats = RolloutStats(push["steps"], push["frames"], episodes, episodes, push["faults"], sums)
        if not stale and push["rollout"] is not None:
            rollout = Rollout(**copy.deepcopy(push["rollout"]))  # queued rollouts must not fill up Ray's memory
            if not self._rollouts.offer(VersionedRollout(rollout, push["version"], stats)):
                return "full"
        else:
            self._updater.count(stats)
        if stale:
            self._progress.add_fault("stale_push")
        elif push["rollout"] is None:
            self._learn(push)
        self._lags.append(lag)
        if push["gifs"] and self._gif_limiter.allow():
            self._gifs.extend(push["gifs"])
        tally = self._tallies.setdefault(host, Tally())
        tally.frames += push["frames"]
        tally.pushes += 1
        tally.bytes += count_bytes(push)
        metrics = {**push["metrics"], "push_seconds": push["push_seconds"], **dict(flatten(average_episodes(episodes)))}
        tally.metrics |= metrics
        return "stale" if stale else "applied"

    def _learn(self, push: Push) -> None:
        """Applies a push of gradients; too many gradients that are not finite end the run."""
        try:
            for _ in range(push["not_finite"]):
                self._updater.skip()
            if push["gradients"] is not None:
                gradients = Gradients(self._split(push["gradients"]), LearnerMetrics(**push["metrics"]), True)
                self._updater.apply(gradients, push["version"], last=True)
        except Exception as error:
            self._failure = error
            self._end()

    def _make_answer(self, verdict: Verdict, known_version: int) -> Answer:
        weights, version = (None, known_version) if known_version == self._model.version else self._model.read_weights()
        frames, sums = self._progress.frames, list(self._model.reward_stats.now)
        return {"verdict": verdict, "weights": weights, "version": version, "frames": frames, "reward_sums": sums}

    def add_fault(self, kind: str) -> None:
        self._progress.add_fault(kind)

    def status(self) -> ServerStatus:
        with self._lock:
            lags, gifs, refusals = list(self._lags), list(self._gifs), list(self._refusals)
            for queue in (self._lags, self._gifs, self._refusals):
                queue.clear()
            error = self._failure or self._threads.error
            sums = self._model.reward_stats.now
            diverged = isinstance(error, DivergedError)
            return {
                "ready": self._ready,
                "over": self._check_open() == "done",
                "error": None if error is None else str(error) if diverged else "".join(traceback.format_exception(error)),
                "diverged": diverged,
                "counters": to_plain(self._progress.counters(curve=False)._replace(reward_sums=sums)),
                "entropy": self._progress.entropy,
                "lag": self._progress.lag,
                "hosts": {name: dataclasses.asdict(tally) for name, tally in self._tallies.items()},
                "lags": lags,
                "gifs": gifs,
                "refusals": refusals,
            }

    def state(self) -> ServerState | None:
        with self._lock:
            if not self._ready:
                return None
            state = capture_state(self._model, self._progress)
            return {"variables": state.variables, "counters": to_plain(state.counters), "members": self._members.to_plain()}
