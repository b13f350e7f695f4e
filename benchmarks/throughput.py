"""Measures how fast the parts and the whole of training are, in game frames per second, all in one run.

    python benchmarks/throughput.py --seconds 10 --repeats 3 --json throughput.json

Four figures per setting, on the same games and resolution (a scenario's own; basic is 160x120 grey with frame skip 4):
the raw engine with random actions, acting alone (the network decides on one fixed observation), gradients alone (one fixed
rollout), and training end to end. The ratio of the whole to the best raw rate over a few thread counts says how much
of the machine's game speed is left after learning. For training, a second table says what CPU time a decision takes of the
game engines, of the game servers and of the trainer, how much of the cores is idle, and the memory of all of them.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from processes import cpu_seconds, engines, family, memory

from doom_a3c import catalog
from doom_a3c.cli import command
from doom_a3c.config import Config, cpu_count
from doom_a3c.scenarios import AtariSpec, DoomSpec, Observation, Scenario, resolved

RAW_SETTINGS = ((2, 16), (4, 8), (8, 4), (8, 1), (16, 2))  # threads x games each
FIGURES = ("raw", "acting", "gradients", "training")
WARM_UP = 2.0  # seconds


class Load(NamedTuple):
    """What a running measurement costs."""

    engines: float  # CPU seconds
    servers: float  # CPU seconds, the keeper's included
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
    """What a decision costs."""

    engines: float  # CPU milliseconds
    servers: float
    trainer: float
    idle: float  # share of the cores
    memory: float  # megabytes, of everything


def per_decision(used: Load, decisions: float) -> Cost:
    """Returns what a decision has cost."""
    parts = (used.engines, used.servers, used.trainer)
    engines, servers, trainer = (1000 * part / decisions for part in parts)
    return Cost(engines, servers, trainer, 1 - sum(parts) / cpu_count() / used.seconds, used.memory)


def rate(frames_per_call: int, calls: list[Callable[[], Any]], seconds: float) -> tuple[float, Load]:
    """Runs every call again and again on a thread of its own; returns their frames per second together, and the load."""
    counts = [0] * len(calls)
    measuring, stop = threading.Event(), threading.Event()

    def loop(index: int, call: Callable[[], Any]) -> None:
        while not stop.is_set():
            call()
            if measuring.is_set():
                counts[index] += frames_per_call

    threads = [threading.Thread(target=loop, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP)
    before = load()
    measuring.set()
    start = time.perf_counter()
    time.sleep(seconds)
    measuring.clear()
    elapsed = time.perf_counter() - start
    used = load(before)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / elapsed, used


def raw_rate(scenario: Scenario, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of bare games with random actions: each thread steps its games in turn."""
    if isinstance(scenario.game, DoomSpec):
        return raw_doom(scenario.game, scenario.observation, threads, games, seconds)
    return raw_vector(scenario, threads, games, seconds)


def raw_vector(scenario: Scenario, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of vectors of games, stepped together: Atari's own C++ vector, as the library makes it."""
    from doom_a3c.cli.build import Builder

    builder = Builder(scenario, Config())
    envs: list[Any] = [builder.training_env(games) for _ in range(threads)]
    if isinstance(scenario.game, AtariSpec):
        envs = [env.unwrapped for env in envs]

    def stepper(index: int) -> Callable[[], None]:
        random = np.random.default_rng(index)
        envs[index].reset(seed=index)
        return lambda: envs[index].step(random.integers(builder.actions, size=games))

    try:
        return rate(games * scenario.game.frame_skip, [stepper(index) for index in range(threads)], seconds)[0]
    finally:
        for env in envs:
            env.close()


def raw_doom(spec: DoomSpec, observation: Observation, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of bare engines; nobody takes a frame."""
    from doom_a3c.envs.doom_process import DoomProcess
    from doom_a3c.envs.doom_setup import check, configure

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
        return rate(games * spec.frame_skip, [stepper(index) for index in range(threads)], seconds)[0]
    finally:
        for engine in itertools.chain.from_iterable(engines):
            engine.close()


class Parts:
    """What a worker consists of, taken apart. Owns the games of all workers."""

    def __init__(self, scenario: Scenario, config: Config, workers: int, games: int, processes: int | None) -> None:
        from doom_a3c.cli.actors import ActorFactory
        from doom_a3c.cli.build import Builder
        from doom_a3c.learner import Learner
        from doom_a3c.model import GlobalModel
        from doom_a3c.optimizers import Adam
        from doom_a3c.progress import Progress
        from doom_a3c.rollouts import Policy

        config = dataclasses.replace(config, workers=workers, games=games, game_processes=processes, gif_every=0)
        builder = Builder(scenario, config)
        self.config, self.games = config, games
        self.model = GlobalModel(network := builder.network("global", 0), Adam(network.parameters))
        self.networks = [builder.network(f"worker_{index}", 0) for index in range(workers)]
        make_actor = ActorFactory(config, builder, Progress(), lambda film: None, restarts=0)
        self.policies = [Policy(network) for network in self.networks]
        self.actors = [make_actor(index, policy) for index, policy in enumerate(self.policies)]
        self.learners = [Learner(network, config) for network in self.networks]
        self.frames_per_decision = games * config.frame_skip

    def acting(self, seconds: float) -> float:
        """Returns the rate of decisions alone."""

        def act(index: int, rollout: Any) -> Callable[[], Any]:
            observations = rollout.observations[0].copy()
            resets = np.zeros(self.games, np.float32)
            return lambda: self.policies[index](observations, resets, rollout.core_state)

        calls = [act(index, actor.rollout()) for index, actor in enumerate(self.actors)]
        return rate(self.frames_per_decision, calls, seconds)[0]

    def gradients(self, seconds: float) -> float:
        """Returns the rate of gradients alone."""

        def learn(index: int, rollout: Any) -> Callable[[], Any]:
            return lambda: self.learners[index].gradients([rollout], 0, 0)

        calls = [learn(index, actor.rollout()) for index, actor in enumerate(self.actors)]
        return rate(self.frames_per_decision * self.config.rollout_length, calls, seconds)[0]

    def training(self, seconds: float) -> tuple[float, Load]:
        """Returns the rate of the whole: pull, play, learn, apply. The step size is 0, so that play stays the same."""

        def update(index: int) -> Callable[[], Any]:
            actor, learner, network = self.actors[index], self.learners[index], self.networks[index]

            def call() -> None:
                version = self.model.pull(network)
                gradients = learner.gradients([actor.rollout()], version, 0)
                actor.take()
                self.model.apply(gradients.gradients, 0.0)

            return call

        calls = [update(index) for index in range(len(self.actors))]
        return rate(self.frames_per_decision * self.config.rollout_length, calls, seconds)

    def close(self) -> None:
        """Closes all games."""
        for actor in self.actors:
            actor.close()


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
    command.import_tensorflow(cpu_count(), verbose=False, device="auto")
    found = catalog.find(options.scenario)
    scenario, config = resolved(found, found.training, found.name)
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
            try:
                if "acting" in options.only:
                    note(f"acting {name}", parts.acting(options.seconds))
                if "gradients" in options.only:
                    note(f"gradients {name}", parts.gradients(options.seconds))
                if "training" in options.only:
                    speed, used = parts.training(options.seconds)
                    note(f"training {name}", speed)
                    costs.setdefault(name, []).append(per_decision(used, speed * used.seconds / config.frame_skip))
            finally:
                parts.close()
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
        print("\n| training | engines, CPU ms a decision | servers | trainer | together | idle | MB |\n" + "|---" * 7 + "|")
    for name, values in costs.items():
        *parts, idle, megabytes = (statistics.median(column) for column in zip(*values, strict=True))
        cells = [f"{part:.3f}" for part in (*parts, sum(parts))]
        print(f"| {name} | {' | '.join(cells)} | {idle:.0%} | {megabytes:,.0f} |")
    if options.json:
        data = {"scenario": options.scenario, "cpus": cpu_count(), "best_raw": best_raw, "frames_per_second": samples}
        options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
