"""play.py: shows what a checkpoint's agent does, in scores and in films."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from doom_a3c import scenarios
from doom_a3c.cli import command
from doom_a3c.cli.flags import flag_parser, select
from doom_a3c.config import Config, cpu_count
from doom_a3c.progress import shown
from doom_a3c.settings import UserError, setting, validated

if TYPE_CHECKING:
    from doom_a3c.cli.build import Builder
    from doom_a3c.envs.games import VideoRecorder
    from doom_a3c.evaluation import Scores
    from doom_a3c.networks import ACNetwork
    from doom_a3c.recording import Frame


PATIENCE_SECONDS = 3  # after Ctrl-C, for the decision under way


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of play.py."""

    model: str = setting("models/last.ckpt", "checkpoint of the agent; it holds network and scenario")
    out: str = setting("result", "folder for films, scores.csv, scores.png and summary.json")
    episodes: int = setting(10, "episodes to play, each with a seed of its own", unit="episodes", low=1, high=100_000)
    record: int = setting(10, "how many of them, the first ones, are filmed as gif and mp4", unit="episodes", low=0)
    policy: str | None = setting(
        None,
        "take the likeliest action, or draw from the policy; unset is what scored better when the model was evaluated",
        choices=("greedy", "sample"),
    )
    epsilon: float | None = setting(
        None, "probability of a random action; unset is that of the run's evaluations if greedy, else 0", low=0, high=1
    )
    seed: int = setting(1_000_000, "seed of the first episode, the next one's is one more", low=0, high=2**31 - 1)
    window: bool = setting(False, "show the game in a window, in real time")
    device: str = setting("auto", "where the network runs: auto (a GPU if there is one), cpu, gpu, or gpu:1 for the second")
    verbose: bool = setting(False, "show what TensorFlow prints")
    quiet: bool = setting(False, "print nothing but errors")


class Episode(NamedTuple):
    """A played episode."""

    score: float
    length: int  # decisions


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
    command.import_tensorflow(cpu_count(), options.verbose, options.device)
    builder, network, config, better = restored(options.model)
    options = dataclasses.replace(options, policy=options.policy or better)
    usual = config.evaluation_epsilon if options.policy == "greedy" else 0.0
    epsilon = usual if options.epsilon is None else options.epsilon
    folder = command.output_folder(options.out, "--out")

    def say(line: str) -> None:
        if not options.quiet:
            print(line, flush=True)

    with Player(builder, network, options, epsilon) as player:
        signal.signal(signal.SIGINT, player.interrupt)
        say(f"{options.model}: {builder.scenario.name}, {options.policy} policy\nepisode   score  decisions")
        episodes = []
        for index in range(options.episodes):
            stem = folder / f"episode_{index:03d}" if index < options.record else None
            episodes.append(player.episode(options.seed + index, stem))
            say(f"{index:7d} {shown(episodes[-1].score):>7} {episodes[-1].length:10d}")
    statistics = _write_scores(folder, options, epsilon, builder.scenario.name, episodes)
    mean, std, least, most = map(shown, statistics[:4])
    say(f"mean {mean}  std {std}  min {least}  max {most}\nfilms, scores.csv, scores.png and summary.json are in {folder}")
    return 0


def restored(model: str) -> tuple[Builder, ACNetwork, Config, str]:
    """Returns games, trained network, settings and the better policy, as a checkpoint alone says they are.

    Raises:
        UserError: if the checkpoint is none, or its scenario's files are not here.
    """
    from doom_a3c.checkpoint import load
    from doom_a3c.cli.build import Builder

    checkpoint = load(Path(model))
    scenario = scenarios.from_record(checkpoint.record["scenario"], f"the scenario in {model}")
    scenario, config = scenarios.resolved(scenario, checkpoint.record["config"], f"the settings in {model}")
    builder = Builder(scenario, config)
    network = builder.network("player", config.seed)
    try:
        network.load(checkpoint.variables)
    except (KeyError, ValueError) as error:
        raise UserError(f"{model} does not fit its own scenario {scenario.name}: {error}") from None
    return builder, network, config, checkpoint.record.get("policy", "greedy")


class Player:
    """Plays single episodes, filming them on request. Owns a game and what films it; a context that closes both."""

    def __init__(self, builder: Builder, network: ACNetwork, options: Options, epsilon: float) -> None:
        import numpy as np

        from doom_a3c.cli.window import Window
        from doom_a3c.rollouts import Policy

        self._network, self._policy = network, Policy(network)
        self._epsilon = np.array([epsilon], np.float32)
        self._greedy = options.policy == "greedy"
        self._interrupted = False
        self._env = builder.evaluation_env(1)
        self._camera = builder.recorder(self._env) if options.record or options.window else None
        self._window = Window(builder.scenario.name) if options.window else None

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *error: object) -> None:
        self._env.close()
        for view in (self._camera, self._window):
            if view:
                view.close()

    def interrupt(self, number: int, frame: object) -> None:
        """Handles Ctrl-C: the episode ends with its next decision, and its film is finished; a second one does not wait.

        Nor is a decision waited for that does not come, as the game hangs.
        """
        if self._interrupted:
            command.end_at_once(number, "play.py: interrupted")
        self._interrupted = True

        def hurry(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, hurry)
        signal.alarm(PATIENCE_SECONDS)

    def episode(self, seed: int, stem: Path | None) -> Episode:
        """Plays one episode from its first observation to its end; films it as `stem`.mp4 and .gif where there is one.

        Raises:
            KeyboardInterrupt: after Ctrl-C, whatever else that has broken.
            UserError: if the game fails.
        """
        try:
            return self._filmed(seed, stem)
        except Exception:
            if self._interrupted:
                raise KeyboardInterrupt from None
            raise

    def _filmed(self, seed: int, stem: Path | None) -> Episode:
        from doom_a3c.envs.process import ProcessError
        from doom_a3c.recording import FilmWriter

        camera = self._camera if stem or self._window else None
        if camera is None:
            return self._play(seed, None, lambda frame: None)
        film = FilmWriter(stem, camera.pictures_per_second) if stem else None

        def show(frame: Frame) -> None:
            if self._window:
                self._window.show(frame, camera.pictures_per_second)
            if film:
                film.add(frame)

        with film or contextlib.nullcontext():
            try:
                return self._play(seed, camera, show)
            except ProcessError as error:
                raise UserError(f"the game failed while it was filmed ({error}); run play.py again") from None

    def _play(self, seed: int, camera: VideoRecorder | None, show: Callable[[Frame], None]) -> Episode:
        import numpy as np

        from doom_a3c.rollouts import cut_short, explore, greedy, met_faults

        random = np.random.default_rng(seed)  # an episode's own: it is the same whatever has been played before
        seeds: Any = np.array([seed])  # the form that all vector environments take
        observations, infos = self._env.reset(seed=seeds)
        if cut_short(infos, 1)[0]:
            raise UserError(f"the game failed as it began ({', '.join(met_faults(infos))}); run play.py again")
        for frame in camera.reset(int(infos["seed"][0]) if "seed" in infos else seed) if camera else ():
            show(frame)
        core_state, reset = self._network.initial_state(1), np.ones(1, np.float32)
        score, length, ended = 0.0, 0, False
        while not ended:
            if self._interrupted:
                signal.alarm(0)
                raise KeyboardInterrupt
            logits, _, core_state = self._policy(observations, reset, core_state)
            actions, _ = explore(greedy(logits) if self._greedy else logits, self._epsilon, random)
            observations, rewards, terminated, truncated, infos = self._env.step(actions)
            if cut_short(infos, 1)[0]:
                raise UserError(f"the game failed while it was played ({', '.join(met_faults(infos))}); run play.py again")
            score, length, ended = score + float(rewards[0]), length + 1, bool(terminated[0] or truncated[0])
            reset = np.zeros(1, np.float32)
            for frame in camera.step(int(actions[0]), ended) if camera else ():
                show(frame)
        if camera and camera.score is not None and abs(camera.score - score) > 1e-3:
            print(f"warning: the film of seed {seed} shows another course ({camera.score:.1f})", file=sys.stderr)
        return Episode(score, length)


def _write_scores(folder: Path, options: Options, epsilon: float, scenario: str, episodes: Sequence[Episode]) -> Scores:
    from doom_a3c.curves import write_curve
    from doom_a3c.evaluation import scores
    from doom_a3c.progress import Progress

    played = [episode.score for episode in episodes]
    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("episode", "seed", "score", "decisions"))
        writer.writerows((i, options.seed + i, score, length) for i, (score, length) in enumerate(episodes))
    statistics = scores(played)
    summary = {
        "model": options.model,
        "scenario": scenario,
        "policy": options.policy,
        "epsilon": epsilon,
        "seed": options.seed,
        **statistics._asdict(),
        "lengths": [episode.length for episode in episodes],
        "scores": played,
    }
    progress = Progress()
    progress.add_steps(0, 0, played, ())
    write_curve(folder / "scores.png", f"{scenario}, {options.policy} policy", progress.curve)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return statistics
