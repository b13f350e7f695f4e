"""Checkpoints taken apart and put together again, by hand."""

import json


def split(path):
    """Returns the header of a checkpoint, as data, and the bytes after it."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def join(path, header, arrays=b""):
    """Writes a checkpoint of a header, as data or as bytes, and the bytes after it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + arrays)


def record_in(path):
    """Returns the record in a checkpoint, as data."""
    return json.loads(split(path)[0]["__metadata__"]["record"])


def replace_record(path, record):
    """Puts a record, as data or as text, into a checkpoint whose checksum stays."""
    header, arrays = split(path)
    header["__metadata__"]["record"] = record if isinstance(record, str) else json.dumps(record)
    join(path, header, arrays)
