"""Converts observations of Gymnasium environments for the agent: supported spaces, and a check of every observation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from doom_a3c.envs.pixels import History, Pixels
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import Observation

_SUPPORTED = (
    "the agent takes pictures (uint8, of shape (height, width), (height, width, 1) or (height, width, 3)) or numbers "
    "(a Box of 1 dimension)"
)
_FLATTEN = "gymnasium.wrappers.FlattenObservation"
_SEE_DOCS = "docs/own-scenario.md shows how to register a game with a wrapper"
_GRID = 32  # a picture with shorter sides may be a grid of numbers


class Numbers:
    """Reads vectors of numbers as float32."""

    def __init__(self, name: str, declared: Box) -> None:
        self._name, self._declared = name, declared
        self.space = Box(-np.inf, np.inf, declared.shape, np.float32)

    def clear(self) -> None:
        """Does nothing: a vector of numbers has no history."""

    def read(self, observation: Any) -> NDArray[np.float32]:
        """Returns a copy of an observation as float32: games may reuse their array.

        Raises:
            UserError: if the observation does not match the declared space.
        """
        if type(observation) is np.ndarray and observation.dtype == np.float32 and observation.shape == self.space.shape:
            return observation.copy()  # the usual case, kept fast: a step of CartPole takes 8 microseconds
        array = _to_array(self._name, self._declared, observation)
        with np.errstate(over="ignore"):  # too large numbers become infinite, which training and doctor report
            return array.astype(np.float32)


class Pictures:
    """Reads pictures as uint8, preprocessed and stacked. Owns the newest frames."""

    def __init__(self, name: str, declared: Box, spec: Observation) -> None:
        self._name, self._declared = name, declared
        self._history = History(spec)
        self._grey = not (spec.color and declared.shape[2:] == (3,))
        self.space = Box(0, 255, (*spec.size, spec.stack * (1 if self._grey else 3)), np.uint8)

    def clear(self) -> None:
        """Forgets the episode."""
        self._history.clear()

    def read(self, observation: Any) -> Pixels:
        """Adds a picture to the history; returns the stack, [H, W, C].

        Raises:
            UserError: if the observation does not match the declared space.
        """
        picture = _to_array(self._name, self._declared, observation)
        if picture.dtype != np.uint8:
            picture = self._cast(picture)
        if picture.ndim == 3 and self._grey:
            picture = picture.mean(axis=2).astype(np.uint8)
        self._history.add(picture)
        return self._history.stack()

    def _cast(self, picture: NDArray[Any]) -> Pixels:
        """Returns whole numbers from 0 to 255 as uint8; raises UserError for other numbers."""
        with np.errstate(invalid="ignore"):
            cast = picture.astype(np.uint8)
        if picture.dtype != np.bool_ and (cast == picture).all():
            return cast
        cure = _suggest_picture(float(picture.min()), float(picture.max()))
        raise _make_refusal(self._name, self._declared, _describe(picture), cure)


def make_reader(name: str, space: gymnasium.Space[Any], spec: Observation) -> Numbers | Pictures:
    """Returns the reader for a game's observation space.

    Raises:
        UserError: if the space is not supported; the message says how to change it.
    """
    if isinstance(space, Box) and 0 not in space.shape:
        if len(space.shape) == 1:
            return Numbers(name, space)
        if space.dtype == np.uint8 and (len(space.shape) == 2 or space.shape[2:] in ((1,), (3,))):
            return Pictures(name, space, spec)
    raise UserError(f"{name}: its observations are {_shorten(space)}; {_SUPPORTED}: {_suggest_space(space)}")


def _suggest_space(space: gymnasium.Space[Any]) -> str:
    """Returns how to change an observation space that is not supported."""
    if not isinstance(space, Box):
        return _suggest_flattening(space)
    if 0 in space.shape:
        return "these are empty: return at least one number, a constant if there is nothing to observe"
    if space.shape == ():
        return f"{_FLATTEN} makes a vector of one number; {_SEE_DOCS}"
    cures = ["return whole numbers from 0 to 255, and declare dtype=np.uint8"] if space.dtype != np.uint8 else []
    if cure := _suggest_layout(space.shape):
        cures.append(cure)
    if cures and sorted(space.shape)[-2] >= _GRID:
        return "; ".join(cures)
    picture = f"if they are pictures, {'; '.join(cures)}; " if cures else ""
    return f"{picture}if they are numbers, {_FLATTEN} makes a vector of them; {_SEE_DOCS}"


def _suggest_layout(shape: tuple[int, ...]) -> str:
    """Returns how to change the layout of pictures with this shape; '' if it is right or unknown."""
    if len(shape) == 4:
        stack = shape[0] if shape[0] < shape[1] else shape[-1]
        return f"return only the newest picture, and set [observation] stack = {stack}"
    if len(shape) != 3:
        return ""
    first, last = shape[0], shape[-1]
    if last in (1, 3):
        return ""
    if first < last and first < shape[1]:  # channels come first
        turned = (*shape[1:], first)
        if first in (1, 3):
            return f"put channels last, {turned}, as np.moveaxis(picture, 0, -1) does"
        return f"put channels last and {_suggest_unstacking(shape[1:], first)}"
    alpha = ", or leave out the alpha channel of RGBA" if last == 4 else ""
    return f"{_suggest_unstacking(shape[:2], last)}{alpha}"


def _suggest_unstacking(size: tuple[int, ...], channels: int) -> str:
    colour = f" (for {channels // 3} colour pictures {(*size, 3)} and stack = {channels // 3})" if channels % 3 == 0 else ""
    return f"return only the newest picture, {size}, and set [observation] stack = {channels}{colour}"


def _suggest_flattening(space: gymnasium.Space[Any]) -> str:
    """Returns how to turn a discrete or composite space into numbers or a picture."""
    parts = space.spaces if isinstance(space, Dict) else {}
    pictures = [key for key, part in parts.items() if isinstance(part, Box) and len(part.shape) in (2, 3)]
    picture = f"return only the picture, with a wrapper that returns observation[{pictures[0]!r}], or " if pictures else ""
    try:
        flat = isinstance(gymnasium.spaces.flatten_space(space), Box)
    except NotImplementedError:  # a space of texts, or a class of the user
        flat = False
    before = "" if flat else "remove parts that are not numbers (gymnasium.wrappers.FilterObservation), then "
    return f"{picture}{before}{_FLATTEN} makes a vector; {_SEE_DOCS}"


def _to_array(name: str, declared: Box, observation: Any) -> NDArray[Any]:
    """Converts an observation, such as a list or lazy frames, to an array; raises UserError unless it fits the space."""
    received = f"of type {type(observation).__name__}"
    try:
        array = np.asarray(observation)
        if array.dtype.hasobject:
            array = np.asarray(array.tolist())  # its elements may be numbers
    except (TypeError, ValueError):  # rows of several lengths, say
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "biuf":
        received = f"{observation.dtype} of shape {array.shape}" if isinstance(observation, np.ndarray) else received
        raise _make_refusal(name, declared, received, "return an array of numbers")
    if array.shape == declared.shape:
        return array
    axes = array.ndim == 3 and sorted(array.shape) == sorted(declared.shape)
    cure = f"return the declared {'order of axes, as np.moveaxis does' if axes else 'shape'}"
    raise _make_refusal(name, declared, _describe(array), f"{cure}, or declare the returned one")


def _make_refusal(name: str, declared: Box, received: str, cure: str) -> UserError:
    return UserError(f"{name}: its observation_space is {_shorten(declared)}, but an observation is {received}: {cure}")


def _suggest_picture(low: float, high: float) -> str:
    """Returns how to convert numbers within a range to pixels."""
    if low >= 0 and high <= 1:
        return "return (255 * picture).astype(np.uint8)"
    if low >= -1 and high <= 1:
        return "return (127.5 * (picture + 1)).astype(np.uint8)"
    if low >= 0 and high <= 255:
        return "return picture.astype(np.uint8)"
    return "scale them to whole numbers from 0 to 255, and return picture.astype(np.uint8)"


def _describe(array: NDArray[Any]) -> str:
    """Returns the dtype, shape and range of an array, in words."""
    limits = f", {float(array.min()):.4g} to {float(array.max()):.4g}" if array.size else ""
    return f"{array.dtype} of shape {array.shape}{limits}"


def _shorten(space: gymnasium.Space[Any]) -> str:
    return " ".join(str(space).split())[:200]
