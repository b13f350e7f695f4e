"""The Python API: train, resume and load agents. `import doom_a3c` provides it, and imports it on first use."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gymnasium
from gymnasium.vector import VectorEnv

from doom_a3c.cli.panel import Panel
from doom_a3c.cli.streams import can_redraw, in_notebook
from doom_a3c.envs.functions import name_function
from doom_a3c.record.files import claim_empty_folder, explain_folder
from doom_a3c.record.metrics.counters import EvaluationPoint
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import RunRecord, find_needed_override
from doom_a3c.run.checkpoints.runs import find_run, open_new_run, open_run
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.run.launch import make_new_run, make_resumed_run, open_session
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.errors import RunError, UserError, require
from doom_a3c.settings.fields import parse_values
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.playing import PlaySettings
from doom_a3c.settings.renames import describe_api_name
from doom_a3c.settings.trust import GameOverride

import_tensorflow(cpu_count(), verbose=False, device="auto")  # quietly, before the modules below import it

from doom_a3c.run.play.agent import TrainedAgent  # noqa: E402
from doom_a3c.run.play.page import Results  # noqa: E402
from doom_a3c.run.play.playback import Playback  # noqa: E402
from doom_a3c.run.reporter import Status  # noqa: E402
from doom_a3c.run.training import StoppingRule  # noqa: E402

__all__ = [
    "Agent",
    "EvaluationPoint",
    "Results",
    "RunError",
    "SavedCheckpoint",
    "Status",
    "UserError",
    "load",
    "resume",
    "train",
]


class Agent(TrainedAgent):
    """A trained agent, as returned by `load`, `train` and `resume`."""

    def __repr__(self) -> str:
        record = self.record
        score = "not evaluated" if record.best.score is None else f"score {format_score(record.best.score)}"
        caveat = "" if record.best.confirmed or record.best.score is None else " (not confirmed)"
        played = f"{record.counters.frames:,} frames"
        return f"<Agent {record.scenario.name}: run {record.name}, {played}, {score}{caveat}, {self.source}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{describe_api_name(name)}")

    @property
    def folder(self) -> Path:
        """The folder of its checkpoint, as `resume` takes it."""
        return Path(self.source).parent

    def play(self, out: str | PathLike[str] | None = None, **settings: Any) -> Results:
        """Plays episodes; returns their scores, and the actions, rewards and values of each step.

        Args:
            out: a folder for films, scores and a page about them; if it is not empty, they go to a numbered subfolder of
                it, the `folder` of the results. None writes nothing.
            settings: as for play.py, such as `episodes=3`, `seed`, `policy`, `epsilon`, `record_episodes` and `overlay`.

        Raises:
            UserError: for a setting that does not fit, or a folder that cannot be written to.
        """
        chosen = parse_values(PlaySettings, settings, "settings")
        call = f"agent.play({str(out)!r}, {', '.join(f'{key}={value!r}' for key, value in settings.items())})"
        with contextlib.ExitStack() as stack:
            folder = None if out is None else stack.enter_context(claim_empty_folder(str(out), "out"))
            if folder is not None and (why := explain_folder(str(out), folder)):
                warnings.warn(why, RuntimeWarning, stacklevel=2)
            return stack.enter_context(Playback(self, chosen, folder)).run(call)


class SavedCheckpoint(NamedTuple):
    """A checkpoint that was written."""

    path: Path  # last.ckpt or best.ckpt; a later one will replace it
    frames: int  # played when it was made


Event = TypeVar("Event")
Env = gymnasium.Env[Any, Any]
Callback = Callable[[Status], bool | None]
OnEvaluation = Callable[[EvaluationPoint], bool | None]
OnCheckpoint = Callable[[SavedCheckpoint], bool | None]


class _Hooks(NamedTuple):
    """The functions to call during a run, and whether to show its progress."""

    callback: Callback | None
    on_evaluation: OnEvaluation | None
    on_checkpoint: OnCheckpoint | None
    progress: bool | None

    def check(self) -> _Hooks:
        """Returns the hooks; raises UserError for one that cannot be called."""
        for name, value in self._asdict().items():
            require(value is None or name == "progress" or callable(value), f"{name}: {value!r} is not a function")
        return self


def train(
    scenario: str | PathLike[str] | Callable[[], Env] = "basic",
    *,
    name: str | None = None,
    from_: str | PathLike[str] | None = None,
    callback: Callback | None = None,
    on_evaluation: OnEvaluation | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Agent:
    """Trains an agent, and returns the agent of the best evaluation.

    Checkpoints go to `models/RUN`, gifs to `frames/RUN` and logs to `logs/RUN`, as with train.py. A KeyboardInterrupt saves
    the run, ends it and propagates, and so does an exception in one of the functions below: `resume` continues the run, and
    `load` returns the agent of its `last.ckpt`.

    Args:
        scenario: a scenario's name, a file or a Gymnasium id, as for `--scenario`; or a function without arguments that
            returns a new environment, such as `lambda: MyWrapper(MyEnv())`, which `load` and `resume` need again as `env`.
        name: of the run; None is the scenario's name.
        from_: a checkpoint, or the name of a pretrained model, that provides the first weights.
        callback: called ten times a second with the status; this and the next two end the run by returning True.
        on_evaluation: called with the mean scores of each evaluation.
        on_checkpoint: called with path and frames after `last.ckpt` or `best.ckpt` was written.
        progress: whether to show the progress; None shows it on a terminal and in a notebook.
        settings: any setting with a flag of train.py, such as `minutes=1`, `frames=200_000`, `learning_rate=3e-4`.

    Raises:
        UserError: for a user mistake, in one line with its cure.
        RunError: if the run diverged or could not be saved.
    """
    if isinstance(scenario, gymnasium.Env | VectorEnv):
        raise UserError(f"scenario: {type(scenario).__name__} is one environment: pass a function that makes new ones")
    hooks = _Hooks(callback, on_evaluation, on_checkpoint, progress).check()
    env, title = (scenario, name_function(scenario)) if callable(scenario) else (None, str(scenario))
    record = make_new_run({**settings, "scenario": title}, name)
    with open_new_run(record) as (record, checkpoints):
        return _run(record, checkpoints, hooks, env=env, source=None if from_ is None else find_model(str(from_)))


def resume(
    run: str | PathLike[str],
    *,
    env: Callable[[], Env] | None = None,
    callback: Callback | None = None,
    on_evaluation: OnEvaluation | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Agent:
    """Resumes a run, given its folder, such as `agent.folder`, or its name, with a larger budget; otherwise as `train`.

    `env`, or the settings `scenario` and `wad`, must be given again for a game that the checkpoint does not name.
    """
    hooks = _Hooks(callback, on_evaluation, on_checkpoint, progress).check()
    settings = {name: fspath(value) if isinstance(value, PathLike) else value for name, value in settings.items()}
    folder = find_run(expand(settings.get("models_dir", Config.models_dir)), str(run))
    override = _name_game(settings.get("scenario"), settings.pop("wad", None), env)
    with open_run(folder) as checkpoints:
        record = make_resumed_run(checkpoints.read_record(override), settings)
        return _run(record, checkpoints, hooks, env=env, override=override)


def load(
    path: str | PathLike[str],
    *,
    scenario: str | PathLike[str] | None = None,
    wad: str | PathLike[str] | None = None,
    env: Callable[[], Env] | None = None,
) -> Agent:
    """Returns the agent of a checkpoint; untrusted ones are safe to load.

    Args:
        path: of the checkpoint, such as `models/best.ckpt`, or the name of a pretrained model, such as `basic`.
        scenario: replaces the scenario of the checkpoint.
        wad: the wad of the checkpoint, if it does not come with ViZDoom.
        env: the function that makes its environment, if it was trained with one.

    Raises:
        UserError: if it is not a checkpoint, or a file of its scenario is missing.
    """
    return Agent.load(find_model(str(path)).absolute(), _name_game(scenario, wad, env))


def _name_game(
    scenario: str | PathLike[str] | None, wad: str | PathLike[str] | None, env: Callable[[], Env] | None
) -> GameOverride:
    """Returns the caller's replacement for the game of a checkpoint.

    Raises:
        UserError: for an empty name, or an `env` that is no function that makes environments.
    """
    for name, value in (("scenario", scenario), ("wad", wad)):
        require(value is None or bool(str(value).strip()), f"{name}: it is empty")
    if env is not None:
        require(callable(env), f"env: {env!r} is not a function")
        name_function(env)
    return GameOverride(None if scenario is None else str(scenario), None if wad is None else str(wad), env)


def _run(
    record: RunRecord,
    checkpoints: CheckpointFolder,
    hooks: _Hooks,
    *,
    env: Callable[[], Env] | None,
    override: GameOverride | None = None,
    source: Path | None = None,
) -> Agent:
    with (
        closing(_View(hooks, record, checkpoints)) as view,
        open_session(record, checkpoints, override, view, source=source, make_env=env) as session,
    ):
        view.stopping = session.stopping
        try:
            session.training.run()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{_format_resume(record, checkpoints.folder, env)} continues the run") from None
    best = checkpoints.best if checkpoints.best.exists() else checkpoints.last
    needed = find_needed_override(record) if env is None else GameOverride(env=env)  # named by the caller
    return Agent.load(best.absolute(), needed)


def _format_resume(record: RunRecord, folder: Path, env: Callable[[], Env] | None) -> str:
    """Returns the call that continues a run, with what its checkpoints may not name."""
    needed = find_needed_override(record)
    named = {"env": "..."} if env else {name: repr(value) for name, value in needed._asdict().items() if value}
    return f"doom_a3c.resume({str(folder)!r}{''.join(f', {name}={value}' for name, value in named.items())})"


class _View(Panel):
    """Shows the progress, calls the caller's functions, and passes warnings to Python's. Owns the events passed on."""

    def __init__(self, hooks: _Hooks, record: RunRecord, checkpoints: CheckpointFolder) -> None:
        shown = can_redraw() or in_notebook() if hooks.progress is None else hooks.progress
        super().__init__(quiet=not shown, redirect=True)
        self._hooks, self._checkpoints = hooks, checkpoints
        self.stopping: StoppingRule
        self._evaluated = max((each.frames for each in record.best.evaluations), default=-1)
        self._saved: dict[Path, int] = {}

    def show(self, status: Status) -> None:
        """Shows the status, and calls the functions with it and with new events."""
        super().show(status)
        new = [each for each in status.evaluations if each.frames > self._evaluated]
        self._evaluated = max((each.frames for each in new), default=self._evaluated)
        saved, before = self._checkpoints.saved, self._saved
        self._saved = saved
        written = [SavedCheckpoint(path.absolute(), frames) for path, frames in saved.items() if before.get(path) != frames]
        self._call(self._hooks.on_evaluation, new)
        self._call(self._hooks.on_checkpoint, written)
        self._call(self._hooks.callback, [status])

    def _call(self, function: Callable[[Event], bool | None] | None, events: Sequence[Event]) -> None:
        for event in events if function else ():
            if function and function(event):
                self.stopping.end("callback")

    def log(self, message: str) -> None:
        """Shows a message, or issues a warning if it is one."""
        if message.startswith("warning: "):
            warnings.warn(message.removeprefix("warning: "), RuntimeWarning, stacklevel=2)
        else:
            super().log(message)
