"""WAD files made for tests."""

import struct

MAP = ("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS")  # what a map is made of


def wad(*lumps, kind=b"PWAD", size=1):
    """Returns a WAD file of such lumps, each of so many bytes but for the first, as that names a map."""
    lengths = [0, *[size] * (len(lumps) - 1)] if lumps else []
    places = [12 + sum(lengths[:index]) for index in range(len(lumps))]
    entries = zip(places, lengths, lumps, strict=True)
    directory = b"".join(struct.pack("<II8s", place, length, lump.encode()) for place, length, lump in entries)
    return struct.pack("<4sII", kind, len(lumps), 12 + sum(lengths)) + bytes(sum(lengths)) + directory
