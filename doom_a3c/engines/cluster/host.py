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
from doom_a3c.engines.queue import play_rollouts
from doom_a3c.engines.thread_group import Loop, ThreadGroup
from doom_a3c.engines.threads import MakeActor, MakeNetwork, Worker
from doom_a3c.settings.config import Config

MakeClient = Callable[[SendBuffer, SharedNetwork, threading.Event], ServerClient]


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
        model, stop = SharedNetwork(network), threading.Event()
        networks = [make_network(f"worker_{index}") for index in range(config.worker_count)]
        workers: list[Loop]
        if config.transport == "gradients":
            sums = GradientAccumulator(config.push_rollouts, config.accumulate)
            self._buffer: SendBuffer = sums
            make = partial(
                Worker, config=config, model=model, make_actor=make_actor, counts=counts, updates=sums, stop=stop
            )
            workers = [make(index, network=own).run for index, own in enumerate(networks)]
        else:  # the server learns
            self._buffer = rollouts = RolloutBuffer(len(networks))
            workers = [
                partial(play_rollouts, index, make_actor, Policy(own), rollouts.put, stop, partial(model.pull, own))
                for index, own in enumerate(networks)
            ]
        self._client = make_client(self._buffer, model, stop)
        loops = {f"worker_{index}": run for index, run in enumerate(workers)}
        self._stop_event, self.threads = stop, ThreadGroup({**loops, "client": self._client.run}, self.stop, unblock)

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
