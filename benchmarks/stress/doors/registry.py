"""All doors, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.stress.doors.commands import make_commands_door
from benchmarks.stress.doors.door import Door
from benchmarks.stress.doors.files import make_cfgs_door, make_checkpoints_door, make_records_door, make_tomls_door
from benchmarks.stress.doors.pushes import make_pushes_door

DOORS: Mapping[str, Callable[[Path], Door]] = {  # each made with its own folder
    "records": make_records_door,
    "tomls": make_tomls_door,
    "commands": make_commands_door,
    "pushes": make_pushes_door,
    "cfgs": make_cfgs_door,
    "checkpoints": make_checkpoints_door,
}
