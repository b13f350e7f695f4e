"""The Python API: train, resume and load agents. `import doom_a3c` offers it, and loads it on first use."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from doom_a3c.record.files import check_exists, output_folder
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.lock import FolderLock
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import RunRecord, find_needed_override
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.run.launch import continued_run, new_run, open_session
from doom_a3c.settings.config import cpu_count
from doom_a3c.settings.errors import RunError, UserError
from doom_a3c.settings.fields import parse_values
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.playing import PlaySettings
from doom_a3c.settings.trust import GameOverride

import_tensorflow(cpu_count(), verbose=False, device="auto")  # before the modules that would load it aloud

from doom_a3c.run.play.agent import TrainedAgent  # noqa: E402
from doom_a3c.run.play.page import Results  # noqa: E402
from doom_a3c.run.play.playback import Playback  # noqa: E402
from doom_a3c.run.reporter import Status  # noqa: E402
from doom_a3c.run.training import StoppingRule  # noqa: E402

__all__ = ["Agent", "Results", "RunError", "Status", "UserError", "load", "resume", "train"]


class Agent(TrainedAgent):
    """A trained agent. `load`, `train` and `resume` make it; see there."""

    @property
    def folder(self) -> Path:
        """The folder of its checkpoint, which `resume` takes."""
        return Path(self.source).parent

    def play(self, out: str | PathLike[str] | None = None, **settings: Any) -> Results:
        """Plays episodes; returns their scores, actions, rewards and values, step by step.

        Args:
            out: a folder for films, scores and the page that shows them; None writes nothing.
            settings: those of play.py, such as `episodes=3`, `seed`, `policy`, `epsilon`, `record_episodes` and `overlay`.

        Raises:
            UserError: for a setting that does not fit, or a folder that cannot be written to.
        """
        chosen = parse_values(PlaySettings, settings, "settings")
        folder = None if out is None else output_folder(str(out), "out")
        called = f"agent.play({str(out)!r}, {', '.join(f'{key}={value!r}' for key, value in settings.items())})"
        with Playback(self, chosen, folder) as playback:
            return playback.run(called)


Callback = Callable[[Status], bool | None]


def train(
    scenario: str = "basic",
    *,
    name: str | None = None,
    from_: str | PathLike[str] | None = None,
    callback: Callback | None = None,
    **settings: Any,
) -> Agent:
    """Trains an agent, and returns it as it was at its best evaluation.

    Its checkpoints go to a folder of their own, `models/RUN`, unless `models_dir` names another; gifs and logs go to
    `frames/RUN` and `logs/RUN`, as those of train.py. KeyboardInterrupt ends it, saved, and goes on to the caller: `resume`
    continues it, `load` has the agent of its `last.ckpt`.

    Args:
        scenario: what to play: a name, a file or a Gymnasium id, as `--scenario` takes it.
        name: what to call the run, in place of the scenario's name.
        from_: a checkpoint, or the name of a pretrained model, whose weights it begins with.
        callback: is called ten times a second with the status; returning True ends the run.
        settings: every setting that train.py has a flag for, such as `minutes=1`, `frames=200_000`, `learning_rate=3e-4`.

    Raises:
        UserError: for a user mistake, in one line with its cure.
        RunError: for a run that has diverged, or could not be saved.
    """
    record = new_run({**settings, "scenario": str(scenario)}, name)
    if "models_dir" not in settings:
        record = record._replace(config=dataclasses.replace(record.config, models_dir=f"models/{record.name}"))
    with FolderLock(expand(record.config.models_dir), "models_dir") as lock:
        lock.note(record.name)
        checkpoints = CheckpointFolder(lock.folder, lock.held)
        checkpoints.check_unused()
        return _run(record, checkpoints, callback, source=None if from_ is None else find_model(str(from_)))


def resume(models_dir: str | PathLike[str], *, callback: Callback | None = None, **settings: Any) -> Agent:
    """Continues the run of a folder, such as `agent.find_folder`, with a larger budget, and returns the agent; as `train`.

    A `scenario` or a `wad` among the settings names again what a checkpoint does not.
    """
    folder = expand(str(models_dir))
    check_exists(folder / "last.ckpt")
    override = GameOverride(settings.get("scenario"), settings.pop("wad", None))
    with FolderLock(folder, "models_dir") as lock:
        checkpoints = CheckpointFolder(folder, lock.held)
        record = continued_run(checkpoints.record(override), {**settings, "models_dir": str(models_dir)})
        lock.note(record.name)
        return _run(record, checkpoints, callback, override=override)


def load(path: str | PathLike[str], *, scenario: str | None = None, wad: str | None = None) -> Agent:
    """Returns the agent of a checkpoint; untrusted ones are safe to load.

    Args:
        path: of the checkpoint, such as `models/best.ckpt`, or the name of a pretrained model, such as `basic`.
        scenario: what to play instead of what the checkpoint says.
        wad: the wad of a model that was trained on one which ViZDoom does not ship.

    Raises:
        UserError: if it is no checkpoint, or its scenario's files are not here.
    """
    return Agent.load(find_model(str(path)), GameOverride(scenario, wad))


def _run(
    record: RunRecord,
    checkpoints: CheckpointFolder,
    callback: Callback | None,
    *,
    override: GameOverride | None = None,
    source: Path | None = None,
) -> Agent:
    if callback is not None and not callable(callback):
        raise UserError(f"callback: {callback!r} is no function")
    view = _View(callback)
    with open_session(record, checkpoints, override, view, source=source) as session:
        view.stopping = session.stopping
        session.training.run()
    best = checkpoints.best if checkpoints.best.exists() else checkpoints.last
    return Agent.load(best, find_needed_override(record))  # the caller has named that


class _View:
    """Passes the status to the callback, and warnings to Python's."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback
        self.stopping: StoppingRule

    def show(self, status: Status) -> None:
        """Calls the callback."""
        if self._callback and self._callback(status):
            self.stopping.end("callback")

    def phase(self, what: Callable[[], str]) -> None:
        """Does nothing."""

    def log(self, message: str) -> None:
        """Warns, where the message is a warning."""
        if message.startswith("warning: "):
            warnings.warn(message.removeprefix("warning: "), RuntimeWarning, stacklevel=2)
