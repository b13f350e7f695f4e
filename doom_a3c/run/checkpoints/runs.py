"""The runs of a models folder: one folder each, beside links to the checkpoints of the newest."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from doom_a3c.record.files import output_folder, write_whole
from doom_a3c.run.checkpoints.folder import BEST, LAST, CheckpointFolder
from doom_a3c.run.checkpoints.lock import FolderLock
from doom_a3c.run.checkpoints.run_record import RunRecord, find_scenario_name, make_run_name
from doom_a3c.settings.errors import UserError, require, shorten_list, suggest
from doom_a3c.settings.inputs import exists, expand

NEWEST = "newest"  # stands for a name
_NEWEST = "newest-run.txt"  # names the newest run where it cannot be linked to
_SHOWN = 8  # runs listed in a message


@contextlib.contextmanager
def open_new_run(record: RunRecord) -> Iterator[tuple[RunRecord, CheckpointFolder]]:
    """Makes the models and logs folders of a new run and locks the former; removes both in the end if nothing was saved.

    Yields:
        The record, renamed if another run has its name, and the folder for the checkpoints.

    Raises:
        UserError: if a folder cannot be written to.
    """
    config = record.config
    with ExitStack() as stack:
        _open_folder(stack, config.frames_dir, "--frames-dir")
        parents = [
            _open_folder(stack, path, flag)
            for path, flag in ((config.models_dir, "--models-dir"), (config.logs_dir, "--logs-dir"))
        ]
        while not all(_make_folder(stack, parent / record.name) for parent in parents):
            time.sleep(0.1)  # a name ends with the time of the start, in seconds
            record = record._replace(name=make_run_name(find_scenario_name(record.name), config.seed))
        folder, logs = (parent / record.name for parent in parents)
        stack.callback(_remove_logs, logs, folder)
        with open_run(folder) as checkpoints:
            yield record, checkpoints


def _open_folder(stack: ExitStack, path: str, flag: str) -> Path:
    folder = expand(path)
    if not exists(folder):
        stack.callback(_remove_empty, folder)
    return output_folder(path, flag)


def _make_folder(stack: ExitStack, folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    stack.callback(_remove_empty, folder)
    return True


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _remove_logs(logs: Path, folder: Path) -> None:
    """Removes the logs of a run that has saved nothing: they hold settings only."""
    if not _holds_run(folder):
        shutil.rmtree(logs, ignore_errors=True)


@contextlib.contextmanager
def open_run(folder: Path) -> Iterator[CheckpointFolder]:
    """Locks the folder of a run; raises UserError if it is in use."""
    with FolderLock(folder) as lock:
        yield CheckpointFolder(folder, lock)


def link_newest(run: Path) -> None:
    """Makes `last.ckpt` and `best.ckpt` beside the folder of a run links to its checkpoints, even to one not saved yet.

    The user's own files stay; where a link cannot be made, `newest-run.txt` names the run.
    """
    models, linked = run.parent, True
    for name in (LAST, BEST):
        link, new = models / name, models / f".{name}-{os.getpid()}"
        try:
            if exists(link) and not link.is_symlink():
                raise FileExistsError
            new.unlink(missing_ok=True)
            new.symlink_to(Path(run.name) / name)
            new.replace(link)
        except OSError:
            linked = False
    with contextlib.suppress(OSError):
        if linked:
            (models / _NEWEST).unlink(missing_ok=True)
        else:
            write_whole(models / _NEWEST, f"{run.name}\n".encode())


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder; of a run, those of its league, oldest first, and best.ckpt.

    Raises:
        UserError: if there is no such folder, or it has fewer than two.
    """
    require(not folder.is_file(), f"--cross-play {folder}: it takes a folder of checkpoints; --compare takes the files")
    require(folder.is_dir(), f"--cross-play {folder}: there is no such folder")
    league = sorted((folder / "league").glob("*.ckpt"))
    found = [*league, *(path for path in sorted(folder.glob("*.ckpt")) if path.name == BEST or not league)]
    if len(found) < 2:
        raise UserError(f"--cross-play {folder}: it takes two checkpoints to play each other, and here are {len(found)}")
    return found


def find_checkpoint(path: Path) -> Path:
    """Returns the checkpoint that a path stands for, or the path itself.

    A run's folder stands for its best checkpoint, or its last if there is no best one; a models folder for its newest run,
    or, if that was removed, for the run saved last.
    """
    if os.path.isdir(path):  # a Path would raise for a name that is too long
        found = (find_checkpoint(path / name) for name in (BEST, LAST))
        others = (find_checkpoint(run) for run in list_runs(path)[:1])
        return next((checkpoint for checkpoint in itertools.chain(found, others) if checkpoint.exists()), path)
    is_file = exists(path) and not path.is_symlink()
    if path.name in (LAST, BEST) and not is_file and (run := _read_newest(path.parent)):
        return run / path.name
    return path


def find_run(models: Path, name: str = NEWEST) -> Path:
    """Returns the folder of a run: the newest of a models folder, or the one with a name, a path, or the start of a name.

    Raises:
        UserError: if there is none, or several names begin like that.
    """
    require(bool(name.strip()), "the name of the run is empty")
    try:
        models.stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"--models-dir {models}: {error.strerror}") from None
    runs = list_runs(models)
    if name == NEWEST:
        if found := _read_newest(models) or (models if _holds_run(models) else next(iter(runs), None)):
            return found
        others = sorted({path.parent for depth in ("*", "*/*") for path in Path().glob(f"{depth}/{LAST}")} - {models})
        flags = [f"--models-dir {shlex.quote(str(other))}" for other in others if other.parent not in others]
        found_there = f"; runs found: {shorten_list(flags, _SHOWN)}" if flags else ""
        raise UserError(f"there is no run in {models}: train one first, or name another --models-dir{found_there}")
    if _holds_run(path := expand(name)):
        return path
    if run := match_run(runs, name):
        return run
    names = [run.name for run in runs]
    known = suggest(name, names) or (f"; it has {shorten_list(names, _SHOWN)}" if names else "")
    raise UserError(f"{name}: there is no such run in {models}{known}")


def match_run(runs: Sequence[Path], name: str) -> Path | None:
    """Returns the folder whose name is `name`, or the only one that begins with it, None if there is none.

    Raises:
        UserError: if several begin with it.
    """
    match = match_names([run.name for run in runs], name)
    if match[1:]:
        raise UserError(f"{name}: several runs begin like that: {shorten_list(match, _SHOWN)}")
    return next((run for run in runs if run.name in match), None)


def match_names(names: Collection[str], word: str) -> list[str]:
    """Returns the name that is `word`, or all that begin with it in upper or lower case."""
    return [word] if word in names else [name for name in names if name.lower().startswith(word.lower())]


def list_runs(models: Path) -> list[Path]:
    """Returns the folders of the runs in a models folder, the one saved last first."""
    with contextlib.suppress(OSError):
        folders = {folder: folder / LAST for folder in models.iterdir() if _holds_run(folder)}
        return sorted(folders, key=lambda folder: folders[folder].stat().st_mtime, reverse=True)
    return []


def _holds_run(folder: Path) -> bool:
    """Returns whether a folder is that of a run, rather than a models folder with links."""
    with contextlib.suppress(OSError, ValueError):
        return exists(folder / LAST) and not (folder / LAST).is_symlink()
    return False


def _read_newest(models: Path) -> Path | None:
    """Returns the folder of the newest run by its link, or by the file in its place; None without either."""
    name = ""
    with contextlib.suppress(OSError, ValueError):
        if (models / _NEWEST).is_file():
            name = (models / _NEWEST).read_text()[:200].strip()
        elif (models / LAST).is_symlink():
            name = Path(os.readlink(models / LAST)).parent.name
        return models / name if name and Path(name).name == name and _holds_run(models / name) else None
    return None
