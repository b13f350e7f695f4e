"""A host of the cluster engine: workers that play, and one thread that sends their pushes to the parameter server.

Its weights are a copy of the server's, replaced whenever an answer brings newer ones; workers pull theirs from the copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from doom_a3c.agent.model import SharedNetwork
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Policy
from doom_a3c.engines.cluster.send_buffer import GradientAccumulator, RolloutBuffer, SendBuffer
from doom_a3c.engines.cluster.server_client import RunCounts, ServerClient
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.threads import MakeActor, MakeNetwork, Worker
from doom_a3c.settings.config import Config

MakeClient = Callable[[SendBuffer, SharedNetwork, threading.Event], ServerClient]


class RolloutWorker:
    """A worker that only plays: its rollouts go to the server, which learns from them. Owns its network and games."""

    def __init__(
        self,
        index: int,
        *,
        model: SharedNetwork,
        network: ACNetwork,
        make_actor: MakeActor,
        buffer: RolloutBuffer,
        stop: threading.Event,
    ) -> None:
        self._index, self._model, self._network = index, model, network
        self._make_actor, self._buffer, self._stop_event = make_actor, buffer, stop

    def run(self) -> None:
        """Plays until the stop event is set; raises ClosedError when the buffer is closed before."""
        actor = self._make_actor(self._index, Policy(self._network))
        try:
            while not self._stop_event.is_set():
                self._model.pull(self._network)
                self._buffer.put(actor.rollout())
        finally:
            actor.close()


class Host:
    """Runs workers and their client of the server, each on a thread of its own. Owns the threads and the buffer between."""

    def __init__(
        self,
        config: Config,
        *,
        network: ACNetwork,
        make_network: MakeNetwork,
        make_actor: MakeActor,
        make_client: MakeClient,
        counts: RunCounts,
        unblock: Callable[[], None],
        number: int = 0,
    ) -> None:
        """The client keeps `counts` up to date; for the rest see the threads engine.

        `format_number` tells the random streams of hosts apart.
        """
        workers, self._stop_event = config.worker_count, threading.Event()
        model, stop = SharedNetwork(network), self._stop_event
        make: Callable[..., Worker | RolloutWorker]
        if config.transport == "gradients":
            sums = GradientAccumulator(config.push_rollouts, config.accumulate)
            self._buffer: SendBuffer = sums
            make = partial(Worker, config=config, counts=counts, updates=sums)
        else:
            self._buffer = rollouts = RolloutBuffer(workers)
            make = partial(RolloutWorker, buffer=rollouts)
        loops = {}
        for index in range(workers):
            own = make_network(f"worker_{index}")
            worker = make(index, model=model, network=own, make_actor=make_actor, stop=stop)
            loops[f"worker_{index}"] = worker.run
        self._client = make_client(self._buffer, model, stop)
        self.threads = ThreadGroup({**loops, "client": self._client.run}, self.stop, unblock)

    def stop(self) -> None:
        """Asks all threads to end; pushes left in the buffer are dropped."""
        self._stop_event.set()
        self._buffer.close()

    def run(self, generation: int) -> None:
        """Joins the run and plays until it is over; raises the first error of any thread."""
        self._client.join(generation)
        if self._stop_event.is_set():
            return  # the run is over already: no game need start
        try:
            self.threads.start()
            self._stop_event.wait()
        finally:
            self.threads.stop()
        self.threads.check()
