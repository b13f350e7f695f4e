"""play.py: plays a trained agent and reports scores and recordings."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doom_a3c.cli import command
from doom_a3c.cli.flags import list_flags, make_flag_parser, refuse_useless
from doom_a3c.cli.lines import Lines
from doom_a3c.cli.mistakes import Others
from doom_a3c.cli.streams import print_result
from doom_a3c.record.files import claim_empty_folder, explain_folder
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints import pretrained
from doom_a3c.run.checkpoints.lock import find_progress
from doom_a3c.run.checkpoints.runs import find_checkpoint, list_checkpoints
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import parse_values, select, setting, settings_of
from doom_a3c.settings.games import GameSettings
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.playing import SHOWING, PlaySettings
from doom_a3c.settings.trust import GameOverride

if TYPE_CHECKING:
    from doom_a3c.run.play.agent import TrainedAgent
    from doom_a3c.run.play.episode_player import GameWindow, PlayedEpisode
    from doom_a3c.run.play.playback import Playback

PATIENCE_SECONDS = 3  # after Ctrl-C, for the step under way


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of play.py, besides `PlaySettings`."""

    model: str | None = setting(
        None,
        "Checkpoint or run to play, or a name from --list-models; unset is the newest run's best.ckpt, else its last.ckpt",
    )
    list_models: bool = setting(False, "List the trained models that --model can name, and exit", switch=True)
    compare: tuple[str, ...] = setting(
        (), "Play these checkpoints on the same seeds; report which is better, and how certain that is", many=True
    )
    cross_play: str | None = setting(
        None, "Let the checkpoints and the league in this folder play each other, in matches of several agents"
    )
    export: str | None = setting(
        None,
        "Write the network for other programs to --out, with an example, and exit",
        choices=("onnx", "savedmodel"),
    )
    scenario: str | None = setting(None, "Play this game, named as in train.py, instead of the checkpoint's own")
    wad: str | None = setting(None, "The model's wad, if it was trained on one that does not come with ViZDoom")
    out: str = setting(
        "result",
        "Folder for index.html, the recordings, scores and summary.json; a numbered subfolder if it is not empty",
    )
    device: str = setting("auto", "Device of the network: auto (a GPU if there is one), cpu, gpu, or gpu:1 for the second")
    verbose: bool = setting(False, "Show TensorFlow's messages, and tracebacks", switch=True)
    quiet: bool = setting(False, "Print only errors", switch=True)
    window: bool = setting(
        False,
        "Show the game in a window: space pauses, right steps, up and down change the speed",
        switch=True,
        section=SHOWING,
    )
    against_me: bool = setting(
        False, "Play a match against the agent yourself, with keyboard and mouse", switch=True, section=SHOWING
    )
    speed: float = setting(1.0, "Speed of the window, as a multiple of real time", low=0.01, high=100, section=SHOWING)


def main(arguments: list[str] | None = None) -> int:
    """Runs play.py; returns its exit status."""
    return command.run(command.find_program_name("play"), _play, arguments)


def _play(arguments: list[str] | None) -> int:
    others = Others(command.find_program_name("train"), list_flags(Config, GameSettings))
    description = "Plays a trained agent and records it."
    program = command.find_program_name("play")
    flags = make_flag_parser(program, description, Options, PlaySettings, others=others).parse(arguments)
    options = parse_values(Options, select(flags, Options), "flags")
    settings = parse_values(PlaySettings, select(flags, PlaySettings), "flags")
    if options.list_models:
        from doom_a3c.cli.listing import list_models  # late: rarely needed

        print_result(list_models())
        return 0
    useless, why = _find_useless(options, settings)
    known = {**settings_of(Options), **settings_of(PlaySettings)}
    refuse_useless([known[name].flag for name in flags if name in useless], why)
    if (options.window or options.against_me) and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        flag = "--against-me" if options.against_me else "--window"
        raise UserError(f"{flag} needs a display and there is none: leave it out and watch the mp4 files, or use ssh -X")
    models = _find_models(options)
    import_tensorflow(cpu_count(), options.verbose, options.device)
    from doom_a3c.cli.compare import check_games, compare  # late: TensorFlow is imported now
    from doom_a3c.cli.cross_play import check_settings, cross_play
    from doom_a3c.run.play.agent import TrainedAgent

    agents = [TrainedAgent.load(model, GameOverride(options.scenario, options.wad)) for model in models]
    if options.cross_play:
        agents.sort(key=lambda agent: agent.builder.agents == 1)  # they play in the level of the first
        if agents[0].builder.agents == 1:
            game = agents[0].record.scenario.name
            raise UserError(f"--cross-play: {game} has one agent, so nobody plays another: --compare compares scores")
    check_games(agents)
    play_each_other = len(agents) > 1 and agents[0].builder.agents > 1
    if play_each_other:
        check_settings(settings)
    lines = Lines(options.quiet)
    if options.against_me:
        _play_person(agents[0], settings.seed, lines)
        return 0
    with claim_empty_folder(options.out, "--out") as folder:
        if why := explain_folder(options.out, folder):
            lines(why)
        if play_each_other:
            cross_play(agents, settings, folder, lines)
        elif options.compare:
            compare(agents, settings, folder, lines, _Interrupts().end)
        elif options.export:
            from doom_a3c.run.play.export import export  # late, as above

            model, example = export(agents[0], options.export, folder)
            lines(f"{model}\n{example} plays an episode with it\nnext:\n  python {shlex.quote(str(example))}")
        else:
            call = f"{command.find_program_call('play')} {shlex.join(sys.argv[1:] if arguments is None else arguments)}"
            _play_agent(agents[0], options, settings, folder, call, lines)
    return 0


def _find_models(options: Options) -> list[Path]:
    """Returns the paths of the models to play; by default the newest run's model."""
    if len(options.compare) == 1:
        raise UserError(f"--compare takes two checkpoints or more, not only {options.compare[0]}")
    if options.compare:
        return [pretrained.find_model(model) for model in options.compare]
    if options.cross_play:
        return list_checkpoints(expand(options.cross_play))
    if options.model is not None:
        return [pretrained.find_model(options.model)]
    if not (newest := find_checkpoint(Path(Config.models_dir))).is_file():
        shipped = ", ".join(pretrained.list_models())
        raise UserError(f"no run has saved a checkpoint in {newest}: train one, or play a shipped model: --model {shipped}")
    return [newest]


def _find_useless(options: Options, settings: PlaySettings) -> tuple[set[str], str]:
    """Returns the settings without an effect in this call, and the reason."""
    if options.compare or options.cross_play:
        useless = {
            "model",
            "export",
            "window",
            "against_me",
            "speed",
            "record_episodes",
            "overlay",
            "random_episodes",
            "opponent",
        }
        return (useless | {"cross_play"}, "with --compare") if options.compare else (useless, "with --cross-play")
    if options.export:
        return {"window", "against_me", "speed", *settings_of(PlaySettings)}, "with --export"
    if options.against_me:
        return {"window", "speed", "out", *settings_of(PlaySettings)} - {"seed"}, "with --against-me"
    if options.window:
        return set(), ""
    if settings.record_episodes == 0:
        return {"speed", "overlay"}, "without --window, and with --record-episodes 0"
    return {"speed"}, "without --window"


def _play_person(agent: TrainedAgent, seed: int, lines: Lines) -> None:
    """Plays a match of the user against an agent, and prints the score."""
    from doom_a3c.cli.window import PlayerWindow  # late: it imports pygame
    from doom_a3c.run.play.human_match import play_person

    window = PlayerWindow(agent.record.scenario.name)

    def interrupt(number: int) -> None:
        window.interrupted = True

    command.handle_signals(interrupt, command.end_interrupted)
    try:
        frags, theirs, whole = play_person(agent, window, seed)
    finally:
        window.close()
    most = max(theirs)
    verdict = "you win" if frags > most else "the agent wins" if frags < most else "a draw"
    early = "" if whole else ", ended early"
    lines(f"frags: you {format_score(frags)}, the agent {', '.join(map(format_score, theirs))}: {verdict}{early}")
    if not (whole or window.left):
        raise KeyboardInterrupt


def _play_agent(
    agent: TrainedAgent, options: Options, settings: PlaySettings, folder: Path, command_line: str, lines: Lines
) -> None:
    """Plays an agent, and prints and writes its results."""
    from doom_a3c.run.play.playback import Playback  # late: TensorFlow is imported by now
    from doom_a3c.run.play.recordings import describe_cost

    record = agent.record
    if agent.builder.missing_pictures and (settings.record_episodes != 0 or options.window):
        command.print_error(f"warning: {agent.builder.missing_pictures}: no recordings")

    def format_row(index: int, score: str, steps: int) -> str:
        return f"{index:7d} {score:>7} {steps:10d}"

    def on_episode(index: int, played: PlayedEpisode) -> None:
        lines(format_row(index, format_score(played.episode.score), played.episode.length))

    def on_step(index: int, steps: int) -> None:
        lines.show_progress(format_row(index, "", steps))

    screen = _open_window(record.scenario.name, options.speed) if options.window else None
    with Playback(agent, settings, folder, screen, on_step) as playback, _Interrupts().end(playback):
        newest = find_progress(Path(agent.source).resolve().parent)
        more = "" if newest is None else f" (its run is still training, at frame {newest:,})"
        frames = f"{record.counters.frames:,} frames of training{more}"
        lines(f"{agent.source}: {record.scenario.name}, {frames}, {playback.settings.policy} policy")
        if agent.builder.can_render:
            lines(describe_cost(settings))
        lines("episode   score      steps")
        random: Sequence[float] = ()
        try:
            with _shorten_warnings(lines):
                random = playback.run(command_line, on_episode).random
        finally:
            lines.clear()
            _print_results(playback, folder, random, lines)


def _print_results(playback: Playback, folder: Path, random: Sequence[float], lines: Lines) -> None:
    """Prints the statistics of the scores, and the scores of `random` play, and names the films."""
    if not playback.statistics:
        if not playback.has_played:
            lines("no episode has ended, so nothing is kept")
        return
    mean, std, least, most = map(format_score, playback.statistics[:4])
    beside = f"  random play {format_score(sum(random) / len(random))}" if random else ""
    lines(f"mean {mean}  std {std}  min {least}  max {most}{beside}")
    if playback.standing:
        lines(playback.standing.describe())
    if playback.shortfall:
        lines(playback.shortfall)
    for film in playback.films:
        lines(f"{film.title}: {film.describe_extent()}")
    names = ("index.html", "scores.csv", "scores.png", "summary.json")
    if written := [name for name in names if (folder / name).exists()]:  # a full disk may have room for some
        beside = f"; beside it: {', '.join(written[1:])}" if written[1:] else ""
        lines(f"see {folder / written[0]}{beside}")


@contextlib.contextmanager
def _shorten_warnings(lines: Lines) -> Iterator[None]:
    """Prints the warnings of a block as one line each, without their location."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        lines.clear()
        command.print_error(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _open_window(title: str, speed: float) -> GameWindow:
    from doom_a3c.cli.window import Window  # late: it imports pygame

    return Window(title, speed)


class _Interrupts:
    """Makes Ctrl-C, SIGTERM and SIGHUP end the episode with its next step and keep the rest; a second signal ends at once.

    If the game hangs, the step is abandoned after some seconds.
    """

    def __init__(self) -> None:
        self._playback: Playback | None = None
        self._received = command.handle_signals(self._interrupt, command.end_interrupted)

    @contextlib.contextmanager
    def end(self, playback: Playback) -> Iterator[None]:
        """Lets a signal inside the block end the playback, as does one that arrived since the last playback."""
        self._playback = playback
        for number in self._received:
            self._interrupt(number)
        try:
            yield
        finally:
            signal.alarm(0)

    def _interrupt(self, number: int) -> None:
        if self._playback:
            self._playback.interrupt()
            signal.signal(signal.SIGALRM, self._hurry)
            signal.alarm(PATIENCE_SECONDS)

    def _hurry(self, number: int, frame: object) -> None:
        if self._playback and self._playback.waiting:
            raise KeyboardInterrupt
