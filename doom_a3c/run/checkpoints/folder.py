"""The models folder of a run, and the rules that keep its checkpoints safe."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from doom_a3c.run.checkpoints.checkpoint import SAVING, is_whole, read_label, read_record, save
from doom_a3c.run.checkpoints.lock import FolderLock
from doom_a3c.run.checkpoints.run_record import RunLabel, RunRecord, describe_opponents
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride

KEPT = 2
LAST, BEST = "last.ckpt", "best.ckpt"


class CheckpointFolder:
    """The folder of a run: `last.ckpt`, the 2 newest by frames (last.ckpt is one of them), and `best.ckpt`."""

    def __init__(self, folder: Path, lock: FolderLock | None = None) -> None:
        """Nothing is written to the folder once the run has lost its `lock`, if there is one."""
        self.folder, self.last, self.best, self.lock = folder, folder / LAST, folder / BEST, lock
        self._frames: dict[Path, int] = {}  # of `last` and `best`, if this session saved them

    @property
    def saved(self) -> dict[Path, int]:
        """The frames of `last` and `best`, if this session has saved them."""
        return dict(self._frames)

    def find_whole(self) -> Path | None:
        """Returns the newest undamaged checkpoint by frames, None if there is none."""
        newest_first = sorted(self.folder.glob("frames-*.ckpt"), reverse=True)
        return next(filter(is_whole, newest_first), None)

    def read_record(self, override: GameOverride = NO_OVERRIDE) -> RunRecord:
        """Reads the run record of the newest checkpoint; raises UserError, as in `suggest_whole`, if it is damaged."""
        with self.suggest_whole():
            return read_record(self.last, override)

    @contextlib.contextmanager
    def suggest_whole(self) -> Iterator[None]:
        """Adds the newest undamaged checkpoint to the UserError about a damaged `last.ckpt`, inside the block."""
        try:
            yield
        except UserError as error:
            if is_whole(self.last) or (other := self.find_whole()) is None:
                raise
            copy = shlex.join(["cp", str(other), str(self.last)])
            raise UserError(f"{error}; the newest undamaged checkpoint is {other}: {copy}") from None

    def tidy(self) -> None:
        """Removes unfinished files of a run that was killed while saving."""
        for unfinished in self.folder.glob(f"{SAVING}*"):
            with contextlib.suppress(OSError):  # such as a folder of that name, which `save` will report
                unfinished.unlink()

    def save(self, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
        """Saves the newest checkpoint, removes older and untrained ones; raises OSError as `save_best` does."""
        self._check_ours()
        path = self._make_path(record.counters.frames)
        save(path, variables, record)
        try:
            self._link(path, self.last)  # a hard link: nothing is written twice
        except OSError:  # a file system without hard links
            save(self.last, variables, record)
        self._frames[self.last] = record.counters.frames
        untrained = [self._make_path(0)] if record.counters.frames else []
        for old in (*sorted(self.folder.glob("frames-*.ckpt"))[:-KEPT], *untrained):
            with contextlib.suppress(OSError):
                old.unlink()

    def save_best(self, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
        """Saves the best checkpoint; raises OSError if it cannot be written, or the folder is no longer the run's."""
        self._check_ours()
        save(self.best, variables, record)
        self._frames[self.best] = record.counters.frames

    def make_room(self, frames: int) -> Path | None:
        """Removes the oldest checkpoint; returns its path, None if there is none to remove.

        `last.ckpt` and the checkpoint of `frames`, which is being saved, stay. If no other is left and `best.ckpt` is newer
        than `last.ckpt`, `last.ckpt` becomes a second name of `best.ckpt`.
        """
        with contextlib.suppress(OSError):
            if not self.is_ours:
                return None
            removed, last, best = self._remove_oldest(frames), *map(self._frames.get, (self.last, self.best))
            if removed is None and last is not None and best is not None and best > last:
                self._link(self.best, self.last)
                self._frames[self.last] = best
                removed = self._remove_oldest(frames)
            return removed
        return None

    def _remove_oldest(self, kept: int) -> Path | None:
        for old in sorted(self.folder.glob("frames-*.ckpt")):
            if old != self._make_path(kept) and self.last.exists() and not old.samefile(self.last):
                old.unlink()
                return old
        return None

    def _make_path(self, frames: int) -> Path:
        return self.folder / f"frames-{frames:012d}.ckpt"

    def _link(self, path: Path, name: Path) -> None:
        """Gives a checkpoint a second name, replacing its file; raises OSError if the file system has no hard links."""
        link = self.folder / f".{name.name}"
        link.unlink(missing_ok=True)
        os.link(path, link)
        os.replace(link, name)

    @property
    def is_ours(self) -> bool:
        """Whether the folder still belongs to the run."""
        return self.lock is None or self.lock.is_held()

    def _check_ours(self) -> None:
        if not self.is_ours:
            raise OSError(errno.ENOENT, "the folder was removed, or belongs to another run now")

    def adopt_best(self, record: RunRecord) -> RunRecord:
        """Returns the record of a resumed run with the score of `best.ckpt`, which may be newer than `last.ckpt`.

        Without that file there is no score. A `best.ckpt` of another scenario or run, or against other opponents, is
        renamed, and renamed back when the run returns to that scenario and those opponents.
        """
        if self.best.exists():
            label = _read_label(self.best)
            if _is_of(label, record):
                return _replace_score(record, label)
            self.best.rename(self._find_free_path(f"best-{label.scenario if label else 'unreadable'}"))
            record = _replace_score(record, None)
        for kept in sorted(self.folder.glob("best-*.ckpt"), key=lambda path: path.stat().st_mtime, reverse=True):
            if _is_of(label := _read_label(kept), record):
                kept.rename(self.best)
                return _replace_score(record, label)
        return _replace_score(record, None)  # else no new weights would be saved as the best until they beat lost ones

    def _find_free_path(self, stem: str) -> Path:
        number, path = 1, self.folder / f"{stem}.ckpt"
        while path.exists():
            number += 1
            path = self.folder / f"{stem}-{number}.ckpt"
        return path


def _is_of(label: RunLabel | None, record: RunRecord) -> bool:
    played = record.name, record.scenario.name, describe_opponents(record.scenario, record.config)
    return label is not None and (label.run, label.scenario, label.opponents) == played


def _replace_score(record: RunRecord, label: RunLabel | None) -> RunRecord:
    score, confirmed = (label.score, label.confirmed) if label else (None, False)
    return record._replace(best=record.best._replace(score=score, confirmed=confirmed))


def _read_label(path: Path) -> RunLabel | None:
    try:
        return read_label(path)
    except UserError:  # damaged
        return None
