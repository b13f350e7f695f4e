"""Measures how fast the parts and the whole of training are, in game frames per second, all in one run.

    python benchmarks/throughput.py --seconds 10 --repeats 3 --json throughput.json

Four figures per setting, on the same games and resolution (a scenario's own; basic is 160x120 grey with frame skip 4):
the raw engine with random actions, acting alone (the network decides on one fixed observation), gradients alone (one fixed
rollout), and training end to end, by the threads engine's own workers. The ratio of the whole to the best raw rate over a
few thread counts says how much of the machine's game speed is left after learning. For training, a second table says what
CPU time a step takes of the game engines, of the game servers and of the trainer, how much of the cores is idle, and
the memory of all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from processes import cpu_seconds, engines, family, memory

from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.fields import Schedule
from doom_a3c.settings.games import AtariSpec, DoomSpec, Observation
from doom_a3c.settings.scenarios import Scenario, apply_overrides
from doom_a3c.settings.streams import Stream, make_seed
from doom_a3c.settings.tree import map_nested

if TYPE_CHECKING:
    from doom_a3c.agent.distributions import Actions
    from doom_a3c.agent.learner import Gradients, Update
    from doom_a3c.agent.rollouts import Rollout, RolloutStats
    from doom_a3c.engines.updates import Updates
    from doom_a3c.record.metrics.progress import Progress
    from doom_a3c.run.actors import ActorFactory

RAW_SETTINGS = ((2, 16), (4, 8), (8, 4), (8, 1), (16, 2))  # threads x games each
FIGURES = ("raw", "acting", "gradients", "training")
WARM_UP = 2.0  # seconds


class Load(NamedTuple):
    """What a running measurement costs."""

    engines: float  # CPU seconds
    servers: float  # CPU seconds, the fork server's included
    trainer: float  # CPU seconds
    seconds: float  # of all this
    memory: float  # megabytes


def load(since: Load | None = None) -> Load:
    """Returns what has been used by this process and those that play for it, or what since an earlier moment."""
    own = os.getpid()
    games = set(engines(own))
    others = family(own) - games
    values = (cpu_seconds(games), cpu_seconds(others), time.process_time(), time.perf_counter())
    past = (0.0,) * 4 if since is None else since[:4]
    spent = [now - then for now, then in zip(values, past, strict=True)]
    return Load(spent[0], spent[1], spent[2], spent[3], memory({own} | games | others))


class Cost(NamedTuple):
    """What a step costs."""

    engines: float  # CPU milliseconds
    servers: float
    trainer: float
    idle: float  # share of the cores
    memory: float  # megabytes, of everything


def per_step(used: Load, steps: float) -> Cost:
    """Returns what a step has cost."""
    parts = (used.engines, used.servers, used.trainer)
    engines, servers, trainer = (1000 * part / steps for part in parts)
    return Cost(engines, servers, trainer, 1 - sum(parts) / cpu_count() / used.seconds, used.memory)


def measured(threads: ThreadGroup, counts: Callable[[], Sequence[int]], seconds: float) -> tuple[float, Load]:
    """Runs threads for a while; returns the frames per second of all together, and the load.

    `counts` returns the frames of each thread so far. What is measured begins a while after all of them have some.
    """
    try:
        threads.start()
        while not all(counts()):
            threads.check()
            time.sleep(0.05)
        time.sleep(WARM_UP)
        before, frames, start = load(), sum(counts()), time.perf_counter()
        time.sleep(seconds)
        frames, elapsed = sum(counts()) - frames, time.perf_counter() - start
        used = load(before)
    finally:
        threads.stop()
    threads.check()
    return frames / elapsed, used


def rate(frames_per_call: int, calls: Sequence[Callable[[], Any]], seconds: float) -> float:
    """Runs every call again and again on a thread of its own; returns their frames per second together."""
    counts, stop = [0] * len(calls), threading.Event()

    def loop(index: int, call: Callable[[], Any]) -> None:
        while not stop.is_set():
            call()
            counts[index] += frames_per_call

    loops = {f"calls_{index}": partial(loop, index, call) for index, call in enumerate(calls)}
    return measured(ThreadGroup(loops, stop.set, lambda: None), lambda: counts, seconds)[0]


def raw_rate(scenario: Scenario, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of bare games with random actions: each thread steps its games in turn."""
    if isinstance(scenario.game, DoomSpec):
        return raw_doom(scenario.game, scenario.observation, threads, games, seconds)
    return raw_vector(scenario, threads, games, seconds)


def raw_vector(scenario: Scenario, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of vectors of games, stepped together: Atari's own C++ vector, as the library makes it."""
    from doom_a3c.run.builder import Builder

    builder = Builder(scenario, Config())
    envs: list[Any] = [builder.make_training_env(games) for _ in range(threads)]
    if isinstance(scenario.game, AtariSpec):
        envs = [env.unwrapped for env in envs]

    def stepper(index: int) -> Callable[[], None]:
        random = np.random.default_rng(make_seed(index, Stream.RANDOM_PLAY))
        envs[index].reset(seed=index)
        return lambda: envs[index].step(builder.distribution.sample_uniform(games, random))

    try:
        return rate(games * scenario.game.frame_skip, [stepper(index) for index in range(threads)], seconds)
    finally:
        for env in envs:
            env.close()


def raw_doom(spec: DoomSpec, observation: Observation, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of bare engines; nobody takes a frame."""
    from doom_a3c.envs.doom.engine_process import DoomProcess
    from doom_a3c.envs.doom.setup import check, configure

    actions = check(spec, observation)
    engines = [[DoomProcess(lambda game: configure(game, spec, observation)) for _ in range(games)] for _ in range(threads)]

    def stepper(index: int) -> Callable[[], None]:
        random = np.random.default_rng(index)
        choices = itertools.cycle(random.integers(len(actions), size=4093).tolist())

        def step_all() -> None:
            for engine in engines[index]:
                engine.game.make_action(actions[next(choices)], spec.frame_skip)
                if engine.game.is_episode_finished():
                    engine.game.new_episode()

        return step_all

    try:
        return rate(games * spec.frame_skip, [stepper(index) for index in range(threads)], seconds)
    finally:
        for engine in itertools.chain.from_iterable(engines):
            engine.close()


class CountedUpdates:
    """A worker's updates, counted when they are complete. Owns the number of frames that they were made from."""

    def __init__(self, updates: Updates) -> None:
        self._updates, self._played, self.frames = updates, 0, 0

    def count(self, stats: RolloutStats, actions: Actions) -> None:
        """Counts what has been played and is about to be learned from."""
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
    """What training consists of, for so many workers. Owns their networks, and the games of the one measured newest."""

    def __init__(self, scenario: Scenario, config: Config, workers: int, games: int, processes: int | None) -> None:
        from doom_a3c.run.builder import Builder  # late: it imports TensorFlow, set up by now

        self._config = dataclasses.replace(
            config,
            workers=workers,
            envs_per_worker=games,
            game_processes=processes,
            learning_rate=Schedule(0.0),  # so that play stays the same
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
        """A rollout of each worker's games, which do not outlive it."""
        import tensorflow as tf

        from doom_a3c.agent.policy import Policy
        from doom_a3c.record.metrics.progress import Progress

        make_actor, rollouts = self._actors(Progress()), []
        for index, network in enumerate(self._networks):
            with closing(make_actor(index, Policy(network))) as actor:
                rollouts.append(tf.nest.map_structure(np.array, actor.play_rollout().rollout))
        return rollouts

    def acting(self, seconds: float) -> float:
        """Returns the rate of steps alone."""
        from doom_a3c.agent.policy import Policy

        def acts(network: Any, rollout: Rollout) -> Callable[[], Any]:
            policy, resets = Policy(network), np.zeros(self._config.envs_per_worker, np.float32)
            seen = map_nested(lambda array: array[0], rollout.observations)
            return lambda: policy(seen, resets, rollout.core_state)

        calls = [acts(*pair) for pair in zip(self._networks, self._rollouts, strict=True)]
        return rate(self._frames_per_step, calls, seconds)

    def gradients(self, seconds: float) -> float:
        """Returns the rate of gradients alone, all that are computed from a rollout."""
        from doom_a3c.agent.learner import Learner

        def learns(index: int, network: Any, rollout: Rollout) -> Callable[[], Any]:
            learner = Learner(network, self._config, index)
            return lambda: [
                learner.compute_gradients(part, 0) for part, _ in learner.deal_minibatches([learner.prepare(rollout)])
            ]

        calls = [learns(index, *pair) for index, pair in enumerate(zip(self._networks, self._rollouts, strict=True))]
        return rate(self._frames_per_step * self._config.rollout_length, calls, seconds)

    def training(self, seconds: float) -> tuple[float, Load]:
        """Returns the rate of the whole: pull, play, learn, apply."""
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
        return measured(threads, lambda: [each.frames for each in updates], seconds)


def settings(text: str) -> list[tuple[int, int, int | None]]:
    """Parses '2x16,2x32x4' into [(2, 16, None), (2, 32, 4)]: workers, games of each, processes that those live in."""
    numbers = [list(map(int, item.split("x"))) for item in text.split(",")]
    return [(first, second, rest[0] if rest else None) for first, second, *rest in numbers]


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scenario", default="basic", help="what is played (default basic)")
    parser.add_argument(
        "--settings", type=settings, default="2x16,2x32,4x16", help="workers x games (x processes): '2x16,2x32x4'"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement (default 8)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each figure, median reported (default 3)")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=FIGURES, help="which figures (default all)")
    parser.add_argument("--json", type=Path, help="also write all measurements to this file")
    options = parser.parse_args()
    import_tensorflow(cpu_count(), verbose=False, device="auto")
    found = catalog.find(options.scenario)
    scenario, config = apply_overrides(found, found.training, found.name)
    samples: dict[str, list[float]] = {}
    costs: dict[str, list[Cost]] = {}

    def note(name: str, value: float) -> None:
        samples.setdefault(name, []).append(value)
        print(f"{name:24s} {value:10,.0f} frames/s", file=sys.stderr, flush=True)

    for _ in range(options.repeats):  # all figures once, then all again: a slow minute of the machine hits all alike
        for threads, games in RAW_SETTINGS if "raw" in options.only else ():
            note(f"raw {threads}x{games}", raw_rate(scenario, threads, games, options.seconds))
        for workers, games, processes in options.settings:
            parts = Parts(scenario, config, workers, games, processes)
            name = f"{workers}x{games}" + (f"x{processes}" if processes is not None else "")
            if "acting" in options.only:
                note(f"acting {name}", parts.acting(options.seconds))
            if "gradients" in options.only:
                note(f"gradients {name}", parts.gradients(options.seconds))
            if "training" in options.only:
                speed, used = parts.training(options.seconds)
                note(f"training {name}", speed)
                costs.setdefault(name, []).append(per_step(used, speed * used.seconds / scenario.game.frame_skip))
    report(samples, costs, options)


def report(samples: dict[str, list[float]], costs: dict[str, list[Cost]], options: argparse.Namespace) -> None:
    """Prints medians and ratios; writes all measurements where asked to."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    best_raw = max((value for name, value in medians.items() if name.startswith("raw")), default=None)
    print(f"\nscenario {options.scenario}, {cpu_count()} CPUs, median of {options.repeats} x {options.seconds:g} s")
    print("| what (threads x games) | frames/s | of the best raw rate |\n|---|---|---|")
    for name, value in medians.items():
        print(f"| {name} | {value:,.0f} | {f'{value / best_raw:.2f}' if best_raw else '-'} |")
    if costs:
        print("\n| training | engines, CPU ms a step | servers | trainer | together | idle | MB |\n" + "|---" * 7 + "|")
    for name, values in costs.items():
        *parts, idle, megabytes = (statistics.median(column) for column in zip(*values, strict=True))
        cells = [f"{part:.3f}" for part in (*parts, sum(parts))]
        print(f"| {name} | {' | '.join(cells)} | {idle:.0%} | {megabytes:,.0f} |")
    if options.json:
        data = {"scenario": options.scenario, "cpus": cpu_count(), "best_raw": best_raw, "frames_per_second": samples}
        options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
