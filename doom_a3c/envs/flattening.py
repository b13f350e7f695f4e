"""The parts of a user's observation space: finds each in an observation, checks it and turns it into numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.spaces.utils import flatdim, flatten
from numpy.typing import NDArray

from doom_a3c.settings.actions import shorten
from doom_a3c.settings.errors import UserError

NUMERIC = (Box, Discrete, MultiDiscrete, MultiBinary)  # parts of all other spaces, such as texts, are left out
Array = NDArray[Any]
Steps = tuple[tuple[Any, Any], ...]  # Dict or Tuple spaces, and their keys, on the way to a part, outermost first


class Label(NamedTuple):
    """Names the numbers of a part, or of a one-hot code."""

    name: str
    shape: tuple[int, ...]  # of the numbers
    values: range | None = None  # the values that a one-hot code stands for

    def list_names(self) -> list[str]:
        """Returns a name for each number: 'speed', 'position[0]', 'map[3,4]'; 'heading=2' in a one-hot code."""
        if self.values is not None:
            return [f"{self.name}={value}" for value in self.values]
        indices = (",".join(map(str, index)) for index in np.ndindex(self.shape))
        return [f"{self.name}[{index}]" if index else self.name for index in indices]


def name_numbers(labels: Sequence[Label], numbers: NDArray[np.float32]) -> list[tuple[str, float]]:
    """Returns names and values of an observation's numbers, [V]; a one-hot code is given as the value it stands for."""
    named: list[tuple[str, float]] = []
    start = 0
    for label in labels:
        names = label.list_names()
        part = numbers[start : start + len(names)].tolist()
        start += len(names)
        if label.values is None:
            named += zip(names, part, strict=True)
        else:
            named.append((label.name, label.values[int(np.argmax(part))]))
    return named


class Part:
    """A part of a game's observation space that has no parts itself."""

    def __init__(self, game: str, space: Any, steps: Steps = ()) -> None:
        self.space = space
        self._game, self._steps = game, steps
        self._shape: tuple[int, ...] = getattr(space, "shape", None) or ()
        self._low, self._high = _find_limits(space)

    @property
    def key(self) -> str:
        """Its place in an observation, as in Python: "['arm'][0]"; '' for the whole observation."""
        return _format_keys(self._steps)

    @property
    def name(self) -> str:
        """Its name for people: 'arm.speed', 'arm[0]'; 'observation' for the whole observation."""
        names = [name_key(key) if isinstance(space, Dict) else f"[{key}]" for space, key in self._steps]
        return ".".join(names).replace(".[", "[") or "observation"

    def count_numbers(self) -> int:
        """Returns how many numbers the part becomes."""
        return flatdim(self.space)

    def make_labels(self) -> list[Label]:
        """Returns the labels of its numbers, in order."""
        if not isinstance(self.space, Discrete | MultiDiscrete):
            name = self.name if self._steps or not self._shape else ""  # a single vector needs no name
            return [Label(name, self._shape)]
        names = Label(self.name, self._shape).list_names()
        limits = zip(names, np.ravel(self._low).tolist(), np.ravel(self._high).tolist(), strict=True)
        return [Label(name, (), range(low, high + 1)) for name, low, high in limits]

    def flatten(self, observation: Any) -> Array:
        """Returns this part of an observation in one dimension: numbers unchanged, discrete values as one-hot codes.

        Raises:
            UserError: if it does not match the declared space.
        """
        array = self.read(observation)
        if isinstance(self.space, Box):  # Gymnasium's `flatten` would convert it to the declared type
            return array.ravel()
        with np.errstate(invalid="ignore"):
            values = array.astype(np.int64)
        if not ((values == array) & (values >= self._low) & (values <= self._high)).all():
            raise self.refuse(describe(array), "return values that the space contains")
        return np.asarray(flatten(self.space, values))

    def read(self, observation: Any) -> Array:
        """Returns this part of an observation as an array; the game may return a list, or lazy frames.

        Raises:
            UserError: unless it is numbers in the declared shape.
        """
        value = self._find(observation)
        received = f"of type {type(value).__name__}"
        try:
            array = np.asarray(value)
            if array.dtype.hasobject:
                array = np.asarray(array.tolist())  # its elements may be numbers
        except (TypeError, ValueError):  # rows of unequal length, say
            array = np.empty(0, np.object_)
        if array.dtype.kind not in "biuf":
            received = f"{value.dtype} of shape {array.shape}" if isinstance(value, np.ndarray) else received
            raise self.refuse(received, "return an array of numbers" if self._shape else "return a number")
        if array.shape == self._shape:
            return array
        axes = array.ndim == 3 and sorted(array.shape) == sorted(self._shape)
        cure = f"return the declared {'order of axes, as np.moveaxis does' if axes else 'shape'}"
        raise self.refuse(describe(array), f"{cure}, or declare the returned one")

    def _find(self, observation: Any) -> Any:
        """Returns this part of an observation; raises UserError if there is none."""
        for depth, (space, key) in enumerate(self._steps):
            if problem := _check_container(space, key, observation):
                raise _make_refusal(self._game, self._steps[:depth], space, *problem)
            observation = observation[key]
        return observation

    def refuse(self, received: str, cure: str) -> UserError:
        """Returns the error for a value that does not match the space."""
        return _make_refusal(self._game, self._steps, self.space, received, cure)


def list_parts(game: str, space: Any, steps: Steps = ()) -> Iterator[Part]:
    """Yields the parts of an observation space, in the order in which Gymnasium flattens them."""
    if isinstance(space, Dict | Tuple):
        for key, inner in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
            yield from list_parts(game, inner, (*steps, (space, key)))
    else:
        yield Part(game, space, steps)


def list_left_out(space: Any) -> list[str]:
    """Returns the parts of an observation space that the agent does not see, such as 'mission (Text)'."""
    parts = (part for part in list_parts("", space) if not isinstance(part.space, NUMERIC))
    return [f"{part.name} ({_name_kind(part.space)})" for part in parts]


def name_key(key: object) -> str:
    """Returns a key of a Dict space in one printable line: films and tables cannot show others."""
    return text if (text := str(key)).isprintable() else ascii(text)[1:-1]


def describe(array: Array) -> str:
    """Returns the value of a number, or the dtype, shape and range of an array."""
    if array.shape == ():
        return str(array)
    limits = f", {float(array.min()):.4g} to {float(array.max()):.4g}" if array.size else ""
    return f"{array.dtype} of shape {array.shape}{limits}"


def _name_kind(space: Any) -> str:
    """Returns the name of a space's class, or Text for any space of texts."""
    return "Text" if getattr(getattr(space, "dtype", None), "kind", "") == "U" else type(space).__name__


def _find_limits(space: Any) -> tuple[Any, Any]:
    """Returns the least and the largest value of each element of a discrete space; (0, 1) for other spaces."""
    if isinstance(space, Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def _check_container(space: Any, key: Any, observation: Any) -> tuple[str, str] | None:
    """Returns why an observation has no part `key` of a Dict or Tuple space, and the cure; None if it has one."""
    kind = f"of type {type(observation).__name__}"
    if isinstance(space, Dict):
        if not isinstance(observation, Mapping):
            return kind, "return a dict"
        return None if key in observation else (f"a dict without {key!r}", "return all declared keys")
    if not isinstance(observation, tuple | list) and np.ndim(observation) == 0:
        return kind, "return a tuple"
    count = len(space.spaces)
    return None if len(observation) == count else (f"{kind} and length {len(observation)}", f"return {count} values")


def _format_keys(steps: Steps) -> str:
    return "".join(f"[{key!r}]" for _, key in steps)


def _make_refusal(game: str, steps: Steps, space: Any, received: str, cure: str) -> UserError:
    key = _format_keys(steps)
    return UserError(
        f"{game}: its observation_space{key} is {shorten(space)}, but an observation{key} is {received}: {cure}"
    )
