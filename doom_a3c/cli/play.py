"""play.py: shows what a checkpoint's agent does, in scores and in films."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from doom_a3c import scenarios
from doom_a3c.cli import command
from doom_a3c.config import Config, UserError, cpu_count, flag_parser, select, setting, validated

if TYPE_CHECKING:
    from doom_a3c.cli.build import Builder
    from doom_a3c.evaluation import Scores
    from doom_a3c.networks import ACNetwork
    from doom_a3c.recording import Frame


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of play.py."""

    model: str = setting("models/last.ckpt", "checkpoint of the agent; it holds network and scenario")
    out: str = setting("result", "folder for films, scores.csv and summary.json")
    episodes: int = setting(10, "episodes to play, each with a seed of its own", unit="episodes", low=1, high=100_000)
    record: int = setting(10, "how many of them, the first ones, are filmed as gif and mp4", unit="episodes", low=0)
    policy: str = setting("greedy", "take the likeliest action, or draw from the policy", choices=("greedy", "sample"))
    seed: int = setting(1_000_000, "seed of the first episode, the next one's is one more", low=0, high=2**31 - 1)
    window: bool = setting(False, "show the game in a window, in real time")
    verbose: bool = setting(False, "show what TensorFlow prints")
    quiet: bool = setting(False, "print nothing but errors")


class Episode(NamedTuple):
    """A played episode; frames are those of every tic, none where it was not filmed."""

    score: float
    length: int
    frames: list[Frame]


def main(arguments: list[str] | None = None) -> int:
    """Runs play.py; returns its exit status."""
    return command.run("play.py", _play, arguments)


def _play(arguments: list[str] | None) -> int:
    flags = flag_parser("play.py", "Plays a trained agent and films it.", Options).parse(arguments)
    options = validated(Options, select(flags, Options), "flags")
    if options.window and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise UserError("--window needs a display and there is none: leave it out and watch the mp4 files, or use ssh -X")
    if not Path(options.model).is_file():
        raise UserError(f"there is no checkpoint {options.model}; train.py writes models/last.ckpt and models/best.ckpt")
    command.import_tensorflow(cpu_count(), options.verbose)
    builder, network = restored(options.model)
    folder = command.output_folder(options.out, "--out")

    def say(line: str) -> None:
        if not options.quiet:
            print(line, flush=True)

    with Player(builder, network, options) as player:
        say(f"{options.model}: {builder.scenario.name}, {options.policy} policy\nepisode   score  decisions")
        scores = []
        for index in range(options.episodes):
            episode = player.episode(options.seed + index, filmed=index < options.record)
            scores.append((episode.score, episode.length))
            if episode.frames:
                _write_films(folder / f"episode_{index:03d}", episode.frames)
            say(f"{index:7d} {episode.score:7.1f} {episode.length:10d}")
    statistics = _write_scores(folder, options, builder.scenario.name, scores)
    say(
        f"mean {statistics.mean:.2f}  std {statistics.std:.2f}  min {statistics.min:.1f}  max {statistics.max:.1f}\n"
        f"films, scores.csv and summary.json are in {folder}"
    )
    return 0


def restored(model: str) -> tuple[Builder, ACNetwork]:
    """Returns games and network as a checkpoint alone says they are, with the trained weights.

    Raises:
        UserError: if the checkpoint is none, or its scenario's files are not here.
    """
    from doom_a3c.checkpoint import load
    from doom_a3c.cli.build import Builder

    checkpoint = load(Path(model))
    scenario = scenarios.from_record(checkpoint.record["scenario"], f"the scenario in {model}")
    config = validated(Config, checkpoint.record["config"], f"the settings in {model}")
    builder = Builder(scenario, config.frame_skip)
    network = builder.network("player", config.seed)
    try:
        network.load(checkpoint.variables)
    except (KeyError, ValueError) as error:
        raise UserError(f"{model} does not fit its own scenario {scenario.name}: {error}") from None
    return builder, network


class Player:
    """Plays single episodes, filming them on request. Owns a game and a camera; a context that closes both."""

    def __init__(self, builder: Builder, network: ACNetwork, options: Options) -> None:
        import numpy as np

        from doom_a3c.rollouts import Policy

        self._network, self._policy = network, Policy(network)
        self._greedy, self._window = options.policy == "greedy", options.window
        self._random = np.random.default_rng(options.seed)
        self._env = builder.shown_env()
        self._camera = builder.camera(options.window) if options.record or options.window else None

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *error: object) -> None:
        self._env.close()
        if self._camera:
            self._camera.close()

    def episode(self, seed: int, filmed: bool) -> Episode:
        """Plays one episode from its first observation to its end, carrying the recurrent state."""
        import numpy as np
        import tensorflow as tf

        from doom_a3c.rollouts import sample

        camera = self._camera if filmed or self._window else None
        observation, info = self._env.reset(seed=seed)
        frames = camera.reset(info["seed"]) if camera else []
        core_state, reset = self._network.initial_state(1), np.ones(1, np.float32)
        score, length, ended = 0.0, 0, False
        while not ended:
            batch = tf.nest.map_structure(lambda array: array[None], observation)
            logits, _, core_state = self._policy(batch, reset, core_state)
            action = int(np.argmax(logits[0]) if self._greedy else sample(logits, self._random)[0])
            observation, reward, terminated, truncated, info = self._env.step(action)
            if "engine_fault" in info:
                raise UserError(f"the game engine failed while playing ({info['engine_fault']}); run play.py again")
            score, length, ended = score + float(reward), length + 1, terminated or truncated
            reset = np.zeros(1, np.float32)
            if camera:
                frames += self._filmed(camera, action)
        if camera and abs(camera.score - score) > 1e-3:
            print(f"warning: the film of seed {seed} shows another course ({camera.score:.1f})", file=sys.stderr)
        return Episode(score, length, frames if filmed else [])

    def _filmed(self, camera: Any, action: int) -> list[Frame]:
        start = time.monotonic()
        frames: list[Frame] = camera.step(action)
        if self._window:
            time.sleep(max(0.0, len(frames) / camera.frames_per_second - (time.monotonic() - start)))
        return frames


def _write_films(stem: Path, frames: Sequence[Frame]) -> None:
    from doom_a3c.envs.doom import TICS_PER_SECOND
    from doom_a3c.recording import write_gif, write_mp4

    write_gif(stem.with_name(stem.name + ".gif"), frames, TICS_PER_SECOND)
    write_mp4(stem.with_name(stem.name + ".mp4"), frames, TICS_PER_SECOND)


def _write_scores(folder: Path, options: Options, scenario: str, rows: Sequence[tuple[float, int]]) -> Scores:
    from doom_a3c.evaluation import scores

    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("episode", "seed", "score", "decisions"))
        writer.writerows((i, options.seed + i, score, length) for i, (score, length) in enumerate(rows))
    statistics = scores([score for score, _ in rows])
    summary = {
        "model": options.model,
        "scenario": scenario,
        "policy": options.policy,
        "seed": options.seed,
        **statistics._asdict(),
        "lengths": [length for _, length in rows],
        "scores": [score for score, _ in rows],
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return statistics
