"""All doors, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.stress.doors.commands import commands
from benchmarks.stress.doors.door import Door
from benchmarks.stress.doors.files import cfgs, checkpoints, records, tomls
from benchmarks.stress.doors.pushes import pushes

DOORS: Mapping[str, Callable[[Path], Door]] = {  # each is made with a folder of its own
    "records": records,
    "tomls": tomls,
    "commands": commands,
    "pushes": pushes,
    "cfgs": cfgs,
    "checkpoints": checkpoints,
}
