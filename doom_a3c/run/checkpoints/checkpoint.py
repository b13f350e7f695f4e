"""Checkpoints: one file with weights, optimizer slots, counters and all settings; reading it runs no code.

A `.ckpt` is a safetensors file: the length of a JSON header (8 bytes, little-endian), the header, and the bytes of the
arrays. The header's metadata holds the run's record, itself JSON, with a checksum; it is read without the arrays.
A checkpoint is written beside its name, synced and renamed, so its name never stands for half a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from doom_a3c.record.files import check_exists
from doom_a3c.run.checkpoints.run_record import RunLabel, RunRecord, label_from_plain, record_from_plain, record_to_plain
from doom_a3c.settings.checks import MAX_PARAMETERS
from doom_a3c.settings.errors import UserError, first_line
from doom_a3c.settings.games import DoomSpec, GymnasiumSpec
from doom_a3c.settings.inputs import check_file
from doom_a3c.settings.scenarios import least_parameters, most_parameters
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride

MAX_HEADER, MAX_ARRAYS = 4 * 2**20, 10_000  # bytes, and a hundred times the arrays of any network
SLOTS = 3  # largest count of numbers per parameter: its value and two optimizer slots
SAVING = ".saving-"  # prefix of a file that is being written
_LENGTH = 8  # bytes of the header's length
_RECORD = "record"  # the only key of the metadata: safetensors writes several in any order
_CHECKSUM = "crc32"  # the last key of the record
_BYTES = {"F32": 4, "F16": 2}  # per number, of the types that are read
_ZIP = b"PK\3\4"  # begins a checkpoint of the development versions before safetensors
_UNREADABLE = (SafetensorError, KeyError, ValueError, RecursionError, OSError)  # raised on damaged files


def all_finite(variables: Mapping[str, NDArray[Any]]) -> bool:
    """Returns whether all numbers are finite, and small enough for finite sums of their products."""
    return all((np.abs(value) <= 1e30).all() for value in variables.values())


class Checkpoint(NamedTuple):
    """The content of a checkpoint file."""

    variables: dict[str, NDArray[Any]]  # by name; names with a slot suffix are the optimizer's
    record: RunRecord

    def check_finite(self, path: Path) -> None:
        """Raises UserError, naming the file, if a number is not finite."""
        if not all_finite(self.variables):
            raise UserError(f"{path} holds weights that are not finite: its run had failed; take an older checkpoint")


class _Header(NamedTuple):
    record: Any  # untrusted plain data
    checksum: object
    numbers: int  # in all arrays
    end: int  # of the file, bytes


def save(path: Path, variables: Mapping[str, NDArray[Any]], record: RunRecord) -> None:
    """Writes a checkpoint atomically: at every instant `path` is the complete old file or the complete new one.

    Raises:
        OSError: if it cannot be written; the old file stays.
    """
    plain = record_to_plain(record)
    arrays = {name: np.asarray(value, order="C") for name, value in variables.items()}  # safetensors takes raw memory
    text = _dump_json({**plain, _CHECKSUM: _compute_checksum(plain, arrays)})
    content = safetensors.numpy.save(arrays, {_RECORD: text})
    part = path.with_name(f"{SAVING}{path.stem}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _sync(folder: Path) -> None:
    """Syncs a folder's entries to disk, so that a power failure does not bring back an old file."""
    with contextlib.suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def load(path: Path, override: GameOverride = NO_OVERRIDE) -> Checkpoint:
    """Reads a checkpoint, which may be untrusted: every size is checked before memory of that size is allocated.

    Raises:
        UserError: if the file is missing, truncated, damaged or of another kind, or if its game needs the user's consent.
    """
    check_exists(path)
    with _open(path) as file:
        header = _read_header(file)
        record = record_from_plain(header.record, str(path), override)
        needed, most = least_parameters(record.scenario), SLOTS * most_parameters(record.scenario)
        if override.scenario:  # its network may differ
            needed = 0
        game = record.scenario.game
        is_open = isinstance(game, GymnasiumSpec) or (isinstance(game, DoomSpec) and game.has_heads)
        if override.scenario or is_open:  # its observations and actions may have any size
            most = SLOTS * MAX_PARAMETERS
        if not needed <= header.numbers <= most:
            raise ValueError(f"it has {header.numbers:,} numbers, and its network {needed:,} to {most:,}")
        return Checkpoint(_read_arrays(file, header), record)


def read_record(path: Path, override: GameOverride = NO_OVERRIDE) -> RunRecord:
    """Reads the run record of a checkpoint, without the arrays; raises UserError as `load` does."""
    check_exists(path)
    with _open(path) as file:
        return record_from_plain(_read_header(file).record, str(path), override)


def read_label(path: Path) -> RunLabel:
    """Reads the label of a checkpoint's run; raises UserError if there is none."""
    with _open(path) as file:
        return label_from_plain(_read_header(file).record)


def is_whole(path: Path) -> bool:
    """Returns whether a checkpoint is complete and undamaged."""
    try:
        with _open(path) as file:
            header = _read_header(file)
            label_from_plain(header.record)
            _read_arrays(file, header)
    except UserError:
        return False
    return True


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BufferedReader]:
    """Opens a checkpoint; errors from damaged contents inside the block become UserErrors."""
    check_file(path)
    try:
        with path.open("rb") as file:  # only once: a run may replace the file at any moment
            if file.peek(len(_ZIP)).startswith(_ZIP):
                raise UserError(
                    f"{path} is a zip archive, a checkpoint of an earlier development version, which cannot be read: "
                    "train the model again"
                )
            yield file
    except _UNREADABLE as error:
        raise UserError(f"{path} is not a complete checkpoint of doom_a3c ({first_line(error)})") from None


def _read_header(file: BufferedReader) -> _Header:
    """Reads the header; raises ValueError if it is damaged, or larger than that of any valid checkpoint."""
    start = file.read(_LENGTH)
    length = int.from_bytes(start, "little")
    if len(start) < _LENGTH or length > MAX_HEADER:
        raise ValueError("it is cut off, or another kind of file")
    header = file.read(length)
    if len(header) < length:
        raise ValueError("it is cut off")
    try:
        arrays = json.loads(header)
        metadata = arrays.pop("__metadata__", {})
        sizes = [_measure_array(name, array["dtype"], *array["data_offsets"]) for name, array in arrays.items()]
        text = metadata.get(_RECORD)
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("its header is damaged") from None
    if not isinstance(text, str):
        raise ValueError("it is another safetensors file: it has no record of a run")
    numbers, size = sum(number for number, _ in sizes), sum(size for _, size in sizes)
    if len(sizes) > MAX_ARRAYS or numbers > SLOTS * MAX_PARAMETERS:
        raise ValueError(f"it has {len(sizes):,} arrays of {numbers:,} numbers, more than any network")
    end, there = _LENGTH + length + size, os.fstat(file.fileno()).st_size
    if there != end:
        raise ValueError("it is cut off" if there < end else "it is longer than its header says")
    record = json.loads(text)
    checksum = record.pop(_CHECKSUM, None) if isinstance(record, dict) else None
    return _Header(record, checksum, numbers, end)


def _measure_array(name: str, dtype: object, start: object, end: object) -> tuple[int, int]:
    """Returns the numbers and bytes of an array; safetensors later checks its shape and offsets against them."""
    if not isinstance(dtype, str) or dtype not in _BYTES:
        raise ValueError(f"array {name[:100]!r} is of type {dtype!r}, not {' or '.join(_BYTES)}")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        raise ValueError(f"array {name[:100]!r} has invalid offsets")
    return (end - start) // _BYTES[dtype], end - start


def _read_arrays(file: BufferedReader, header: _Header) -> dict[str, NDArray[Any]]:
    """Reads the arrays as float32; raises one of `_UNREADABLE` if they are damaged or contradict the header."""
    file.seek(0)
    arrays = safetensors.numpy.load(file.read(header.end))
    if _compute_checksum(header.record, arrays) != header.checksum:
        raise ValueError("its checksum is wrong: it is damaged")
    return {name: array.astype("<f4", copy=False) for name, array in arrays.items()}


def _compute_checksum(record: object, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Returns a checksum of record, names, shapes and numbers, which safetensors lacks."""
    value = zlib.crc32(_dump_json(record).encode())
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(array.data, zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value))
    return f"{value:08x}"


def _dump_json(record: object) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False)
