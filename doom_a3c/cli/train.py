"""train.py: from flags to a finished run."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doom_a3c import scenarios
from doom_a3c.cli import command
from doom_a3c.config import Config, UserError, cpu_count, flag_parser, select, setting, validated, worker_count

if TYPE_CHECKING:
    from doom_a3c.checkpoint import Checkpoint, CheckpointFolder
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
        print(listing())
        return 0
    typed = select(flags, Config)
    validated(Config, typed, "flags")
    if options.summary:
        command.output_folder(str(Path(options.summary).parent), "--summary")
    command.import_tensorflow(cpu_count(), options.verbose)
    return _Run(typed, options).run()


def listing() -> str:
    """Returns the table of --list-scenarios."""
    rows = [("scenario", "game", "buttons", "input", "frames", "score to expect")]
    for name in sorted(scenarios.available()):
        scenario = scenarios.find(name)
        game, observation = scenario.game, scenario.observation
        buttons = game.buttons if isinstance(game.buttons, str) else f"{len(game.buttons)} actions"
        seen = f"{observation.size[0]}x{observation.size[1]} {'colour' if observation.color else 'grey'}"
        frames = f"{scenario.training.get('frames', Config.frames):,}"
        rows.append((name, Path(game.config or game.wad).name, buttons, seen, frames, scenario.expected_score))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


class _Run:
    """Builds one run from its settings, runs it, and says what happened."""

    def __init__(self, typed: Mapping[str, Any], options: Options) -> None:
        from doom_a3c.checkpoint import CheckpointFolder, load  # imports TensorFlow, silenced by now

        self.options = options
        models = Path(typed.get("models_dir", Config.models_dir)).expanduser()
        self.checkpoint: Checkpoint | None = load(models / "last.ckpt") if options.resume else None
        self.scenario, self.config = _settings(typed, self.checkpoint)
        if self.checkpoint is None and (models / "last.ckpt").exists():
            raise UserError(
                f"{models / 'last.ckpt'} holds another run: go on with --resume, or keep it and name another --models-dir"
            )
        self.record = self.checkpoint.record if self.checkpoint else {}
        self.name = self.record.get("run", f"{self.scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        self.restarts = int(self.record.get("restarts", -1)) + 1
        self._check_builds()
        self.files: CheckpointFolder = CheckpointFolder(command.output_folder(self.config.models_dir, "--models-dir"))
        self.gifs = command.output_folder(self.config.frames_dir, "--frames-dir") / self.name
        self.logs = command.output_folder(self.config.logs_dir, "--logs-dir") / self.name

    def _check_builds(self) -> None:
        """Makes everything that a mistake can show in, before a folder is made or a file written."""
        from doom_a3c.cli.build import Builder
        from doom_a3c.learner import GlobalModel
        from doom_a3c.progress import Progress

        config = self.config
        self.builder = Builder(self.scenario, config.frame_skip)
        self.model = GlobalModel(self.builder.network("global", config.seed), config.optimizer)
        self.progress = Progress()
        if self.checkpoint is None:
            return
        known = self.checkpoint.variables["policy/kernel"].shape[1]
        if known != self.builder.actions:
            raise UserError(
                f"{config.models_dir}/last.ckpt knows {known} actions, scenario {self.scenario.name} has "
                f"{self.builder.actions}: resume it with its own buttons, or train in another --models-dir"
            )
        try:
            self.model.restore(self.checkpoint.variables, int(self.record["progress"]["updates"]))
        except ValueError as error:
            raise UserError(
                f"{config.models_dir}/last.ckpt holds another network than scenario {self.scenario.name} with "
                f"{config.optimizer} needs ({error}); resume it without changing those, or train in another --models-dir"
            ) from None
        self.progress.restore(self.record["progress"])
        if self.progress.frames >= config.frames:
            raise UserError(
                f"the run has used its budget of {config.frames:,} frames; give it more with --frames "
                f"{2 * config.frames}, for example"
            )

    def run(self) -> int:
        """Trains; returns the exit status: 0, 1 for a diverged run, 128 + n for signal n."""
        from doom_a3c.cli.panel import Panel
        from doom_a3c.engines.threads import DivergedError

        panel = Panel(self.options.quiet)
        panel.say(
            f"{'resuming' if self.checkpoint else 'training'} {self.scenario.name}: {worker_count(self.config)} workers x "
            f"{self.config.games} games, {self.config.frames:,} frames; logs in {self.logs}"
        )
        with _Outputs(self, panel) as outputs:
            with _Signals(outputs.training) as received:
                try:
                    result = outputs.training.run(outputs.engine)
                except DivergedError as error:
                    panel.end()
                    raise SystemExit(f"train.py: {error}; the last good checkpoint is {self.files.last}") from None
            panel.end()
            self._finish(result, panel)
        return 128 + received[0] if received else 0

    def _finish(self, result: Result, panel: Any) -> None:
        progress = self.progress
        outcome = {
            "seconds": round(command.seconds_since_start(), 2),
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
        mean = "-" if progress.mean_score is None else f"{progress.mean_score:.1f}"
        best = "-" if result.best_evaluation is None else f"{result.best_evaluation:.1f}"
        panel.say(
            f"ended by {result.stopped_by} after {outcome['seconds']:.0f} s: {progress.frames:,} frames, "
            f"{progress.episodes:,} episodes, mean of the last 100 {mean}, best evaluation {best}"
        )
        for kind, count in progress.faults.items():
            panel.say(f"fault survived: {kind} {count} times")
        model = self.files.best if self.files.best.exists() else self.files.last
        panel.say(f"model  {model} (newest: {self.files.last})\ngifs   {self.gifs}\nlogs   {self.logs}")
        panel.say(f"next:\n  python play.py --model {model} --out /tmp/result\n  tensorboard --logdir {self.logs}")


_OF_A_SESSION = ("models_dir", "minutes", "target_score")  # a resumed run does not take these from its checkpoint


def _settings(typed: Mapping[str, Any], checkpoint: Checkpoint | None) -> tuple[scenarios.Scenario, Config]:
    """Returns scenario and settings: defaults, then scenario file or checkpoint, then the command line."""
    if checkpoint is None:
        scenario = scenarios.find(typed.get("scenario", Config.scenario))
        return scenario, validated(Config, {**scenario.training, **typed}, "settings")
    record = checkpoint.record
    if "scenario" in typed and typed["scenario"] != record["config"]["scenario"]:
        scenario = scenarios.find(typed["scenario"])
    else:
        scenario = scenarios.from_record(record["scenario"], "the checkpoint's scenario")
    kept = {key: value for key, value in record["config"].items() if key not in _OF_A_SESSION}
    return scenario, validated(Config, {**kept, **typed}, "the checkpoint's settings")


class _Outputs:
    """The running parts of a run: engine, evaluator, gif writer and logs; a context that ends all of them."""

    def __init__(self, run: _Run, panel: Any) -> None:
        import numpy as np

        from doom_a3c.engines.threads import ThreadsEngine, Worker
        from doom_a3c.envs.engine import kill_all
        from doom_a3c.evaluation import Evaluator, games_for
        from doom_a3c.learner import GlobalModel
        from doom_a3c.networks import ACNetwork
        from doom_a3c.recording import Film, FilmedVectorEnv, Gate, GifWriter
        from doom_a3c.rollouts import Actor
        from doom_a3c.summaries import Summaries
        from doom_a3c.training import Training

        config, builder, progress = run.config, run.builder, run.progress
        self._summaries = Summaries(run.logs / "global")
        self._worker_summaries = [Summaries(run.logs / f"train_{index}") for index in range(worker_count(config))]
        settings = {**dataclasses.asdict(config), "scenario": scenarios.record(run.scenario)}
        self._summaries.text("config", f"```json\n{json.dumps(settings, indent=2)}\n```")

        def gif_written(path: Path, film: Film) -> None:
            height, width, _ = film.frames[0].shape
            self._summaries.gif("game", path.read_bytes(), height, width, progress.frames)

        self._gifs = GifWriter(run.gifs, builder.decisions_per_second, gif_written)
        gate = Gate()

        def make_actor(index: int, network: ACNetwork) -> Actor:
            env = FilmedVectorEnv(builder.training_env(config.games), index, config.gif_every, gate, self._gifs.add)
            return Actor(
                env,
                network,
                rollout_length=config.rollout_length,
                discount=config.discount,
                reward_scale=config.reward_scale,
                seed=np.random.SeedSequence([config.seed, run.restarts, index]),
            )

        stop = threading.Event()
        model: GlobalModel = run.model
        workers = [
            Worker(
                index,
                config=config,
                model=model,
                network=builder.network(f"worker_{index}", config.seed),
                make_actor=make_actor,
                progress=progress,
                summaries=self._worker_summaries[index],
                stop=stop,
            )
            for index in range(worker_count(config))
        ]
        self.engine = ThreadsEngine(workers, stop, kill_all)
        self._evaluator = Evaluator(
            builder.evaluation_env(games_for(config.evaluation_episodes)),
            builder.network("evaluator", config.seed),
            np.random.SeedSequence([config.seed, run.restarts, 2**31]),
        )
        self.training = Training(
            config,
            model=model,
            progress=progress,
            evaluator=self._evaluator,
            summaries=self._summaries,
            folder=run.files,
            record={"run": run.name, "restarts": run.restarts, "scenario": scenarios.record(run.scenario)},
            show=panel.show,
            say=panel.say,
            best_evaluation=run.record.get("best_evaluation"),
        )

    def __enter__(self) -> _Outputs:
        return self

    def __exit__(self, *error: object) -> None:
        self._evaluator.close()
        self._gifs.close()
        for summaries in (self._summaries, *self._worker_summaries):
            summaries.close()


class _Signals:
    """Turns Ctrl-C and SIGTERM into a request to save and end. A context; its value lists the signals received."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._received: list[int] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> list[int]:
        def receive(number: int, frame: object) -> None:
            self._received.append(number)
            self._training.interrupt(signal.Signals(number).name)

        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, receive)
        return self._received

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
