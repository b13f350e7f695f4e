"""What games hand to agents: observations, and keys of `info`; all other keys are ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Observation = NDArray[Any] | dict[str, NDArray[Any]]  # pixels, numbers, or a dict of `pixels`, `variables`, `mask`

LIFE_LOST = "doom_a3c.life_lost"  # bool: terminal for learning, although the episode continues
CUT_SHORT = "doom_a3c.cut_short"  # bool: ended by a fault, so the episode has no score
SHAPING = "doom_a3c.shaping"  # extra reward for learning, absent if 0
RIVALS = "doom_a3c.rivals"  # list of the other players' frags, at the end of a match
PORT = "doom_a3c.port"  # an option of resets: where the engines of a match meet
FAULTS = "doom_a3c.faults"  # list of fault kinds since the previous step


def map_nested(call: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Returns nested dictionaries and tuples with `call` applied to the leaves at the same places of all arguments."""
    if isinstance(first, dict):
        return {key: map_nested(call, part, *(other[key] for other in others)) for key, part in first.items()}
    if isinstance(first, tuple):
        return tuple(map_nested(call, *parts) for parts in zip(first, *others, strict=True))
    return call(first, *others)
