"""Converts the agent's actions to those of a Gymnasium environment: choices, numbers, and tuples and dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.spaces.utils import flatdim
from numpy.typing import NDArray

from doom_a3c.envs.flattening import NUMERIC, name_key
from doom_a3c.settings.actions import MixedBox, list_choice_sizes, read_choice, shorten
from doom_a3c.settings.errors import UserError

_MAX_OUTPUTS = 1_000_000  # choices and numbers of a part: each has a name
_SIZES_SHOWN = 8
_TAKEN = "Discrete, MultiDiscrete, MultiBinary, Box, and Tuple and Dict of them"


class ActionAdapter(NamedTuple):
    """The actions of the agent for an environment."""

    space: Space[Any]  # Discrete, MultiDiscrete, Box(-1, 1, (D,)) or MixedBox
    convert: Callable[[Any], Any]  # from such an action to the environment's
    names: Sequence[str] | None  # of each choice and number; None for a single choice
    words: str  # such as '3 actions' or '2 numbers'


class _Part(NamedTuple):
    """A space without parts: either choices or numbers."""

    sizes: tuple[int, ...]  # of the choices
    numbers: int
    convert: Callable[[NDArray[Any]], Any]  # from the choices or the numbers
    names: list[str]


def adapt_actions(name: str, space: Space[Any]) -> ActionAdapter:
    """Returns the actions of the agent for the action space of the environment `name`.

    Choices start at 0. Numbers are in [-1, 1], and are clipped to it before they are scaled to the environment's bounds.

    Raises:
        UserError: if the agent cannot take such actions.
    """
    if isinstance(space, Discrete):  # whose first action need not be 0
        _check_count(f"{name}: its actions are", space)
        start, count = int(space.start), int(space.n)
        words = f"{count} action{'s' * (count != 1)}"
        return ActionAdapter(Discrete(count), lambda action: _read_index(name, count, action) + start, None, words)
    parts: list[_Part] = []
    build = _collect(name, space, "", parts)
    sizes = tuple(size for part in parts for size in part.sizes)
    numbers = sum(part.numbers for part in parts)
    if not sizes and not numbers:
        raise UserError(f"{name}: its action space {space} is empty: there is nothing to decide")
    choice_ends = np.cumsum([len(part.sizes) for part in parts])
    number_ends = np.cumsum([part.numbers for part in parts]) + len(sizes)
    adapted, words = _make_space(sizes, numbers), _describe(sizes, numbers)
    highest = np.array(sizes) - 1

    def convert(action: Any) -> Any:
        array = np.asarray(action)
        if array.shape != adapted.shape or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise UserError(f"{name}: the action {shorten(action)} is not finite numbers of shape {adapted.shape}: {words}")
        chosen = array[: len(sizes)]
        if not ((chosen >= 0) & (chosen <= highest) & (chosen % 1 == 0)).all():
            raise UserError(f"{name}: the action {shorten(action)} is none of {words}, whole numbers from 0")
        values = []
        for part, choice_end, number_end in zip(parts, choice_ends, number_ends, strict=True):
            end, count = (choice_end, len(part.sizes)) if part.sizes else (number_end, part.numbers)
            values.append(part.convert(array[end - count : end]))
        return build(iter(values))

    names = [each for part in parts if part.sizes for each in part.names]
    names += [each for part in parts if part.numbers for each in part.names]
    return ActionAdapter(adapted, convert, names, words)


def _read_index(name: str, count: int, action: Any) -> int:
    """Returns the index of one of `count` actions. Raises UserError if there is none."""
    try:
        return read_choice(action, count)
    except ValueError:
        raise UserError(f"{name}: the action {shorten(action)} is none of 0 to {count - 1}") from None


def _make_space(sizes: tuple[int, ...], numbers: int) -> MultiDiscrete | Box:
    if not numbers:
        return MultiDiscrete(np.array(sizes))
    return MixedBox(sizes, numbers) if sizes else Box(-1, 1, (numbers,), np.float32)


def _describe(sizes: tuple[int, ...], numbers: int) -> str:
    shown = [*map(str, sizes[:_SIZES_SHOWN]), *["..."] * (len(sizes) > _SIZES_SHOWN)]
    words = [f"{len(sizes)} choice{'s' * (len(sizes) != 1)} of {', '.join(shown)}"] if sizes else []
    words += [f"{numbers} number{'s' * (numbers != 1)}"] if numbers else []
    return " and ".join(words)


def _collect(name: str, space: Space[Any], path: str, parts: list[_Part]) -> Callable[[Any], Any]:
    """Adds the parts of a space in the order of Gymnasium's `flatten`; returns how to build an action from their values."""
    if isinstance(space, Dict):
        fields = {
            key: _collect(name, part, f"{path}.{name_key(key)}".lstrip("."), parts) for key, part in space.spaces.items()
        }
        return lambda values: {key: build(values) for key, build in fields.items()}
    if isinstance(space, Tuple):
        items = [_collect(name, part, f"{path}[{index}]", parts) for index, part in enumerate(space.spaces)]
        return lambda values: tuple(build(values) for build in items)
    parts.append(_make_part(f"{name}: its action {path} is" if path else f"{name}: its actions are", space, path))
    return next


def _check_count(subject: str, space: Space[Any]) -> None:
    """Raises UserError if a part has too many choices or numbers, before memory is allocated for each."""
    if isinstance(space, NUMERIC) and (count := flatdim(space)) > _MAX_OUTPUTS:
        raise UserError(f"{subject} {shorten(space)}: {count:,} choices or numbers, {_MAX_OUTPUTS:,} at most")


def _make_part(subject: str, space: Space[Any], path: str) -> _Part:
    """Returns a part; `subject` begins the message of an error."""
    _check_count(subject, space)
    match space:
        case Discrete():
            return _make_choices(space, path, lambda values: int(values[0]))
        case MultiDiscrete() | MultiBinary():
            return _make_choices(space, path, lambda values: values.reshape(space.shape).astype(space.dtype))
        case Box():
            return _make_numbers(subject, space, path)
    raise UserError(f"{subject} {shorten(space)}; the agent takes {_TAKEN}")


def _make_choices(space: Space[Any], path: str, convert: Callable[[NDArray[Any]], Any]) -> _Part:
    """Returns the choices of a space; `convert` turns their values into the environment's action."""
    sizes = list_choice_sizes(space)
    starts = np.ravel(getattr(space, "start", [0] * len(sizes))).astype(np.int64)
    limits = [range(start, start + size) for start, size in zip(starts.tolist(), sizes, strict=True)]
    places = [f"{path}[{index}]" if len(sizes) > 1 or not path else path for index in range(len(sizes))]
    names = [f"{place}={value}" for place, limit in zip(places, limits, strict=True) for value in limit]
    return _Part(tuple(sizes), 0, lambda chosen: convert(starts + chosen.astype(np.int64)), names)


def _make_numbers(subject: str, space: Box, path: str) -> _Part:
    """Returns the numbers of a Box. Raises UserError if they have no bounds."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise UserError(
            f"{subject} {shorten(space)}, without finite bounds: declare the range that is useful, as in Box(-1, 1, (2,))"
        )
    if (low > high).any():
        raise UserError(f"{subject} {shorten(space)}, with a lower bound above the upper one")

    def convert(numbers: NDArray[Any]) -> NDArray[Any]:
        shares = (np.clip(numbers.reshape(space.shape).astype(np.float64), -1, 1) + 1) / 2
        scaled = low * (1 - shares) + high * shares  # the width, high - low, may overflow
        if space.dtype.kind == "f":
            return np.clip(scaled, low, high).astype(space.dtype)
        rounded = np.rint(scaled)
        with np.errstate(invalid="ignore"):  # the highest 64-bit integers have no exact float
            return np.where(rounded >= high, space.high, np.maximum(rounded, low).astype(space.dtype))

    count = int(np.prod(space.shape))
    names = [path] if count == 1 and path else [f"{path}[{index}]" for index in range(count)]
    return _Part((), count, convert, names)
