"""WAD files made for tests."""

import struct
import zipfile

MAP = ("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS")  # the lumps of a map


def wad(*lumps, kind=b"PWAD", size=1):
    """Returns a WAD file of lumps with these names: an empty first one, as it names a map, and others of `size` bytes."""
    return wad_of(*((name, bytes(size) if index else b"") for index, name in enumerate(lumps)), kind=kind)


def wad_of(*lumps, kind=b"PWAD"):
    """Returns a WAD file of lumps, each given by name and content."""
    places = [12 + sum(len(data) for _, data in lumps[:index]) for index in range(len(lumps))]
    entries = zip(places, lumps, strict=True)
    directory = b"".join(struct.pack("<II8s", place, len(data), name.encode()) for place, (name, data) in entries)
    data = b"".join(data for _, data in lumps)
    return struct.pack("<4sII", kind, len(lumps), 12 + len(data)) + data + directory


def things(*types, hexen=False):
    """Returns a THINGS lump with things of these types."""
    pack = [
        struct.pack("<5hHHB5B", 0, 0, 0, 0, 0, kind, 7, 0, *bytes(5)) if hexen else struct.pack("<3hHH", 0, 0, 0, kind, 7)
        for kind in types
    ]
    return b"".join(pack)


def binary_map(name, *types, hexen=False):
    """Returns the lumps of a map in Doom's or Hexen's format, with things of these types but no room."""
    rest = [*MAP[1:], *["BEHAVIOR"] * hexen]
    return [(name, b""), ("THINGS", things(*types, hexen=hexen)), *((lump, b"x") for lump in rest)]


SIDE = 256.0
ROOM = "".join(
    (
        *(f"vertex {{ x = {x}; y = {y}; }}\n" for x, y in ((-SIDE, -SIDE), (-SIDE, SIDE), (SIDE, SIDE), (SIDE, -SIDE))),
        *(f"linedef {{ v1 = {v}; v2 = {(v + 1) % 4}; sidefront = {v}; blocking = true; }}\n" for v in range(4)),
        *['sidedef { sector = 0; texturemiddle = "STARTAN2"; }\n'] * 4,
        'sector { heightceiling = 128; texturefloor = "FLOOR0_1"; textureceiling = "CEIL1_1"; lightlevel = 192; }\n',
    )
)


def text_map(name, *types):
    """Returns the lumps of a text map that the engine can play: a square room with things of these types."""
    flags = " ".join(f"{flag} = true;" for flag in (*(f"skill{level}" for level in range(1, 6)), "single", "class1"))
    placed = "".join(
        f"thing {{ x = {40.0 * place}; y = 0.0; type = {kind}; {flags} }}\n" for place, kind in enumerate(types)
    )
    return [(name, b""), ("TEXTMAP", f'namespace = "zdoom";\n{placed}{ROOM}'.encode()), ("ENDMAP", b"")]


def archive(path, files):
    """Writes a zip archive of files by name; returns its path."""
    with zipfile.ZipFile(path, "w") as target:
        for name, data in files.items():
            target.writestr(name, data)
    return path
