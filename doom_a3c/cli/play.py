"""play.py: shows what a checkpoint's agent does, in scores and recordings."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from doom_a3c.cli import command
from doom_a3c.cli.flags import flag_parser
from doom_a3c.record.curves import write_curve
from doom_a3c.record.files import check_exists, output_folder
from doom_a3c.record.progress import curve_of, shown
from doom_a3c.record.recording import joined
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings.catalog import find
from doom_a3c.settings.config import cpu_count
from doom_a3c.settings.fields import UserError, select, setting, validated
from doom_a3c.settings.trust import NOTHING, Named

if TYPE_CHECKING:
    from doom_a3c.agent.networks import ACNetwork
    from doom_a3c.agent.player import Episode
    from doom_a3c.run.builder import Builder
    from doom_a3c.run.episode_player import EpisodePlayer, Screen
    from doom_a3c.run.evaluation import Scores
    from doom_a3c.run.run_record import RunRecord

_RECORDING = re.compile(r"episode(s|_\d{3,})\.(gif|mp4)")
PATIENCE_SECONDS = 3  # after Ctrl-C, for the step under way


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of play.py."""

    model: str = setting("models/last.ckpt", "checkpoint of the agent; it holds network and scenario")
    scenario: str | None = setting(None, "play this game, named as for train.py, instead of the checkpoint's own")
    wad: str | None = setting(None, "the wad of a model that was trained on one which ViZDoom does not ship")
    out: str = setting("result", "folder for the recordings, scores.csv, scores.png and summary.json")
    episodes: int = setting(10, "episodes to play, each with a seed of its own", unit="episodes", low=1, high=100_000)
    record: int = setting(10, "how many of them, the first ones, are recorded as gif and mp4", unit="episodes", low=0)
    policy: str | None = setting(
        None,
        "take the likeliest action, or draw from the policy; unset is what scored better when the model was evaluated",
        choices=("greedy", "sample"),
    )
    epsilon: float | None = setting(
        None, "probability of a random action; unset is that of the run's evaluations if greedy, else 0", low=0, high=1
    )
    seed: int = setting(1_000_000, "seed of the first episode; each next one adds 1", low=0, high=2**31 - 1)
    window: bool = setting(
        False,
        "show the game in a window: space pauses, the right arrow shows one picture, up and down change the speed",
        switch=True,
    )
    speed: float = setting(1.0, "how many times as fast as in real time the window shows it", low=0.01, high=100)
    device: str = setting("auto", "where the network runs: auto (a GPU if there is one), cpu, gpu, or gpu:1 for the second")
    verbose: bool = setting(False, "show what TensorFlow prints, and tracebacks", switch=True)
    quiet: bool = setting(False, "print nothing but errors", switch=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs play.py; returns its exit status."""
    return command.run(command.name("play"), _play, arguments)


def _play(arguments: list[str] | None) -> int:
    flags = flag_parser(command.name("play"), "Plays a trained agent and records it.", Options).parse(arguments)
    options = validated(Options, select(flags, Options), "flags")
    if options.window and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise UserError("--window needs a display and there is none: leave it out and watch the mp4 files, or use ssh -X")
    check_exists(Path(options.model))
    import_tensorflow(cpu_count(), options.verbose, options.device)
    builder, network, record = restored(options.model, Named(options.scenario, options.wad))
    options = dataclasses.replace(options, policy=options.policy or record.best.policy)
    usual = record.config.evaluation_epsilon if options.policy == "greedy" else 0.0
    epsilon = usual if options.epsilon is None else options.epsilon
    folder = output_folder(options.out, "--out")
    if not builder.draws and (options.record or options.window):
        print(f"warning: {record.scenario.game.title} draws no pictures of itself: there are none to show", file=sys.stderr)
    name = record.scenario.name

    def log(line: str) -> None:
        if not options.quiet:
            print(line, flush=True)

    from doom_a3c.run.episode_player import EpisodePlayer  # late: TensorFlow is imported by now

    screen = _window(name, options.speed) if options.window else None
    greedy, recorded = options.policy == "greedy", options.record > 0
    with EpisodePlayer(builder, network, greedy=greedy, epsilon=epsilon, record=recorded, screen=screen) as player:
        signal.signal(signal.SIGINT, _interrupting(player))
        log(f"{options.model}: {name}, {options.policy} policy\nepisode   score      steps")
        episodes: list[Episode] = []
        try:
            for index in range(options.episodes):
                stem = _stem(folder, index) if index < options.record else None
                episodes.append(player.episode(options.seed + index, stem))
                log(f"{index:7d} {shown(episodes[-1].score):>7} {episodes[-1].length:10d}")
        except KeyboardInterrupt:
            if episodes:
                _write_scores(folder, options, epsilon, name, episodes)
            raise
    films = [_stem(folder, index).with_suffix(".mp4") for index in range(min(options.record, len(episodes)))]
    if builder.draws and len(films) > 1:
        joined(films, folder / "episodes.mp4")
    statistics = _write_scores(folder, options, epsilon, name, episodes)
    mean, std, least, most = map(shown, statistics[:4])
    log(
        f"mean {mean}  std {std}  min {least}  max {most}\nrecordings, scores.csv, scores.png, summary.json are in {folder}"
    )
    return 0


def _stem(folder: Path, index: int) -> Path:
    """Returns the path of an episode's recordings, but for what ends their names."""
    return folder / f"episode_{index:03d}"


def _window(title: str, speed: float) -> Screen:
    from doom_a3c.cli.window import Window  # late: it opens the door to a display

    return Window(title, speed)


def restored(model: str, named: Named = NOTHING) -> tuple[Builder, ACNetwork, RunRecord]:
    """Returns games, trained network and the run's record, as a checkpoint says they are but for what the user has `named`.

    Raises:
        UserError: if the checkpoint is none, or its scenario's files are not here.
    """
    from doom_a3c.run.builder import Builder  # late, as all below: these import TensorFlow, silenced by now
    from doom_a3c.run.checkpoint import load

    checkpoint = load(Path(model), named)
    record = checkpoint.record
    checkpoint.check_finite(Path(model))
    if named.scenario:
        record = record._replace(scenario=dataclasses.replace(record.scenario, name=find(named.scenario).name))
    builder = Builder(record.scenario, record.config)
    network = builder.network("player", record.config.seed)
    try:
        network.load(checkpoint.variables)
    except (KeyError, ValueError) as error:
        raise UserError(f"{model} does not fit scenario {record.scenario.name}: {error}") from None
    return builder, network, record


def _interrupting(player: EpisodePlayer) -> Callable[[int, object], None]:
    """Returns what handles Ctrl-C: the episode ends with its next step, its recording is finished; a second ends at once.

    Nor is a step waited for that does not come, as the game hangs.
    """

    def interrupt(number: int, frame: object) -> None:
        if player.interrupted:
            command.end_at_once(number, f"{command.name('play')}: interrupted")
        player.interrupted = True
        signal.signal(signal.SIGALRM, hurry)
        signal.alarm(PATIENCE_SECONDS)

    def hurry(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    return interrupt


def _write_scores(folder: Path, options: Options, epsilon: float, scenario: str, episodes: Sequence[Episode]) -> Scores:
    from doom_a3c.run.evaluation import scores  # late: TensorFlow is imported by now

    played = [episode.score for episode in episodes]
    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("episode", "seed", "score", "steps"))
        writer.writerows((i, options.seed + i, episode.score, episode.length) for i, episode in enumerate(episodes))
    statistics = scores(played)
    recordings = _recordings(min(options.record, len(episodes)))
    _remove_older(folder, recordings)
    summary = {
        "model": options.model,
        "scenario": scenario,
        "policy": options.policy,
        "epsilon": epsilon,
        "seed": options.seed,
        **statistics._asdict(),
        "lengths": [episode.length for episode in episodes],
        "scores": played,
        "recordings": [name for name in recordings if (folder / name).exists()],
    }
    write_curve(folder / "scores.png", f"{scenario}, {options.policy} policy", curve_of(played))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return statistics


def _recordings(count: int) -> list[str]:
    """Returns the names of the files that so many recorded episodes may make."""
    singles = [f"{_stem(Path(), index)}.{kind}" for index in range(count) for kind in ("gif", "mp4")]
    return [*singles, "episodes.mp4"] if count > 1 else singles


def _remove_older(folder: Path, kept: Sequence[str]) -> None:
    """Removes the recordings of an earlier call, as its summary lists them: they would pass for those of this one."""
    try:
        older = json.loads((folder / "summary.json").read_text())["recordings"]
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is somebody else's
        return
    for name in older:
        if _RECORDING.fullmatch(str(name)) and name not in kept:
            (folder / name).unlink(missing_ok=True)
