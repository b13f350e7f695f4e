"""train.py: from flags to a finished run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doom_a3c import catalog, scenarios
from doom_a3c.cli import command
from doom_a3c.cli.flags import flag_parser, select
from doom_a3c.config import Config, consistent, cpu_count, rows_kept, spent, worker_count
from doom_a3c.settings import UserError, setting, validated

if TYPE_CHECKING:
    from doom_a3c.checkpoint import Checkpoint, CheckpointFolder
    from doom_a3c.cli.panel import Panel
    from doom_a3c.envs.games import Games
    from doom_a3c.training import Result, Training


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a call of train.py does besides the settings of the run."""

    resume: bool = setting(False, "go on from last.ckpt in the models folder; flags change its settings")
    list_scenarios: bool = setting(False, "show what --scenario can name, and end")
    summary: str | None = setting(None, "write the final result as JSON to this file")
    verbose: bool = setting(False, "show what TensorFlow prints, and tracebacks")
    quiet: bool = setting(False, "print nothing but errors")


def main(arguments: list[str] | None = None) -> int:
    """Runs train.py; returns its exit status."""
    return command.run("train.py", _train, arguments)


def _train(arguments: list[str] | None) -> int:
    parser = flag_parser("train.py", "Trains an A3C agent on a scenario.", Config, Options)
    flags = parser.parse(arguments)
    options = validated(Options, select(flags, Options), "flags")
    if options.list_scenarios:
        from doom_a3c.cli.listing import listing  # imports the engines

        print(listing())
        return 0
    overrides = select(flags, Config)
    validated(Config, overrides, "flags")
    if options.summary:
        command.output_folder(str(Path(options.summary).parent), "--summary")
    if options.resume:
        command.import_tensorflow(cpu_count(), options.verbose, overrides.get("device", Config.device))
        from doom_a3c.checkpoint import load  # imports TensorFlow, silenced by now

        checkpoint = load(_newest(overrides.get("models_dir", Config.models_dir)))
        scenario, config = _resumed(overrides, checkpoint.record)
        with closing(_started(scenario, config)) as games:
            return _Run(options, scenario, config, games, checkpoint).run()
    scenario, config = _settings(overrides)
    newest = _newest(config.models_dir)
    if newest.exists():
        raise UserError(f"{newest} holds another run: go on with --resume, or keep it and name another --models-dir")
    # The driver of a cluster has an evaluator and no more: a GPU is for the server, wherever that is.
    device = "cpu" if config.engine == "cluster" else config.device
    with closing(_started(scenario, config)) as games:
        command.import_tensorflow(cpu_count(), options.verbose, device)
        return _Run(options, scenario, config, games, None).run()


def _started(scenario: scenarios.Scenario, config: Config) -> Games:
    """Returns the games of a run; those of its workers are starting."""
    from doom_a3c.envs.games import games_of

    games = games_of(scenario.game, scenario.observation, config.game_processes)
    if config.engine != "cluster":  # there hosts play
        games.start_ahead(worker_count(config), config.games, rows_kept(config))
    return games


def _newest(folder: str) -> Path:
    return Path(folder).expanduser() / "last.ckpt"


class _Run:
    """Builds one run from its settings, runs it, and says what happened."""

    def __init__(
        self,
        options: Options,
        scenario: scenarios.Scenario,
        config: Config,
        games: Games,
        checkpoint: Checkpoint | None,
    ) -> None:
        from doom_a3c.checkpoint import CheckpointFolder

        self.games = games
        self.options, self.scenario, self.config, self.checkpoint = options, scenario, config, checkpoint
        self.record = dict(checkpoint.record) if checkpoint else {}
        if checkpoint and self.record["scenario"]["name"] != scenario.name:  # scores of another game are no measure
            self.record |= {"best_evaluation": None, "progress": {**self.record["progress"], "scores": []}}
        self.name = self.record.get("run", f"{self.scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        self.restarts = int(self.record.get("restarts", -1)) + 1
        self._check_builds()
        self.files: CheckpointFolder = CheckpointFolder(command.output_folder(self.config.models_dir, "--models-dir"))
        self.gifs = command.output_folder(self.config.frames_dir, "--frames-dir") / self.name
        self.logs = command.output_folder(self.config.logs_dir, "--logs-dir") / self.name

    def _check_builds(self) -> None:
        """Makes everything that a mistake can show in, before a folder is made or a file written."""
        with command.importing():  # takes a second; the games start meanwhile
            import doom_a3c.cli.outputs  # noqa: F401
        from doom_a3c.cli.build import Builder
        from doom_a3c.progress import Progress

        config = self.config
        if config.engine == "cluster":
            from doom_a3c.engines.connection import check

            check(config.address)
        self.builder = Builder(self.scenario, config, self.games)
        self.model = self.builder.model(config)
        self.progress = Progress()
        if self.checkpoint is not None:
            self._restore(self.checkpoint)
        self.games.check()

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint; raises UserError if it is another game's, or another network's."""
        config = self.config
        known = checkpoint.variables["policy/kernel"].shape[1]
        if known != self.builder.actions:
            raise UserError(
                f"{config.models_dir}/last.ckpt knows {known} actions, scenario {self.scenario.name} has "
                f"{self.builder.actions}: resume it with its own buttons, or train in another --models-dir"
            )
        try:
            self.model.restore(checkpoint.variables, int(self.record["progress"]["updates"]))
        except ValueError as error:
            raise UserError(
                f"{config.models_dir}/last.ckpt holds another network than scenario {self.scenario.name} with "
                f"{config.optimizer} needs ({error}); resume it without changing those, or train in another --models-dir"
            ) from None
        self.progress.restore(self.record["progress"])
        if name := spent(config, self.progress):
            budget = getattr(config, name)
            raise UserError(
                f"the run has used its budget of {budget:,} {name}; give it more, with --{name} {2 * budget} say"
            )

    def run(self) -> int:
        """Trains; returns the exit status: 0, 1 for a diverged run, 128 + n for signal n."""
        from doom_a3c.cli.outputs import Outputs, Run
        from doom_a3c.cli.panel import Panel
        from doom_a3c.engines.updates import DivergedError

        panel = Panel(self.options.quiet)
        config = self.config
        players = f"{worker_count(config)} workers x {config.games} games"
        if config.engine == "cluster":  # how many workers a host has is settled where it runs
            players = f"{config.hosts} hosts a machine, {config.games} games a worker"
        panel.say(
            f"{'resuming' if self.checkpoint else 'training'} {self.scenario.name}: {players}, {config.frames:,} frames; "
            f"logs in {self.logs}"
        )
        run = Run(
            name=self.name,
            restarts=self.restarts,
            scenario=self.scenario,
            config=self.config,
            builder=self.builder,
            model=self.model,
            progress=self.progress,
            files=self.files,
            gifs=self.gifs,
            logs=self.logs,
            best_evaluation=self.record.get("best_evaluation"),
            policy=self.record.get("policy", "greedy"),
        )
        with self._cluster(), Outputs(run, panel) as outputs, _Signals(outputs.training) as received:
            self.seconds_to_training = command.seconds_since_start()
            try:
                result = outputs.training.run(outputs.engine)
            except DivergedError as error:
                panel.end()
                raise SystemExit(f"train.py: {error}; the last good checkpoint is {self.files.last}") from None
            panel.end()
            self._finish(result, panel)
        return 128 + received[0] if received else 0

    def _cluster(self) -> AbstractContextManager[None]:
        """Returns what the run's engine needs to be connected to, a context."""
        if self.config.engine != "cluster":
            return nullcontext()
        from doom_a3c.engines.connection import connected

        config = self.config
        return connected(config.address, f"{self.name}-{os.getpid()}", gpu=config.device == "gpu")

    def _finish(self, result: Result, panel: Panel) -> None:
        from doom_a3c.curves import write_curve
        from doom_a3c.progress import shown

        progress = self.progress
        outcome = {
            "seconds": round(self.seconds_to_training + result.seconds, 2),
            "frames": progress.frames,
            "steps": progress.steps,
            "updates": progress.updates,
            "episodes": progress.episodes,
            "mean_100": progress.mean_score,
            "best_evaluation": result.best_evaluation,
            "frames_per_second": round(result.frames_per_second, 1),
            "stopped_by": result.stopped_by,
            "seed": self.config.seed,
            "faults": dict(progress.faults),
        }
        if self.options.summary:
            Path(self.options.summary).write_text(json.dumps(outcome, indent=1) + "\n")
        write_curve(self.gifs / "scores.png", f"{self.name}, {progress.frames:,} frames", progress.curve)
        panel.say(
            f"ended by {result.stopped_by} after {outcome['seconds']:.0f} s: {progress.frames:,} frames, "
            f"{progress.episodes:,} episodes, mean of the last 100 {shown(progress.mean_score)}, "
            f"best evaluation {shown(result.best_evaluation)}"
        )
        for kind, count in progress.faults.items():
            panel.say(f"fault survived: {kind} {count} times")
        model = self.files.best if self.files.best.exists() else self.files.last
        panel.say(f"model  {model} (newest: {self.files.last})\ngifs   {self.gifs} (and scores.png)\nlogs   {self.logs}")
        quoted, logs = shlex.quote(str(model)), shlex.quote(str(self.logs))
        panel.say(f"next:\n  python play.py --model {quoted} --out /tmp/result\n  tensorboard --logdir {logs}")


# A resumed run does not take these from its checkpoint: it may go on elsewhere, and for another time.
_OF_A_SESSION = ("models_dir", "minutes", "target_score", "device", "address")


def _settings(overrides: Mapping[str, Any]) -> tuple[scenarios.Scenario, Config]:
    """Returns scenario and settings of a new run: defaults, then the scenario file, then the command line."""
    scenario = catalog.find(overrides.get("scenario", Config.scenario))
    scenario, config = scenarios.resolved(scenario, {**scenario.training, **overrides}, "settings")
    return scenario, consistent(config, overrides)


def _resumed(overrides: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[scenarios.Scenario, Config]:
    """Returns scenario and settings of a run that goes on: those of its checkpoint, then the command line."""
    if "scenario" in overrides and overrides["scenario"] != record["config"]["scenario"]:
        scenario = catalog.find(overrides["scenario"])
    else:
        scenario = scenarios.from_record(record["scenario"], "the checkpoint's scenario")
    kept = {key: value for key, value in record["config"].items() if key not in _OF_A_SESSION}
    scenario, config = scenarios.resolved(scenario, {**kept, **overrides}, "the checkpoint's settings")
    return scenario, consistent(config, overrides)


class _Signals:
    """Turns Ctrl-C, SIGTERM and the end of the terminal into a request to save and end; a second one ends at once.

    A context; its value lists the signals received.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self._received: list[int] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> list[int]:
        def receive(number: int, frame: object) -> None:
            if self._received:
                command.end_at_once(number, "\ntrain.py: ended without saving again")
            self._received.append(number)
            self._training.interrupt(signal.Signals(number).name)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._previous[number] = signal.signal(number, receive)
            if self._previous[number] is signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, signal.SIG_IGN)
        return self._received

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
