#!/usr/bin/env python3
"""Refuses large binaries that `.ci/binaries` does not list: each version of one stays in every clone for ever.

`.ci/binaries.py --update` lists the files as they are now. The list has the format of sha256sum.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

LIST = Path(".ci/binaries")
LIMIT = 300_000  # bytes
PROBE = 8000  # bytes in which a NUL makes a file binary, as git decides it


def find_large_binaries() -> dict[str, str]:
    """Returns the SHA-256 of every large binary that is committed or about to be, by path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    found = {}
    for path in map(Path, filter(None, names)):
        if path.is_file() and path.stat().st_size > LIMIT and b"\0" in (data := path.read_bytes())[:PROBE]:
            found[str(path)] = hashlib.sha256(data).hexdigest()
    return dict(sorted(found.items()))


def read_list() -> dict[str, str]:
    """Returns the listed SHA-256 sums by path."""
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def main() -> int:
    """Checks or updates the list; returns the exit status."""
    found = find_large_binaries()
    if "--update" in sys.argv:
        LIST.write_text("".join(f"{digest}  {path}\n" for path, digest in found.items()))
        return 0
    listed = read_list()
    problems = [
        f"{path} {'has changed' if path in listed else 'is new'} and exceeds {LIMIT // 1000} kB: make it smaller"
        for path, digest in found.items()
        if listed.get(path) != digest
    ]
    problems += [f"{LIST} lists {path}, which is no large binary any more" for path in listed.keys() - found.keys()]
    for problem in sorted(problems):
        print(f"{problem}, or run .ci/binaries.py --update", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
