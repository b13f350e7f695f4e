"""Finds recurrent cores by name."""

from __future__ import annotations

from doom_a3c.agent.cores import CORES, Core
from doom_a3c.settings.errors import UserError, suggest


def list_cores() -> dict[str, type[Core]]:
    """Returns all cores by name."""
    from doom_a3c.agent.optional_cores import OPTIONAL_CORES  # late: the default path does not need them

    return {**CORES, **OPTIONAL_CORES}


def find_core(name: str) -> type[Core]:
    """Returns the core with this name; raises UserError if there is none."""
    if core := (cores := list_cores()).get(name):
        return core
    known = " or ".join(map(repr, cores))
    raise UserError(f"[network] core must be {known}, not {name!r}{suggest(name, cores)}")
