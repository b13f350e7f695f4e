"""A host of the cluster engine: workers that play, and the one thread that talks to the parameter server for all of them.

Its weights are a copy of the server's, replaced whenever an answer brings newer ones; workers pull theirs from the copy.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from doom_a3c.config import Config, worker_count
from doom_a3c.engines.channel import ClosedError
from doom_a3c.engines.crew import Crew
from doom_a3c.engines.messages import Answer, Push
from doom_a3c.engines.outbox import GradientSum, Outbox, RolloutBox
from doom_a3c.engines.threads import Worker
from doom_a3c.model import SharedNetwork
from doom_a3c.networks import ACNetwork
from doom_a3c.progress import Progress
from doom_a3c.recording import Gif
from doom_a3c.rollouts import Actor, Decide, Policy

SECONDS_BETWEEN_TRIES = 0.1


class UnreachableError(Exception):
    """A call may or may not have reached the server; its answer has not come."""


class FencedError(Exception):
    """Another host has joined under this one's name."""


class Link:
    """Pushes what waits in an outbox, one push at a time, and takes over what the answers bring. A host's only voice."""

    def __init__(
        self,
        name: str,
        call: Callable[..., Any],
        outbox: Outbox,
        model: SharedNetwork,
        progress: Progress,
        gifs: deque[Gif],
        stop: threading.Event,
    ) -> None:
        """`call` calls a method of the server, or raises UnreachableError; the oldest of `gifs` goes with a push."""
        self._name, self._call, self._outbox = name, call, outbox
        self._model, self._progress, self._gifs, self._stop_event = model, progress, gifs, stop
        self._generation = self._sequence = 0
        self._seconds = 0.0  # that the last push took

    def join(self) -> None:
        """Joins the run: afterwards the host has the server's weights."""
        answer = self._ask("join", self._name)
        if answer["verdict"] == "joined":
            self._generation, self._sequence = answer["generation"], 0
            self._take_over(answer)

    def run(self) -> None:
        """Pushes until the run is over."""
        try:
            while not self._stop_event.is_set():
                push = self._outbox.take()
                if self._gifs:
                    gif = self._gifs.popleft()
                    push["gifs"] = [{**gif._asdict(), "data": np.frombuffer(gif.data, np.uint8)}]
                push["metrics"]["Perf/Push Seconds"] = self._seconds
                start = time.monotonic()
                self._deliver(push)
                self._seconds = time.monotonic() - start
        except ClosedError:
            pass

    def _deliver(self, push: Push) -> None:
        self._sequence += 1
        while not self._stop_event.is_set():
            answer = self._ask("push", self._name, self._generation, self._sequence, push, self._model.version)
            if answer["verdict"] == "fenced":
                raise FencedError(f"another host has joined as {self._name}")
            if answer["verdict"] != "rejoin":
                self._take_over(answer)
                return
            self.join()
            self._sequence += 1

    def _ask(self, method: str, *arguments: Any) -> Answer:
        """Calls the server until an answer comes that is one; at the end of the run it is `done`."""
        while not self._stop_event.is_set():
            try:
                answer: Answer = self._call(method, *arguments)
            except UnreachableError:
                answer = {"verdict": "wait"}
            if answer["verdict"] == "done":
                self._stop_event.set()
                self._outbox.close()
                break
            if answer["verdict"] not in ("wait", "full"):
                return answer
            self._stop_event.wait(SECONDS_BETWEEN_TRIES)
        return {"verdict": "done"}

    def _take_over(self, answer: Answer) -> None:
        if answer["verdict"] == "done":
            return
        self._progress.frames = answer["frames"]
        if answer["weights"] is not None:
            self._model.replace(answer["weights"], answer["version"])


class Player:
    """A worker that learns nothing itself: it plays rollouts and has them sent. Owns its network and games."""

    def __init__(
        self,
        index: int,
        *,
        model: SharedNetwork,
        network: ACNetwork,
        make_actor: Callable[[int, Decide], Actor],
        rollouts: RolloutBox,
        stop: threading.Event,
    ) -> None:
        self.index = index
        self._model, self._network, self._make_actor = model, network, make_actor
        self._rollouts, self._stop_event = rollouts, stop

    def run(self) -> None:
        """Plays until told to stop."""
        actor = self._make_actor(self.index, Policy(self._network))
        try:
            while not self._stop_event.is_set():
                version = self._model.pull(self._network)
                rollout = actor.rollout()
                self._rollouts.put(rollout, version, *actor.take())
        except ClosedError:
            pass
        finally:
            actor.close()


class Host(Crew):
    """Runs workers and their link, each on a thread of its own."""

    def __init__(
        self,
        name: str,
        call: Callable[..., Any],
        *,
        config: Config,
        network: ACNetwork,
        make_network: Callable[[str], ACNetwork],
        make_actor: Callable[[int, Decide], Actor],
        progress: Progress,
        gifs: deque[Gif],
        unblock: Callable[[], None],
    ) -> None:
        workers, self._stop_event = worker_count(config), threading.Event()
        model = SharedNetwork(network)
        make: Callable[..., Worker | Player]
        if config.transport == "gradients":
            sums = GradientSum(config.push_rollouts, config.accumulate)
            self._outbox: Outbox = sums
            make = partial(Worker, config=config, progress=progress, updates=sums)
        else:
            self._outbox = rollouts = RolloutBox(workers)
            make = partial(Player, rollouts=rollouts)
        self._link = Link(name, call, self._outbox, model, progress, gifs, self._stop_event)
        loops = {}
        for index in range(workers):
            own = make_network(f"worker_{index}")
            player = make(index, model=model, network=own, make_actor=make_actor, stop=self._stop_event)
            loops[f"worker_{index}"] = self._to_the_end(player.run)
        super().__init__({**loops, "link": self._link.run}, self._close, unblock)

    def _to_the_end(self, play: Callable[[], None]) -> Callable[[], None]:
        """A worker that ends has seen the run's budget used up: what is left in the outbox counts no more."""

        def run() -> None:
            play()
            self._close()

        return run

    def _close(self) -> None:
        self._stop_event.set()
        self._outbox.close()

    def run(self) -> None:
        """Joins the run and plays until it is over; raises the first error of any thread."""
        self._link.join()
        if self._stop_event.is_set():
            return  # the run is over already: no game need start
        try:
            self.start()
            self._stop_event.wait()
        finally:
            self.stop()
        self.check()
