"""A host of the cluster engine: workers that play, and a client thread that sends their pushes to the parameter server.

The host has a copy of the server's weights, replaced whenever an answer brings newer ones; its workers pull from the copy.
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
    """A worker that only plays: the server learns from its rollouts. Owns its network and games."""

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
        """Plays until the stop event is set; raises ClosedError if the buffer is closed earlier."""
        actor = self._make_actor(self._index, Policy(self._network))
        try:
            while not self._stop_event.is_set():
                self._model.pull(self._network)
                self._buffer.put(actor.play_rollout())
        finally:
            actor.close()


class Host:
    """Runs workers and a client of the server, each on its own thread. Owns the threads and the buffer between them."""

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
    ) -> None:
        """Makes the threads, not started yet.

        Args:
            config: the settings of the run.
            network: takes the server's weights.
            make_network: makes the network of a worker.
            make_actor: makes the actor of a worker.
            make_client: makes the client from the buffer, the shared network and the stop event.
            counts: of the whole run; the client updates them.
            unblock: frees workers that wait for a hanging game.
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
        """Asks all threads to end; drops the pushes left in the buffer."""
        self._stop_event.set()
        self._buffer.close()

    def run(self, generation: int) -> None:
        """Joins the run and plays until it is over; raises the first error of a thread."""
        self._client.join(generation)
        if self._stop_event.is_set():
            return  # the run is over: no game needs to start
        try:
            self.threads.start()
            self._stop_event.wait()
        finally:
            self.threads.stop()
        self.threads.check()
