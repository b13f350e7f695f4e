"""Nested dictionaries and tuples of arrays: observations, core states, weights by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Observation = NDArray[Any] | dict[str, NDArray[Any]]  # pixels, numbers, or both by name; of one game or of several


def map_nested(call: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Returns nested dictionaries and tuples with `call` applied to the leaves at the same places of all arguments."""
    if isinstance(first, dict):
        return {key: map_nested(call, part, *(other[key] for other in others)) for key, part in first.items()}
    if isinstance(first, tuple):
        return tuple(map_nested(call, *parts) for parts in zip(first, *others, strict=True))
    return call(first, *others)


def all_finite(variables: Mapping[str, NDArray[Any]]) -> bool:
    """Returns whether all numbers are finite, and small enough for finite sums of their products."""
    return all((np.abs(value) <= 1e30).all() for value in variables.values())
