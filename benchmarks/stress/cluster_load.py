"""The load one parameter server carries: fake hosts push to a real server as fast as it answers."""

from __future__ import annotations

import argparse
import functools
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.stress.trial import call_patiently, make_settings, make_start_state
from doom_a3c.run import remote
from doom_a3c.settings.config import Config

if TYPE_CHECKING:
    from doom_a3c.engines.cluster.messages import Push
    from doom_a3c.run.builder import Builder

GENERATION = 1  # of every fake host


class FakeHost:
    """A host that pushes without playing."""

    def __init__(self, name: str, message: Push) -> None:
        self._name, self._message, self._sequence = name, message, 0

    def run(self, seconds: float) -> list[float]:
        """Pushes for a while; returns the seconds per push, including retries when the queue was full."""
        from doom_a3c.engines.cluster.ray import connect_server
        from doom_a3c.engines.cluster.server_client import SECONDS_BETWEEN_TRIES

        server = connect_server()
        version, times = server.join(self._name, GENERATION)["version"], []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._sequence += 1
            start = time.monotonic()
            while True:
                self._message["version"] = version
                answer = server.push(self._name, GENERATION, self._sequence, self._message, version)
                if answer["verdict"] != "full":
                    version = answer["version"]
                    break
                time.sleep(SECONDS_BETWEEN_TRIES)
            times.append(time.monotonic() - start)
        return times


def make_push(config: Config, builder: Builder) -> Push:
    """Returns a push of the size that a host of this scenario sends."""
    import tensorflow as tf

    from doom_a3c.agent.learner import Gradients, LearnerMetrics
    from doom_a3c.agent.rollouts import RolloutStats, VersionedRollout, make_blank_rollout
    from doom_a3c.engines.cluster.send_buffer import GradientAccumulator, RolloutBuffer

    network, length, games = builder.make_network("any", 0), config.rollout_length, config.envs_per_worker
    stats = RolloutStats(length * games, length * games * builder.scenario.game.frame_skip, [], [], [])
    if config.transport == "gradients":
        sums = GradientAccumulator(1, 1)
        sums.count(stats, np.zeros(0))
        small = [tf.fill(variable.shape, 1e-6) for variable in network.parameters]
        sums.add(Gradients(small, LearnerMetrics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), True), 0)
        return sums.take_push()
    rollouts = RolloutBuffer(1)
    start = network.initial_state(games)
    blank = make_blank_rollout(builder.inputs.make_zeros(games), length, start, builder.distribution)
    rollouts.put(VersionedRollout(blank, 0, stats))
    return rollouts.take_push()


def measure_load(options: argparse.Namespace) -> None:
    """Prints a table of the load carried."""
    from doom_a3c.engines.cluster.messages import ServerState, count_bytes
    from doom_a3c.engines.cluster.ray import (
        Blueprint,
        ServerProcess,
        connect,
        connect_server,
        list_machines,
        place_on,
        start_actor,
    )
    from doom_a3c.record.metrics.counters import to_plain

    print("| transport | hosts | pushes/s | p50 ms | p95 ms | MB/s sent |\n|---|---|---|---|---|---|", flush=True)
    for transport in options.transports:
        config, settings, builder = make_settings(options.scenario, transport=transport, frames=10**12)
        message, (variables, counters) = make_push(config, builder), make_start_state(config, builder)
        state: ServerState = {"variables": variables, "counters": to_plain(counters), "members": {}}
        for count in options.hosts:
            with connect(options.address, f"load-{transport}-{count}"):
                import ray  # late: on import it checks whether there is a token

                server = ServerProcess(Blueprint(remote.build_server, remote.build_host, settings), gpu=False)
                names = [f"fake_{index}" for index in range(count)]
                call_patiently(functools.partial(connect_server().start, state, dict.fromkeys(names, GENERATION)))
                nodes, here = sorted(list_machines()), ray.get_runtime_context().get_node_id()
                others = [node for node in nodes if node != here] or nodes
                places = [place_on(others[index % len(others)]) for index in range(count)]
                hosts = [start_actor(FakeHost, place, name, message) for name, place in zip(names, places, strict=True)]
                ray.get([host.run.remote(2.0) for host in hosts])  # warm-up: compiles and connects everything
                each = ray.get([host.run.remote(options.seconds) for host in hosts])
                rate, times = sum(len(own) / sum(own) for own in each), np.concatenate(each)
                p50, p95 = np.percentile(times, [50, 95]) * 1000
                sent = rate * count_bytes(message) / 1e6
                print(f"| {transport} | {count} | {rate:.1f} | {p50:.0f} | {p95:.0f} | {sent:.1f} |", flush=True)
                for actor in hosts:
                    ray.kill(actor)
                server.kill()
