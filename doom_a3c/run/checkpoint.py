"""Checkpoints: one file that holds weights, optimizer slots, counters and the full configuration, and runs no code.

A `.ckpt` is an uncompressed zip of a TensorFlow checkpoint (`variables.index`, `variables.data-00000-of-00001`) and
`checkpoint.json`; `unzip` and `tf.train.load_checkpoint` read it without this project. It is written beside its name,
synced and renamed, so its name never stands for half a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from numpy.typing import NDArray

from doom_a3c.record.files import check_exists
from doom_a3c.run.bundle import entries, tensors
from doom_a3c.run.run_record import Label, RunRecord, label_from_plain, record_from_plain, record_to_plain
from doom_a3c.settings.fields import UserError, first_line
from doom_a3c.settings.inputs import check_file
from doom_a3c.settings.network_checks import MAX_PARAMETERS
from doom_a3c.settings.scenarios import least_parameters, most_parameters
from doom_a3c.settings.tree import all_finite
from doom_a3c.settings.trust import NOTHING, Named

MAX_JSON, MAX_INDEX = 4 * 2**20, 2**20  # bytes
SLOTS = 3  # numbers in a checkpoint for each parameter, at most: its own, and two of the optimizer's
_JSON, _INDEX, _DATA = "checkpoint.json", "variables.index", "variables.data-00000-of-00001"
MAX_MEMBERS, MAX_DIRECTORY = 100, 10_000  # of an archive, the latter in bytes
_END = struct.Struct("<4s4H2LH")  # the last record of a zip file
SAVING = ".saving-"  # begins the name of a file that is being written
# Everything that zipfile and json raise for damaged bytes: an unknown compression is a RuntimeError, say.
_UNREADABLE = (zipfile.BadZipFile, KeyError, ValueError, EOFError, RuntimeError, OSError, struct.error, OverflowError)


class Checkpoint(NamedTuple):
    """What a checkpoint file holds."""

    variables: dict[str, NDArray[Any]]  # by name; the names with a slot suffix are the optimizer's
    record: RunRecord

    def check_finite(self, path: Path) -> None:
        """Raises UserError, naming the file, where a number is not finite."""
        if not all_finite(self.variables):
            raise UserError(f"{path} holds weights that are not finite: its run had failed; take an older checkpoint")


def save(path: Path, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
    """Writes a checkpoint so that `path` names the old or the new one, whole, at every instant.

    Raises:
        OSError: if there is no room, or another reason not to write; the old one stays.
    """
    members = {_JSON: json.dumps(record_to_plain(record), indent=1, allow_nan=False).encode(), **_bundle(variables)}
    part = path.with_name(f"{SAVING}{path.stem}")
    try:
        with part.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _sync(folder: Path) -> None:
    """Has the names in a folder written, so that a power cut does not bring an old file back."""
    with contextlib.suppress(OSError):  # some file systems have no such thing
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _bundle(variables: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    """Returns the files of a TensorFlow checkpoint by name; they are written to memory."""
    import tensorflow as tf  # late: records are read without

    names, folder = sorted(variables), f"ram://{uuid.uuid4()}"
    tf.raw_ops.SaveV2(
        prefix=f"{folder}/variables",
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[variables[n] for n in names],
    )
    files = {}
    for name in (_INDEX, _DATA):
        with tf.io.gfile.GFile(f"{folder}/{name}", "rb") as file:
            files[name] = file.read()
        tf.io.gfile.remove(f"{folder}/{name}")
    return files


def load(path: Path, named: Named = NOTHING) -> Checkpoint:
    """Reads a checkpoint, which may be anybody's: every size is checked before anything of that size is made.

    Raises:
        UserError: if there is none, or the file is cut off, damaged, or something else, or plays what only a user may name.
    """
    check_exists(path)
    with _opened(path) as archive:
        record = _record(archive, path, named)
        found = entries(_member(archive, _INDEX, MAX_INDEX))
        needed, most = least_parameters(record.scenario), SLOTS * most_parameters(record.scenario)
        if named.scenario:  # whose network may be another
            needed, most = 0, SLOTS * MAX_PARAMETERS
        numbers = sum(entry.numbers for entry in found.values())
        if not needed <= numbers <= most:
            raise ValueError(f"it has {numbers:,} numbers, and its network {needed:,} to {most:,}")
        variables = tensors(found, _member(archive, _DATA, 4 * numbers))
    return Checkpoint(variables, record)


def record_of(path: Path, named: Named = NOTHING) -> RunRecord:
    """Reads what a checkpoint says of its run, without TensorFlow; raises UserError as `load` does."""
    check_exists(path)
    with _opened(path) as archive:
        return _record(archive, path, named)


def label_of(path: Path) -> Label:
    """Reads which run a checkpoint is of; raises UserError if it does not tell."""
    with _opened(path) as archive:
        return _label(archive)


def is_whole(path: Path) -> bool:
    """Tells whether a checkpoint says which run it is of, and is undamaged to its end."""
    try:
        with _opened(path) as archive:
            _label(archive)
            return archive.testzip() is None
    except UserError:
        return False


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens an archive; raises UserError for whatever is damaged in it."""
    check_file(path)
    try:
        with path.open("rb") as file:  # once: a run may put a newer one in its place at any moment
            _check_directory(file)
            with zipfile.ZipFile(file) as archive:
                yield archive
    except _UNREADABLE as error:
        raise UserError(f"{path} is not a complete checkpoint of doom_a3c ({first_line(error)})") from None


def _check_directory(file: BinaryIO) -> None:
    """Raises ValueError unless an archive has a few members: zipfile reads its directory whole, however large that is."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _END.size))
    end = file.read()
    if len(end) < _END.size:
        raise ValueError("it is cut off")
    mark, *_, members, size, _, comment = _END.unpack(end)
    if mark != b"PK\5\6":
        raise ValueError("it is cut off, or another kind of file")
    if members > MAX_MEMBERS or size > MAX_DIRECTORY or comment:
        raise ValueError("its directory is too large")


def _label(archive: zipfile.ZipFile) -> Label:
    return label_from_plain(json.loads(_member(archive, _JSON, MAX_JSON)))


def _record(archive: zipfile.ZipFile, path: Path, named: Named) -> RunRecord:
    return record_from_plain(json.loads(_member(archive, _JSON, MAX_JSON)), str(path), named)


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Returns a file of the archive: it is stored as it is, so what it takes in memory it takes on disk."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.file_size > limit:
        raise ValueError(f"{name} is compressed, or too large")
    return archive.read(info)
