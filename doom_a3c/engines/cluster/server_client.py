"""A host's side of the talk with the parameter server."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from doom_a3c.agent.model import SharedNetwork
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES, Answer, GifMessage, Push, Server, UnreachableError
from doom_a3c.engines.cluster.send_buffer import SendBuffer
from doom_a3c.record.progress import moments_from

SECONDS_BETWEEN_TRIES = 0.1


class FencedError(Exception):
    """The pushes of this host count no more."""


@dataclass
class RunCounts:
    """What a host knows of the counters of the whole run."""

    frames: int = 0  # as of the newest answer
    episodes: int = 0  # a budget of episodes is the server's to watch
    reward_sums: RunningMoments = NO_MOMENTS


class ServerClient:
    """Pushes what waits in a buffer, one push at a time, and takes over what the answers bring. A host's only voice."""

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
        """Answers update `model` and `counts`; a push takes the oldest of `gifs` along. The run's end sets `stop`."""
        self._name, self._server, self._buffer = name, server, buffer
        self._model, self._counts, self._gifs, self._stop_event = model, counts, gifs, stop
        self._generation = self._sequence = 0
        self._reason = ""  # that the server refused a push for
        self._seconds = 0.0  # that the last push took

    def join(self, generation: int) -> None:
        """Joins the run as the process that the driver has given this generation: the host has the server's weights then.

        Raises:
            FencedError: if another process plays under its name by now.
        """
        self._generation = generation
        self._take_over(self._ask(lambda: self._server.join(self._name, generation)))

    def run(self) -> None:
        """Pushes until the run is over.

        Raises:
            ClosedError: when the buffer is closed before.
            FencedError: if its pushes count no more.
        """
        while not self._stop_event.is_set():
            push = self._buffer.next_push()
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
        self._take_over(self._ask(lambda: self._server.push(*name, push, version)))

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        """Calls the server until an answer comes that is one; at the end of the run it is `done`."""
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

    def _take_over(self, answer: Answer) -> None:
        if answer["verdict"] == "fenced":
            why = f"its pushes were refused, as {self._reason}" if self._reason else "another process plays in its place"
            raise FencedError(f"{self._name} is fenced off: {why}")
        if answer["verdict"] == "done":
            return
        self._reason = answer.get("reason", self._reason)
        self._counts.frames, self._counts.reward_sums = answer["frames"], moments_from(answer["reward_sums"])
        if answer["weights"] is not None:
            self._model.replace(answer["weights"], answer["version"])
