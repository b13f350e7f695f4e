"""Checkpoints: one file that holds weights, optimizer slots, counters and the full configuration, and runs no code.

A `.ckpt` is an uncompressed zip of a TensorFlow checkpoint (`variables.index`, `variables.data-00000-of-00001`) and
`checkpoint.json`; `unzip` and `tf.train.load_checkpoint` read it without this project. It is written beside its name,
synced and renamed, so its name never stands for half a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.record.files import check_exists
from doom_a3c.run.run_record import RunRecord, record_from_plain, record_to_plain
from doom_a3c.settings.fields import UserError

KEPT = 5
_JSON = "checkpoint.json"
_SAVING = ".saving-"
# Everything that zipfile, json and TensorFlow raise for damaged bytes; an unknown compression is a RuntimeError, say.
_UNREADABLE = (zipfile.BadZipFile, KeyError, ValueError, EOFError, RuntimeError, OSError, tf.errors.OpError)


class Checkpoint(NamedTuple):
    """What a checkpoint file holds."""

    variables: dict[str, NDArray[Any]]  # by name; the names with a slot suffix are the optimizer's
    record: RunRecord


def save(path: Path, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
    """Writes a checkpoint so that `path` names the old or the new one, whole, at every instant."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SAVING) as folder:
        prefix = Path(folder) / "variables"
        names = sorted(variables)
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[variables[n] for n in names],
        )
        whole = Path(folder) / "whole"
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_JSON, json.dumps(record_to_plain(record), indent=1))
            for part in sorted(Path(folder).glob("variables.*")):
                archive.write(part, part.name)
        with whole.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(whole, path)


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint.

    Raises:
        UserError: if there is none, or the file is cut off, damaged, or something else.
    """
    check_exists(path)
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            data = json.loads(archive.read(_JSON))
            parts = [name for name in archive.namelist() if name.startswith("variables.") and "/" not in name]
            for part in parts:
                archive.extract(part, folder)
            reader = tf.train.load_checkpoint(os.path.join(folder, "variables"))
            variables = {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}
    except _UNREADABLE as error:
        raise UserError(f"{path} is not a complete checkpoint of doom_a3c ({_first_line(error)})") from None
    return Checkpoint(variables, record_from_plain(data, str(path)))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class CheckpointFolder:
    """The models folder of a run: `last.ckpt`, the 5 newest by frames (last.ckpt is one of them), and `best.ckpt`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.last, self.best = folder, folder / "last.ckpt", folder / "best.ckpt"
        for unfinished in folder.glob(f"{_SAVING}*"):  # of a run that was killed while it saved
            shutil.rmtree(unfinished, ignore_errors=True)

    def save(self, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
        """Saves as the newest checkpoint and removes the sixth newest."""
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
        """Saves as the best evaluated one."""
        save(self.best, variables, record)
