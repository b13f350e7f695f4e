"""A host's connection to the parameter server."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from doom_a3c.agent.model import SharedNetwork
from doom_a3c.agent.rewards import RewardStats
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES, Answer, GifMessage, Push, Server, UnreachableError
from doom_a3c.engines.cluster.send_buffer import SendBuffer
from doom_a3c.record.metrics.counters import parse_moments

SECONDS_BETWEEN_TRIES = 0.1


class FencedError(Exception):
    """The server fenced off this host: its pushes no longer count."""


@dataclass
class RunCounts:
    """Counters of the whole run, from the server's newest answer."""

    frames: int = 0
    episodes: int = 0  # stays 0: the server enforces the budget of episodes
    reward_stats: RewardStats = field(default_factory=RewardStats)


class ServerClient:
    """Sends the pushes of a buffer one at a time, and updates weights and counts from the answers."""

    def __init__(
        self,
        name: str,
        server: Server,
        buffer: SendBuffer,
        model: SharedNetwork,
        stop: threading.Event,
        *,
        counts: RunCounts,
        gifs: deque[GifMessage],
    ) -> None:
        """Answers update `model` and `counts`; each push carries the oldest of `gifs`. The end of the run sets `stop`."""
        self._name, self._server, self._buffer = name, server, buffer
        self._model, self._counts, self._gifs, self._stop_event = model, counts, gifs, stop
        self._generation = self._sequence = 0
        self._reason = ""  # of the last refused push
        self._seconds = 0.0  # from the last push to its answer

    def join(self, generation: int) -> None:
        """Joins the run as the process of this generation, and loads the server's weights.

        Raises:
            FencedError: if a newer process has the same name.
        """
        self._generation = generation
        self._handle(self._ask(lambda: self._server.join(self._name, generation)))

    def run(self) -> None:
        """Pushes until the run is over.

        Raises:
            ClosedError: if the buffer is closed earlier.
            FencedError: if the server fenced off this host.
        """
        while not self._stop_event.is_set():
            push = self._buffer.take_push()
            if self._gifs:
                gif = self._gifs.popleft()
                if gif["data"].size <= MAX_GIF_BYTES:
                    push["gifs"] = [gif]
            push["push_seconds"] = self._seconds
            start = time.monotonic()
            self._deliver(push)
            self._seconds = time.monotonic() - start

    def _deliver(self, push: Push) -> None:
        self._sequence += 1
        name, version = (self._name, self._generation, self._sequence), self._model.version
        self._handle(self._ask(lambda: self._server.push(*name, push, version)))

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        """Repeats a call until the server answers neither `wait` nor `full`; `done` also ends this host."""
        while not self._stop_event.is_set():
            try:
                answer = call()
            except UnreachableError:
                answer = {"verdict": "wait"}
            if answer["verdict"] == "done":
                self._stop_event.set()
                self._buffer.close()
                break
            if answer["verdict"] not in ("wait", "full"):
                return answer
            self._stop_event.wait(SECONDS_BETWEEN_TRIES)
        return {"verdict": "done"}

    def _handle(self, answer: Answer) -> None:
        if answer["verdict"] == "fenced":
            why = f"its pushes were refused: {self._reason}" if self._reason else "another process has replaced it"
            raise FencedError(f"{self._name} is fenced off: {why}")
        if answer["verdict"] == "done":
            return
        self._reason = answer.get("reason", self._reason)
        self._counts.frames = answer["frames"]
        self._counts.reward_stats.replace(parse_moments(answer["reward_sums"]))
        if answer["weights"] is not None:
            self._model.replace(answer["weights"], answer["version"])
