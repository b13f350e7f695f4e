"""The parts of a target: good inputs, a way to mutate them, and a function that reads one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.stress.targets.mutations import Mutator
from doom_a3c.settings.errors import UserError


class Target(NamedTuple):
    """One way in."""

    seeds: list[bytes]  # good inputs
    take: Callable[[bytes], bool]  # reads an input; returns whether it is accepted; a refusal is no error
    mutate: Callable[[Mutator, bytes], bytes]
    words: tuple[str, ...] = ()  # known to its reader
    once: Callable[[], Iterable[bytes]] = tuple  # hostile inputs that are too slow to repeat
    named_by_user: bool = False  # the input says where to write


def make_take(take: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Wraps a reader to return whether it accepts an input; a UserError is a refusal."""

    def taken(data: Any) -> bool:
        try:
            take(data)
        except UserError:
            return False
        return True

    return taken
