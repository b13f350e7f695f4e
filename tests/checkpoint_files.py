"""Splits, edits and joins checkpoint files by hand."""

import json


def split(path):
    """Returns a checkpoint's parsed header and the bytes after it."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def join(path, header, arrays=b""):
    """Writes a checkpoint from a header, parsed or as bytes, and the bytes after it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + arrays)


def record_in(path):
    """Returns a checkpoint's parsed record."""
    return json.loads(split(path)[0]["__metadata__"]["record"])


def replace_record(path, record):
    """Replaces a checkpoint's record with parsed data or text, and leaves its checksum unchanged."""
    header, arrays = split(path)
    header["__metadata__"]["record"] = record if isinstance(record, str) else json.dumps(record)
    join(path, header, arrays)
