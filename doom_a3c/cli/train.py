"""train.py: parses flags and trains a run."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from doom_a3c.cli import command
from doom_a3c.cli.flags import list_flags, make_flag_parser, refuse_useless
from doom_a3c.cli.mistakes import Others
from doom_a3c.cli.panel import Panel
from doom_a3c.cli.play import Options as PlayOptions
from doom_a3c.cli.provenance import describe_help, format_run
from doom_a3c.cli.streams import can_redraw, print_result
from doom_a3c.quiet import print_at_once
from doom_a3c.record.files import output_file
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import RunRecord
from doom_a3c.run.checkpoints.runs import NEWEST, find_run, open_new_run, open_run
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.run.launch import make_new_run, make_resumed_run, open_session, override_record
from doom_a3c.settings import scenarios
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.errors import RunError, UserError
from doom_a3c.settings.fields import parse_values, select, setting
from doom_a3c.settings.games import GameSettings
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.playing import PlaySettings
from doom_a3c.settings.setting import OUTPUTS, USUAL
from doom_a3c.settings.trust import GameOverride

if TYPE_CHECKING:
    from doom_a3c.run.session import Session
    from doom_a3c.run.training import StoppingRule

Opened = TypeVar("Opened")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a call of train.py, besides the settings of the run."""

    resume: str | None = setting(
        None, "Continue the newest run, or the named one; other flags change its settings", section=USUAL, bare=NEWEST
    )
    from_: str | None = setting(None, "Start from the weights of this checkpoint or of a model from play.py --list-models")
    name: str | None = setting(None, "Name of a new run; unset is the scenario's name", section=USUAL)
    doctor: bool = setting(
        False,
        "Check in a minute what the scenario shows and pays, suggest changes, and exit",
        section=USUAL,
        switch=True,
    )
    compare_runs: tuple[str, ...] = setting(
        (),
        "Plot the curves of these runs (names, beginnings of names, or folders; logs for all) and exit",
        section=OUTPUTS,
        many=True,
    )
    print_settings: bool = setting(
        False,
        "Show what the run would use and where each value comes from (default, base, file, flag), and exit",
        section=OUTPUTS,
        switch=True,
    )
    list_scenarios: bool = setting(False, "List the names that --scenario takes, and exit", section=USUAL, switch=True)
    wad: str | None = setting(None, "With --resume: the run's wad, if it does not come with ViZDoom", section=OUTPUTS)
    summary: str | None = setting(None, "Write the final result to this file as JSON", section=OUTPUTS)
    verbose: bool = setting(False, "Show TensorFlow's messages, and tracebacks", section=OUTPUTS, switch=True)
    quiet: bool = setting(False, "Print only errors, and an answer to Ctrl-C", section=OUTPUTS, switch=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs train.py; returns its exit status."""
    return command.run(command.find_program_name("train"), _train, arguments)


def _train(arguments: list[str] | None) -> int:
    others = Others(command.find_program_name("play"), list_flags(PlayOptions, PlaySettings))
    description = (
        "Trains an A3C agent on a scenario. Scenario files override the defaults below, and flags override both: "
        "--scenario NAME --help, or --print-settings, shows what a run would use and where each value comes from."
    )
    program = command.find_program_name("train")
    parser = make_flag_parser(program, description, Config, GameSettings, Options, others=others)
    flags = parser.parse(arguments, _describe_scenario)
    options = parse_values(Options, select(flags, Options), "flags")
    if options.list_scenarios:
        from doom_a3c.cli.listing import list_scenarios  # late: it imports ViZDoom

        print_result(list_scenarios())
        return 0
    if options.compare_runs:
        import_tensorflow(cpu_count(), options.verbose, "cpu")  # quietly: TensorBoard would print its messages
        from doom_a3c.cli.compare_runs import compare_runs  # late: rarely needed

        folders = (flags.get(name, getattr(Config, name)) for name in ("frames_dir", "logs_dir", "models_dir"))
        print_result(compare_runs(options.compare_runs, *folders))
        return 0
    overrides = _select_overrides(flags)
    scenarios.split_overrides(overrides, "flags")
    _check_effects(options)
    if options.print_settings:
        print_result(format_run(_find_record(options, overrides)))
        return 0
    if options.summary:
        output_file(options.summary, "--summary")
    if options.doctor:
        import_tensorflow(cpu_count(), options.verbose, "cpu")  # quietly
        from doom_a3c.cli.run_doctor import run_doctor  # late: rarely needed

        return run_doctor(make_new_run(overrides, options.name))
    return (_resume if options.resume else _begin)(options, overrides)


def _check_effects(options: Options) -> None:
    """Raises UserError for an option that another one, or its absence, leaves without effect."""
    if options.doctor:
        given = {"--resume": options.resume, "--from": options.from_, "--wad": options.wad, "--summary": options.summary}
        why = "with --doctor, which checks a game before its run: name that by --scenario"
        refuse_useless([flag for flag, value in given.items() if value], why)
    if options.wad and not options.resume:
        raise UserError(f"--wad goes with --resume: a new run names its wad by --scenario {options.wad}")


def _describe_scenario(flags: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the help of the settings of a run that these flags start, if they name a scenario."""
    return describe_help(make_new_run(_select_overrides(flags))) if "scenario" in flags else {}


def _select_overrides(flags: Mapping[str, Any]) -> dict[str, Any]:
    return select(flags, Config) | select(flags, GameSettings)


def _begin(options: Options, settings: Mapping[str, Any]) -> int:
    """Trains a new run."""
    record = make_new_run(settings, options.name)
    source = find_model(options.from_) if options.from_ else None
    with _close_by_signals(open_new_run(record)) as (record, checkpoints):
        return _run(options, record, checkpoints, source=source)


@contextlib.contextmanager
def _close_by_signals(opening: AbstractContextManager[Opened]) -> Iterator[Opened]:
    """Opens a context that a signal closes before it ends the process."""
    with ExitStack() as stack:
        opened = stack.enter_context(opening)
        with command.end_by_signals(command.find_program_name("train"), stack.close):
            yield opened


def _find_record(options: Options, settings: Mapping[str, Any]) -> RunRecord:
    """Returns the record of the run that would start or be resumed; writes nothing."""
    if not options.resume:
        return make_new_run(settings, options.name)
    folder, override = _find_resumed(options, settings)
    return override_record(CheckpointFolder(folder).read_record(override), settings)


def _find_resumed(options: Options, settings: Mapping[str, Any]) -> tuple[Path, GameOverride]:
    """Returns the folder of the run to resume, and its game as named by the flags."""
    folder = find_run(expand(settings.get("models_dir", Config.models_dir)), options.resume or NEWEST)
    return folder, GameOverride(settings.get("scenario"), options.wad)


def _resume(options: Options, settings: Mapping[str, Any]) -> int:
    """Continues a run."""
    if options.name:
        raise UserError(f"--name {options.name} is for a new run: a resumed run keeps its name")
    if options.from_:
        raise UserError(f"--from {options.from_} is for a new run: a resumed run continues with its own weights")
    folder, override = _find_resumed(options, settings)
    with _close_by_signals(open_run(folder)) as checkpoints:
        record = make_resumed_run(checkpoints.read_record(override), settings)
        return _run(options, record, checkpoints, override=override)


def _run(
    options: Options,
    record: RunRecord,
    checkpoints: CheckpointFolder,
    *,
    override: GameOverride | None = None,
    source: Path | None = None,
) -> int:
    """Trains a run; returns the exit status: 0, 1 if it diverged or could not be saved, or 128 + n after signal n.

    Raises:
        UserError: as `open_session` does.
    """
    with closing(Panel(options.quiet)) as panel:
        try:
            return _train_on(options, panel, open_session(record, checkpoints, override, panel, options.verbose, source))
        except RunError as error:
            command.print_error(f"{command.find_program_name('train')}: {error}")
            return 1


def _train_on(options: Options, panel: Panel, launching: AbstractContextManager[Session]) -> int:
    has_panel = can_redraw() and not options.quiet
    with launching as session:
        received = _handle_signals(session.stopping, has_panel, session.checkpoints)
        from doom_a3c.cli import ending  # late: TensorFlow is imported by now

        seconds_to_training = command.measure_age()
        result = session.training.run()
        panel.close()
        ending.print_summary(session, result, seconds_to_training, panel)
        ending.write_results(session, result, seconds_to_training, options.summary, panel)
    return 128 + received[0] if received else 0


def _handle_signals(stopping: StoppingRule, has_panel: bool, checkpoints: CheckpointFolder) -> list[int]:
    """Makes Ctrl-C, SIGTERM and SIGHUP save and end; a second signal ends at once. Returns the signals received.

    Without a panel that shows it, Ctrl-C is answered on stderr.
    """

    def interrupt(number: int) -> None:
        if number == signal.SIGINT and not has_panel:  # on a terminal after ^C
            print_at_once(("\n" if sys.stderr.isatty() else "") + stopping.SAVING)
        stopping.interrupt(signal.Signals(number).name)

    def end(number: int) -> None:
        last = checkpoints.last
        frames = checkpoints.saved.get(last)
        saved = "nothing was saved" if frames is None else f"{last} is of frame {frames:,}"
        command.end_at_once(number, f"\n{command.find_program_name('train')}: ended at once; {saved}")

    return command.handle_signals(interrupt, end)
