"""The Python API: train, resume and load agents. `import doom_a3c` provides it, and imports it on first use."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from doom_a3c.record.files import claim_empty_folder
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import RunRecord, find_needed_override
from doom_a3c.run.checkpoints.runs import find_run, open_new_run, open_run
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.run.launch import make_new_run, make_resumed_run, open_session
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.errors import RunError, UserError
from doom_a3c.settings.fields import parse_values
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.playing import PlaySettings
from doom_a3c.settings.trust import GameOverride

import_tensorflow(cpu_count(), verbose=False, device="auto")  # quietly, before the modules below import it

from doom_a3c.run.play.agent import TrainedAgent  # noqa: E402
from doom_a3c.run.play.page import Results  # noqa: E402
from doom_a3c.run.play.playback import Playback  # noqa: E402
from doom_a3c.run.reporter import Status  # noqa: E402
from doom_a3c.run.training import StoppingRule  # noqa: E402

__all__ = ["Agent", "Results", "RunError", "Status", "UserError", "load", "resume", "train"]


class Agent(TrainedAgent):
    """A trained agent, as returned by `load`, `train` and `resume`."""

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
            return stack.enter_context(Playback(self, chosen, folder)).run(call)


Callback = Callable[[Status], bool | None]


def train(
    scenario: str = "basic",
    *,
    name: str | None = None,
    from_: str | PathLike[str] | None = None,
    callback: Callback | None = None,
    **settings: Any,
) -> Agent:
    """Trains an agent, and returns the agent of the best evaluation.

    Checkpoints go to `models/RUN`, gifs to `frames/RUN` and logs to `logs/RUN`, as with train.py. A KeyboardInterrupt saves
    the run, ends it and propagates: `resume` continues the run, and `load` returns the agent of its `last.ckpt`.

    Args:
        scenario: a scenario's name, a file or a Gymnasium id, as for `--scenario`.
        name: of the run; None is the scenario's name.
        from_: a checkpoint, or the name of a pretrained model, that provides the first weights.
        callback: called ten times a second with the status; ends the run by returning True.
        settings: any setting with a flag of train.py, such as `minutes=1`, `frames=200_000`, `learning_rate=3e-4`.

    Raises:
        UserError: for a user mistake, in one line with its cure.
        RunError: if the run diverged or could not be saved.
    """
    record = make_new_run({**settings, "scenario": str(scenario)}, name)
    with open_new_run(record) as (record, checkpoints):
        return _run(record, checkpoints, callback, source=None if from_ is None else find_model(str(from_)))


def resume(run: str | PathLike[str], *, callback: Callback | None = None, **settings: Any) -> Agent:
    """Resumes a run, given its folder, such as `agent.folder`, or its name, with a larger budget; otherwise as `train`.

    The settings `scenario` and `wad` repeat a game that the checkpoint does not name.
    """
    folder = find_run(expand(settings.get("models_dir", Config.models_dir)), str(run))
    override = GameOverride(settings.get("scenario"), settings.pop("wad", None))
    with open_run(folder) as checkpoints:
        record = make_resumed_run(checkpoints.read_record(override), settings)
        return _run(record, checkpoints, callback, override=override)


def load(path: str | PathLike[str], *, scenario: str | None = None, wad: str | None = None) -> Agent:
    """Returns the agent of a checkpoint; untrusted ones are safe to load.

    Args:
        path: of the checkpoint, such as `models/best.ckpt`, or the name of a pretrained model, such as `basic`.
        scenario: replaces the scenario of the checkpoint.
        wad: the wad of the checkpoint, if it does not come with ViZDoom.

    Raises:
        UserError: if it is not a checkpoint, or a file of its scenario is missing.
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
        raise UserError(f"callback: {callback!r} is not a function")
    view = _View(callback)
    with open_session(record, checkpoints, override, view, source=source) as session:
        view.stopping = session.stopping
        session.training.run()
    best = checkpoints.best if checkpoints.best.exists() else checkpoints.last
    return Agent.load(best, find_needed_override(record))  # named by the caller


class _View:
    """Passes the status to the callback, and warnings to Python's."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback
        self.stopping: StoppingRule

    def show(self, status: Status) -> None:
        """Calls the callback."""
        if self._callback and self._callback(status):
            self.stopping.end("callback")

    def set_phase(self, describe: Callable[[], str]) -> None:
        """Does nothing."""

    def log(self, message: str) -> None:
        """Issues a warning if the message is one."""
        if message.startswith("warning: "):
            warnings.warn(message.removeprefix("warning: "), RuntimeWarning, stacklevel=2)
