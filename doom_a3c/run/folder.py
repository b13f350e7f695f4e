"""The models folder of a run, and what of it must never be lost."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from doom_a3c.run.checkpoint import SAVING, label_of, save
from doom_a3c.run.run_record import Label, RunRecord
from doom_a3c.settings.fields import UserError

KEPT = 5


class CheckpointFolder:
    """The models folder of a run: `last.ckpt`, the 5 newest by frames (last.ckpt is one of them), and `best.ckpt`."""

    def __init__(self, folder: Path, is_ours: Callable[[], bool] = lambda: True) -> None:
        """`is_ours` tells whether the folder is still the run's: nothing is written to one that is not."""
        self.folder, self.last, self.best = folder, folder / "last.ckpt", folder / "best.ckpt"
        self._is_ours = is_ours

    def check_unused(self) -> None:
        """Raises UserError, naming the run, if there is a checkpoint: a new run would overwrite another's."""
        for path in (self.last, self.best, *sorted(self.folder.glob("*.ckpt"))):
            if path.exists():
                label = _label(path)
                name = f", {label.run}" if label else ""
                resume = "continue it with --resume, or " if self.last.exists() else ""
                remedy = f"{resume}keep it and name another --models-dir"
                raise UserError(f"{path} holds another run{name}: {remedy}")

    def tidy(self) -> None:
        """Removes what a run that was killed while it saved has left."""
        for unfinished in self.folder.glob(f"{SAVING}*"):
            if unfinished.is_dir():  # as earlier versions left them
                shutil.rmtree(unfinished, ignore_errors=True)
            else:
                unfinished.unlink(missing_ok=True)

    def save(self, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
        """Saves as the newest checkpoint and removes the sixth newest; raises OSError as `save_best` does."""
        self._check_ours()
        path = self.folder / f"frames-{record.counters.frames:012d}.ckpt"
        save(path, variables, record)
        link = self.folder / ".last.ckpt"
        link.unlink(missing_ok=True)
        try:
            os.link(path, link)  # the same file under a second name: nothing is written twice
        except OSError:  # a file system without hard links
            save(link, variables, record)
        os.replace(link, self.last)
        for old in sorted(self.folder.glob("frames-*.ckpt"))[:-KEPT]:
            with contextlib.suppress(OSError):
                old.unlink()

    def save_best(self, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
        """Saves as the best evaluated one; raises OSError if that cannot be written, or the folder is not the run's."""
        self._check_ours()
        save(self.best, variables, record)

    def _check_ours(self) -> None:
        if not self._is_ours():
            raise OSError(errno.ENOENT, "the folder has been removed, or is another run's by now")

    def with_best(self, record: RunRecord) -> RunRecord:
        """Returns the record of a run that continues with the score of `best.ckpt`, which may be newer than `last.ckpt`.

        One of another scenario or another run is kept, under another name: the best of this one is yet to come.
        """
        if not self.best.exists():
            return record
        label = _label(self.best)
        if label is not None and (label.run, label.scenario) == (record.name, record.scenario.name):
            return record._replace(best=record.best._replace(score=label.score))
        stem, number = f"best-{label.scenario if label else 'unreadable'}", 1
        while (kept := self.folder / f"{stem}{f'-{number}' if number > 1 else ''}.ckpt").exists():
            number += 1
        self.best.rename(kept)
        return record._replace(best=record.best._replace(score=None))


def _label(path: Path) -> Label | None:
    try:
        return label_of(path)
    except UserError:  # damaged
        return None
