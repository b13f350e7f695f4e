"""TensorFlow's checkpoint format (a "tensor bundle"), read in memory and by Python alone.

TensorFlow's own reader takes a path, trusts sizes, and ends the process where an entry is malformed; a checkpoint may be
anybody's. The index is a LevelDB table (footer, index block, blocks of entries whose keys share prefixes) of a
`BundleEntryProto` for each tensor, which says where in the data its bytes are. Format:
tensorflow/core/util/tensor_bundle/tensor_bundle.h and leveldb's doc/table_format.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER = 48  # bytes: two handles, padding, the magic number
_TRAILER = 5  # bytes after a block: its compression and checksum (zip files have a checksum of their own)
_TYPES = {1: "<f4", 19: "<f2"}  # float32 and float16, by their numbers in TensorFlow
_HEADER = b""  # the key of the bundle's own entry, the first
MAX_TENSORS = 10_000


class Entry(NamedTuple):
    """Where a tensor's bytes are."""

    shape: tuple[int, ...]
    type: str
    offset: int
    size: int  # bytes

    @property
    def numbers(self) -> int:
        """How many there are."""
        return math.prod(self.shape)


def entries(index: bytes) -> dict[str, Entry]:
    """Returns the tensors of float32 and float16 that an index lists, by name.

    Raises:
        ValueError: if it is no index of such tensors.
    """
    if len(index) < _FOOTER or not index.endswith(_MAGIC):
        raise ValueError("no index of a checkpoint")
    _, place = _handle(index, len(index) - _FOOTER)
    blocks, _ = _handle(index, place)
    found: dict[str, Entry] = {}
    end = rows = 0
    for _, handle in _rows(_block(index, *blocks)):
        (offset, size), _ = _handle(handle, 0)
        if offset < end:  # blocks that are read again and again would take for ever
            raise ValueError("the index repeats itself")
        end = offset + size + _TRAILER
        for key, value in _rows(_block(index, offset, size)):
            rows += 1
            if rows > MAX_TENSORS:
                raise ValueError("too many tensors")
            if key != _HEADER:
                found[key.decode()] = _entry(value)
    return found


def tensors(found: dict[str, Entry], data: bytes) -> dict[str, NDArray[Any]]:
    """Returns the tensors whose bytes `data` holds, one after the other and nothing else, as float32.

    Raises:
        ValueError: if it holds more or less.
    """
    end = 0
    for entry in sorted(found.values(), key=lambda entry: (entry.offset, entry.size)):
        if entry.offset != end:
            raise ValueError("the data is not that of the index")
        end += entry.size
    if end != len(data):
        raise ValueError("the data is not that of the index")
    return {
        name: np.frombuffer(data, entry.type, entry.numbers, entry.offset).reshape(entry.shape).astype("<f4", copy=False)
        for name, entry in found.items()
    }


def _entry(value: bytes) -> Entry:
    from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto  # late: it imports all of TensorFlow

    try:
        entry = BundleEntryProto.FromString(value)
    except DecodeError as error:
        raise ValueError(f"an entry is damaged: {error}") from None
    shape = tuple(dimension.size for dimension in entry.shape.dim)
    kind = _TYPES.get(entry.dtype)
    if kind is None or entry.shard_id or entry.slices or entry.shape.unknown_rank:
        raise ValueError("an entry is no tensor of float32 or float16")
    whole = len(shape) <= 8 and all(0 <= side < 2**40 for side in shape)
    if not whole or np.dtype(kind).itemsize * math.prod(shape) != entry.size:
        raise ValueError("an entry is no whole tensor")
    return Entry(shape, kind, entry.offset, entry.size)


def _block(index: bytes, offset: int, size: int) -> bytes:
    if offset + size + _TRAILER > len(index) or index[offset + size]:
        raise ValueError("a block of the index is cut off, or compressed")
    return index[offset : offset + size]


def _rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a block; each key says how much it shares with the one before it."""
    (restarts,) = struct.unpack("<I", block[-4:]) if len(block) >= 4 else (2**32,)
    end, place, key = len(block) - 4 * (restarts + 1), 0, b""
    if end < 0:
        raise ValueError("a block of the index is damaged")
    while place < end:
        shared, place = _varint(block, place)
        own, place = _varint(block, place)
        size, place = _varint(block, place)
        if shared > len(key) or place + own + size > end:
            raise ValueError("a block of the index is damaged")
        key = key[:shared] + block[place : place + own]
        if len(key) > 1000:
            raise ValueError("a name is too long")
        place += own
        yield key, block[place : place + size]
        place += size


def _handle(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Returns offset and size of a block, and the place after them."""
    offset, place = _varint(data, place)
    size, place = _varint(data, place)
    return (offset, size), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns a number of 64 bits at most, and the place after it."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    raise ValueError("the index is damaged")
