"""Measures the speed of training and its parts in game frames per second, all in one run.

    python -m benchmarks.throughput --seconds 10 --repeats 3 --json throughput.json

Four figures per setting, on the same games and resolution (a scenario's own; basic is 160x120 grey with frame skip 4):
the raw engine with random actions, acting alone (the network decides on one fixed observation), gradients alone (one fixed
rollout), and training end to end, by the threads engine's own workers. The last two are measured with all updates that the
scenario makes from a rollout, as users train it, and with one. The ratio of training to the best raw rate over some thread
counts is the share of the machine's game speed left after learning. For training, a second table lists the CPU time per
step of game engines, game servers and trainer, the cores' idle share, and the memory of all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.speed import Cost, Parts, cost_per_step, measure_rate, parse_settings
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.games import AtariSpec, DoomSpec, Observation
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.scenarios import Scenario, apply_overrides
from doom_a3c.settings.streams import Stream, make_seed

RAW_SETTINGS = ((2, 16), (4, 8), (8, 4), (8, 1), (16, 2))  # threads x games each
FIGURES = ("raw", "acting", "gradients", "training")


def measure_raw(scenario: Scenario, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of bare games with random actions: each thread steps its games in turn."""
    if isinstance(scenario.game, DoomSpec):
        return measure_raw_doom(scenario.game, scenario.observation, threads, games, seconds)
    return measure_raw_vector(scenario, threads, games, seconds)


def measure_raw_vector(scenario: Scenario, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of vectors of games stepped together; for Atari, the library's own C++ vector."""
    from doom_a3c.run.builder import Builder

    builder = Builder(scenario, Config())
    envs: list[Any] = [builder.make_training_env(games) for _ in range(threads)]
    if isinstance(scenario.game, AtariSpec):
        envs = [env.unwrapped for env in envs]

    def stepper(index: int) -> Callable[[], None]:
        random = np.random.default_rng(make_seed(index, Stream.RANDOM_PLAY))
        envs[index].reset(seed=index)
        logits = np.zeros((games, builder.distribution.size), np.float32)
        return lambda: envs[index].step(builder.distribution.sample_uniform(logits, random))

    try:
        return measure_rate(games * scenario.game.frame_skip, [stepper(index) for index in range(threads)], seconds)
    finally:
        for env in envs:
            env.close()


def measure_raw_doom(spec: DoomSpec, observation: Observation, threads: int, games: int, seconds: float) -> float:
    """Returns the rate of bare engines, in a match with its bots; no frame is read."""
    from doom_a3c.envs.doom.match import Match
    from doom_a3c.envs.doom.setup import check
    from doom_a3c.envs.doom.start import start_engine

    actions, match = check(spec, observation), parse_match(spec.match)
    engines = [[start_engine(spec, observation) for _ in range(games)] for _ in range(threads)]

    def add_bots(game: Any) -> None:
        if match:
            Match(match).begin(game)

    for engine in itertools.chain.from_iterable(engines):
        add_bots(engine.game)

    def stepper(index: int) -> Callable[[], None]:
        space = actions.space
        space.seed(index)
        choices = itertools.cycle([actions.press(space.sample()) for _ in range(4093)])

        def step_all() -> None:
            for engine in engines[index]:
                engine.game.make_action(next(choices), spec.frame_skip)
                if engine.game.is_episode_finished():
                    engine.game.new_episode()
                    add_bots(engine.game)

        return step_all

    try:
        return measure_rate(games * spec.frame_skip, [stepper(index) for index in range(threads)], seconds)
    finally:
        for engine in itertools.chain.from_iterable(engines):
            engine.close()


def main() -> None:
    """Measures and prints a table."""
    parser = make_parser("throughput", __doc__)
    parser.add_argument("--scenario", default="basic", help="scenario to measure (default basic)")
    parser.add_argument(
        "--settings", type=parse_settings, default="2x16,2x32,4x16", help="workers x games (x processes): '2x16,2x32x4'"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement (default 8)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each figure, median reported (default 3)")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=FIGURES, help="figures to measure (default all)")
    parser.add_argument("--json", type=Path, help="also write all measurements to this file")
    options = parser.parse_args()
    import_tensorflow(cpu_count(), verbose=False, device="auto")
    found = catalog.find(options.scenario)
    scenario, config = apply_overrides(found, found.training, found.name)
    variants = [("one update", dataclasses.replace(config, epochs=1, minibatches=1))]
    if config.updates_per_rollout > 1:
        variants.insert(0, ("all updates", config))
    samples: dict[str, list[float]] = {}
    costs: dict[str, list[Cost]] = {}

    def note(name: str, value: float) -> None:
        samples.setdefault(name, []).append(value)
        print(f"{name:40s} {value:10,.0f} frames/s", file=sys.stderr, flush=True)

    for _ in range(options.repeats):  # all figures in every round: a slow minute of the machine hits all alike
        for threads, games in RAW_SETTINGS if "raw" in options.only else ():
            note(f"raw {threads}x{games}", measure_raw(scenario, threads, games, options.seconds))
        for (workers, games, processes), (updates, variant) in itertools.product(options.settings, variants):
            parts = Parts(scenario, variant, workers, games, processes)
            setting = f"{workers}x{games}" + (f"x{processes}" if processes is not None else "")
            name = f"{setting}, {updates}"
            if "acting" in options.only and updates == "one update":
                note(f"acting {setting}", parts.acting(options.seconds))
            if "gradients" in options.only:
                note(f"gradients {name}", parts.gradients(options.seconds))
            if "training" in options.only:
                speed, used = parts.training(options.seconds)
                note(f"training {name}", speed)
                costs.setdefault(name, []).append(cost_per_step(used, speed * used.seconds / scenario.game.frame_skip))
    report(samples, costs, options)


def report(samples: dict[str, list[float]], costs: dict[str, list[Cost]], options: argparse.Namespace) -> None:
    """Prints medians and ratios; writes all measurements if asked to."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    best_raw = max((value for name, value in medians.items() if name.startswith("raw")), default=None)
    print(f"\nscenario {options.scenario}, {cpu_count()} CPUs, median of {options.repeats} x {options.seconds:g} s")
    print("| part (threads x games) | frames/s | of the best raw rate |\n|---|---|---|")
    for name, value in medians.items():
        print(f"| {name} | {value:,.0f} | {f'{value / best_raw:.2f}' if best_raw else '-'} |")
    if costs:
        print("\n| training | engines, CPU ms per step | servers | trainer | total | idle | MB |\n" + "|---" * 7 + "|")
    for name, values in costs.items():
        *parts, idle, megabytes = (statistics.median(column) for column in zip(*values, strict=True))
        cells = [f"{part:.3f}" for part in (*parts, sum(parts))]
        print(f"| {name} | {' | '.join(cells)} | {idle:.0%} | {megabytes:,.0f} |")
    if options.json:
        data = {"scenario": options.scenario, "cpus": cpu_count(), "best_raw": best_raw, "frames_per_second": samples}
        options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    run_command("throughput", main)
