"""All targets, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.stress.targets.commands import make_commands_target
from benchmarks.stress.targets.files import (
    make_cfgs_target,
    make_checkpoints_target,
    make_records_target,
    make_tomls_target,
)
from benchmarks.stress.targets.pushes import make_pushes_target
from benchmarks.stress.targets.target import Target

TARGETS: Mapping[str, Callable[[Path], Target]] = {  # each made with its own folder
    "records": make_records_target,
    "tomls": make_tomls_target,
    "commands": make_commands_target,
    "pushes": make_pushes_target,
    "cfgs": make_cfgs_target,
    "checkpoints": make_checkpoints_target,
}
