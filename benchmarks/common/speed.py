"""The speed of training and its parts, in game frames per second, and the cost of a step."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.common.processes import cpu_seconds, engines, family, memory
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.fields import Schedule
from doom_a3c.settings.interface import map_nested
from doom_a3c.settings.scenarios import Scenario

if TYPE_CHECKING:
    from doom_a3c.agent.distributions import Actions
    from doom_a3c.agent.learner import Gradients, Update
    from doom_a3c.agent.rollouts import Rollout, RolloutStats
    from doom_a3c.engines.updates import Updates
    from doom_a3c.record.metrics.progress import Progress
    from doom_a3c.run.actors import ActorFactory

WARM_UP = 2.0  # seconds


class Load(NamedTuple):
    """The cost of a measurement so far."""

    engines: float  # CPU seconds
    servers: float  # CPU seconds, the fork server's included
    trainer: float  # CPU seconds
    seconds: float  # wall-clock
    memory: float  # megabytes


def read_load(since: Load | None = None) -> Load:
    """Returns the resources used by this process and its game processes, in total or since an earlier reading."""
    own = os.getpid()
    games = set(engines(own))
    others = family(own) - games
    values = (cpu_seconds(games), cpu_seconds(others), time.process_time(), time.perf_counter())
    past = (0.0,) * 4 if since is None else since[:4]
    spent = [now - then for now, then in zip(values, past, strict=True)]
    return Load(spent[0], spent[1], spent[2], spent[3], memory({own} | games | others))


class Cost(NamedTuple):
    """Cost of a step."""

    engines: float  # CPU milliseconds
    servers: float
    trainer: float
    idle: float  # share of the cores
    memory: float  # megabytes in all


def cost_per_step(used: Load, steps: float) -> Cost:
    """Returns the cost of a step."""
    parts = (used.engines, used.servers, used.trainer)
    engines, servers, trainer = (1000 * part / steps for part in parts)
    return Cost(engines, servers, trainer, 1 - sum(parts) / cpu_count() / used.seconds, used.memory)


def measure_threads(threads: ThreadGroup, counts: Callable[[], Sequence[int]], seconds: float) -> tuple[float, Load]:
    """Runs threads for a while; returns their total frames per second, and the load.

    `counts` returns the frames of each thread so far. Measuring starts a while after all of them have some.
    """
    try:
        threads.start()
        while not all(counts()):
            threads.check()
            time.sleep(0.05)
        time.sleep(WARM_UP)
        before, frames, start = read_load(), sum(counts()), time.perf_counter()
        time.sleep(seconds)
        frames, elapsed = sum(counts()) - frames, time.perf_counter() - start
        used = read_load(before)
    finally:
        threads.stop()
    threads.check()
    return frames / elapsed, used


def measure_rate(frames_per_call: int, calls: Sequence[Callable[[], Any]], seconds: float) -> float:
    """Repeats every call on a thread of its own; returns their total frames per second."""
    counts, stop = [0] * len(calls), threading.Event()

    def loop(index: int, call: Callable[[], Any]) -> None:
        while not stop.is_set():
            call()
            counts[index] += frames_per_call

    loops = {f"calls_{index}": partial(loop, index, call) for index, call in enumerate(calls)}
    return measure_threads(ThreadGroup(loops, stop.set, lambda: None), lambda: counts, seconds)[0]


class CountedUpdates:
    """A worker's updates, counted when complete. Owns the number of frames that they were computed from."""

    def __init__(self, updates: Updates) -> None:
        self._updates, self._played, self.frames = updates, 0, 0

    def count(self, stats: RolloutStats, actions: Actions) -> None:
        """Counts a rollout before learning from it."""
        self._updates.count(stats, actions)
        self._played += stats.frames

    def apply(self, gradients: Gradients, version: int, last: bool) -> bool:
        """Applies gradients."""
        going_on = self._updates.apply(gradients, version, last)
        self.frames, self._played = self.frames + self._played, 0
        return going_on

    def log(self, update: Update) -> None:
        """Logs the last update from some rollouts."""
        self._updates.log(update)


class Parts:
    """The parts of training, measured one by one. Owns the workers' networks, and the games of the latest measurement."""

    def __init__(self, scenario: Scenario, config: Config, workers: int, games: int, processes: int | None) -> None:
        from doom_a3c.run.builder import Builder  # late: it imports TensorFlow, set up by now

        self._config = dataclasses.replace(
            config,
            workers=workers,
            envs_per_worker=games,
            game_processes=processes,
            learning_rate=Schedule(0.0),  # so that the policy stays the same
            frames=10**12,
            gif_every=0,
        )
        self._frames_per_step = games * scenario.game.frame_skip
        self._builder = Builder(scenario, self._config)
        self._networks = [self._builder.make_network(f"worker_{index}", 0) for index in range(workers)]

    def _actors(self, counts: Progress) -> ActorFactory:
        from doom_a3c.agent.rewards import RewardStats
        from doom_a3c.run.actors import ActorFactory

        return ActorFactory(self._config, self._builder, counts, RewardStats(), lambda recording: None, restarts=0)

    @cached_property
    def _rollouts(self) -> list[Rollout]:
        """A rollout per worker, whose games are closed afterwards."""
        import tensorflow as tf

        from doom_a3c.agent.policy import Policy
        from doom_a3c.record.metrics.progress import Progress

        make_actor, rollouts = self._actors(Progress()), []
        for index, network in enumerate(self._networks):
            with closing(make_actor(index, Policy(network))) as actor:
                rollouts.append(tf.nest.map_structure(np.array, actor.play_rollout().rollout))
        return rollouts

    def acting(self, seconds: float) -> float:
        """Returns the rate of acting."""
        from doom_a3c.agent.policy import Policy

        def acts(network: Any, rollout: Rollout) -> Callable[[], Any]:
            policy, resets = Policy(network), np.zeros(self._config.envs_per_worker, np.float32)
            seen = map_nested(lambda array: array[0], rollout.observations)
            return lambda: policy(seen, resets, rollout.core_state)

        calls = [acts(*pair) for pair in zip(self._networks, self._rollouts, strict=True)]
        return measure_rate(self._frames_per_step, calls, seconds)

    def gradients(self, seconds: float) -> float:
        """Returns the rate of computing all of a rollout's gradients."""
        from doom_a3c.agent.learner import Learner

        def learns(index: int, network: Any, rollout: Rollout) -> Callable[[], Any]:
            learner = Learner(network, self._config, index)
            return lambda: [
                learner.compute_gradients(part, 0) for part, _ in learner.deal_minibatches([learner.prepare(rollout)])
            ]

        calls = [learns(index, *pair) for index, pair in enumerate(zip(self._networks, self._rollouts, strict=True))]
        return measure_rate(self._frames_per_step * self._config.rollout_length, calls, seconds)

    def training(self, seconds: float) -> tuple[float, Load]:
        """Returns the end-to-end rate: pull, play, learn, apply."""
        from doom_a3c.engines.threads import Worker
        from doom_a3c.engines.updates import SharedStepSize, Updater
        from doom_a3c.record.metrics.progress import Progress

        model, progress, stop = self._builder.make_model(self._config), Progress(), threading.Event()
        make_actor, loops, updates = self._actors(progress), {}, []
        step_size = SharedStepSize.from_config(self._config, len(self._networks))
        for index, network in enumerate(self._networks):
            updates.append(CountedUpdates(Updater(self._config, model, progress, step_size, None)))
            worker = Worker(
                index,
                config=self._config,
                model=model,
                network=network,
                make_actor=make_actor,
                counts=progress,
                updates=updates[-1],
                stop=stop,
            )
            loops[f"worker_{index}"] = worker.run
        threads = ThreadGroup(loops, stop.set, self._builder.unblock)
        return measure_threads(threads, lambda: [each.frames for each in updates], seconds)


def parse_settings(text: str) -> list[tuple[int, int, int | None]]:
    """Parses '2x16,2x32x4' into [(2, 16, None), (2, 32, 4)]: workers, games per worker, game processes."""
    numbers = [list(map(int, item.split("x"))) for item in text.split(",")]
    return [(first, second, rest[0] if rest else None) for first, second, *rest in numbers]
