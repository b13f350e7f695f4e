"""train.py: from flags to a finished run."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doom_a3c.cli import command
from doom_a3c.cli.flags import flag_parser
from doom_a3c.cli.panel import Panel
from doom_a3c.record.files import check_exists, output_file
from doom_a3c.run.checkpoint import load, record_of
from doom_a3c.run.folder import CheckpointFolder
from doom_a3c.run.imports import import_tensorflow, importing
from doom_a3c.run.lock import FolderLock
from doom_a3c.run.run_record import RunRecord, begun, continued
from doom_a3c.settings import catalog, scenarios
from doom_a3c.settings.config import OUTPUTS, USUAL, Config, consistent, cpu_count, rows_kept, worker_count
from doom_a3c.settings.fields import UserError, plain, select, setting, validated
from doom_a3c.settings.games import GameSettings
from doom_a3c.settings.inputs import expanded
from doom_a3c.settings.trust import Named

if TYPE_CHECKING:
    from doom_a3c.agent.model import Snapshot
    from doom_a3c.envs.games import Games
    from doom_a3c.run.training import StoppingRule


MAX_RUNS = 8  # in a list of those that there are


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a call of train.py does besides the settings of the run."""

    resume: bool = setting(
        False, "continue from last.ckpt in the models folder; flags change its settings", section=USUAL, switch=True
    )
    name: str | None = setting(None, "what to call a new run, in place of the scenario's name", section=USUAL)
    compare_runs: tuple[str, ...] = setting(
        (),
        "draw the curves of these runs (logs/RUN, or logs for all) into one picture, and end",
        section=OUTPUTS,
        many=True,
    )
    list_scenarios: bool = setting(False, "show what --scenario can name, and end", section=USUAL, switch=True)
    wad: str | None = setting(None, "goes with --resume: the wad of a run whose wad ViZDoom does not ship", section=OUTPUTS)
    summary: str | None = setting(None, "write the final result as JSON to this file", section=OUTPUTS)
    verbose: bool = setting(False, "show what TensorFlow prints, and tracebacks", section=OUTPUTS, switch=True)
    quiet: bool = setting(False, "print nothing but errors", section=OUTPUTS, switch=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs train.py; returns its exit status."""
    return command.run(command.name("train"), _train, arguments)


def _train(arguments: list[str] | None) -> int:
    parser = flag_parser(command.name("train"), "Trains an A3C agent on a scenario.", Config, GameSettings, Options)
    flags = parser.parse(arguments)
    options = validated(Options, select(flags, Options), "flags")
    if options.list_scenarios:
        from doom_a3c.cli.listing import listing  # late: it imports ViZDoom

        print(listing())
        return 0
    if options.compare_runs:
        import_tensorflow(cpu_count(), options.verbose, "cpu")  # TensorBoard would load it aloud
        from doom_a3c.cli.compare_runs import compare_runs  # late: hardly any call needs it

        print(compare_runs(options.compare_runs, flags.get("frames_dir", Config.frames_dir)))
        return 0
    overrides = select(flags, Config) | select(flags, GameSettings)
    scenarios.resolved(scenarios.Scenario(name=""), overrides, "flags")
    if options.summary:
        output_file(options.summary, "--summary")
    return (_resume if options.resume else _begin)(options, overrides)


def _begin(options: Options, overrides: Mapping[str, Any]) -> int:
    """Trains a new run."""
    if options.wad:
        raise UserError(f"--wad goes with --resume: a new run names its wad by --scenario {options.wad}")
    record = begun(*_settings(overrides), options.name)
    with FolderLock(expanded(record.config.models_dir), "--models-dir") as lock:
        lock.note(record.name)
        checkpoints = CheckpointFolder(lock.folder, lock.held)
        checkpoints.check_unused()
        return _run(options, record, checkpoints, None)


def _resume(options: Options, overrides: Mapping[str, Any]) -> int:
    """Continues a run."""
    if options.name:
        raise UserError(f"--name {options.name} names a new run: one that is resumed keeps its name")
    folder = expanded(overrides.get("models_dir", Config.models_dir))
    _check_resumable(folder)
    named = Named(overrides.get("scenario"), options.wad)
    with FolderLock(folder, "--models-dir") as lock:
        checkpoints = CheckpointFolder(folder, lock.held)
        old = record_of(checkpoints.last, named)
        record = continued(old, *_resumed(overrides, old))
        lock.note(record.name)
        return _run(options, record, checkpoints, named)


def _check_resumable(folder: Path) -> None:
    """Raises UserError where there is no run in a folder; it names the folders near by that hold one."""
    try:
        check_exists(folder / "last.ckpt")
    except UserError as error:
        others = sorted({path.parent for depth in ("*", "*/*") for path in Path().glob(f"{depth}/last.ckpt")})
        runs = [f"--models-dir {shlex.quote(str(other))}" for other in others if other != folder][:MAX_RUNS]
        raise UserError(f"{error}; there are runs here: {', '.join(runs)}" if runs else str(error)) from None


def _started(scenario: scenarios.Scenario, config: Config) -> Games:
    """Returns the games of a run; those of its workers are starting."""
    from doom_a3c.envs.games import games_of  # late: --help needs none

    games = games_of(scenario.game, scenario.observation, config.game_processes)
    if config.engine != "cluster":  # there hosts play
        games.start_ahead(worker_count(config), config.games, rows_kept(config))
    return games


def _run(options: Options, record: RunRecord, checkpoints: CheckpointFolder, named: Named | None) -> int:
    """Trains, continuing from the newest checkpoint where that has been `named`; returns the exit status.

    That is 0, 1 for a diverged run or one that could not be saved, 128 + n for signal n.
    """
    config = record.config
    # The driver of a cluster has an evaluator and no more: a GPU is for the server, wherever that is.
    device = "cpu" if config.engine == "cluster" else config.device
    panel = Panel(options.quiet)
    with closing(panel), closing(_started(record.scenario, config)) as games:
        panel.phase(lambda: ", ".join(filter(None, [games.starting(), "loading TensorFlow"])))
        import_tensorflow(cpu_count(), options.verbose, device)
        variables = None
        if named is not None:
            checkpoint = load(checkpoints.last, named)
            checkpoint.check_finite(checkpoints.last)
            variables = checkpoint.variables
        checkpoints.tidy()
        return _train_on(options, record, games, checkpoints, variables, panel)


def _train_on(
    options: Options,
    record: RunRecord,
    games: Games,
    checkpoints: CheckpointFolder,
    variables: Snapshot | None,
    panel: Panel,
) -> int:
    with importing():  # takes a second; the games start meanwhile
        from doom_a3c.cli import ending  # late: TensorFlow is imported by now
        from doom_a3c.engines.updates import DivergedError
        from doom_a3c.run.saver import SaveError
        from doom_a3c.run.session import session_of

    panel.phase(games.starting)
    with session_of(record, games, checkpoints, variables, panel) as session, _Signals(session.stopping) as received:
        seconds_to_training = command.seconds_since_start()
        try:
            result = session.training.run()
        except DivergedError as error:
            raise SystemExit(f"{command.name('train')}: {error}; the last good checkpoint is {checkpoints.last}") from None
        except SaveError as error:
            raise SystemExit(f"{command.name('train')}: {error}") from None
        except UserError as error:  # of whoever has written the game, say
            raise UserError(f"{error}; what has been learned is in {checkpoints.last}") from error
        panel.close()
        ending.told(session, result, seconds_to_training, panel)
        ending.written(session, result, seconds_to_training, options.summary, panel)
    return 128 + received[0] if received else 0


_STAMPED = re.compile(r".+-\d{8}-\d{6}")  # the name of a run: it has the time of its start
# A resumed run does not take these from its checkpoint: it may continue elsewhere, and for another time.
_OF_A_SESSION = ("models_dir", "minutes", "target_score", "device", "address")


def _settings(overrides: Mapping[str, Any]) -> tuple[scenarios.Scenario, Config]:
    """Returns scenario and settings of a new run: defaults, then the scenario file, then the command line."""
    scenario = catalog.find(overrides.get("scenario", Config.scenario))
    scenario, config = scenarios.resolved(scenario, {**scenario.training, **overrides}, "settings")
    return scenario, consistent(config, overrides)


def _resumed(overrides: Mapping[str, Any], record: RunRecord) -> tuple[scenarios.Scenario, Config]:
    """Returns scenario and settings of a run that continues: those of its checkpoint, then the command line."""
    scenario = record.scenario
    if overrides.get("scenario", record.config.scenario) != record.config.scenario:
        scenario = catalog.find(overrides["scenario"])
    kept = {key: value for key, value in plain(record.config).items() if key not in _OF_A_SESSION}
    _check_folders({**kept, **dict.fromkeys(overrides, "")}, record.name)
    scenario, config = scenarios.resolved(scenario, {**kept, **overrides}, "the checkpoint's settings")
    return scenario, consistent(config, overrides)


def _check_folders(kept: Mapping[str, Any], name: str) -> None:
    """Raises UserError if a checkpoint, which may be a stranger's, would have its run write elsewhere than here.

    A folder elsewhere is fine where the run has written to it before, on this machine.
    """
    for flag, folder in (("--frames-dir", kept["frames_dir"]), ("--logs-dir", kept["logs_dir"])):
        path = expanded(folder)
        inside = not path.is_absolute() and ".." not in path.parts
        if not inside and not (_STAMPED.fullmatch(name) and os.path.isdir(path / name)):
            raise UserError(f"the checkpoint's run wrote to {folder}, which is not here: name a folder with {flag}")


class _Signals:
    """Turns Ctrl-C, SIGTERM and the end of the terminal into a request to save and end; a second one ends at once.

    A context; its value lists the signals received.
    """

    def __init__(self, stopping: StoppingRule) -> None:
        self._stopping = stopping
        self._received: list[int] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> list[int]:
        def receive(number: int, frame: object) -> None:
            if self._received:
                command.end_at_once(number, f"\n{command.name('train')}: ended without saving again")
            self._received.append(number)
            self._stopping.interrupt(signal.Signals(number).name)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._previous[number] = signal.signal(number, receive)
            if self._previous[number] is signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, signal.SIG_IGN)
        return self._received

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
