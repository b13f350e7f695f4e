"""Converts observations of Gymnasium environments for the agent: a picture, numbers, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from doom_a3c.envs.flattening import NUMERIC, Label, Part, describe, list_parts
from doom_a3c.envs.pixels import History, Pixels
from doom_a3c.settings.actions import shorten
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import Observation

_SUPPORTED = (
    "the agent takes numbers, and one picture (uint8, of shape (height, width), (height, width, 1) or (height, width, 3))"
)
_SEE_DOCS = "docs/own-scenario.md shows how to register a game with a wrapper"
_GRID = 32  # an array with both sides shorter is not a picture but a grid of numbers, such as MiniGrid's codes of objects
_MAX_NUMBERS = 1_000_000
MAX_BOUND = 1e6  # larger bounds say nothing about the numbers


class Reader(Protocol):
    """Reads the observations of one game for the agent."""

    @property
    def space(self) -> Space[Any]:
        """The space of the results."""

    @property
    def labels(self) -> Sequence[Label]:
        """Labels that name the numbers in the results."""

    def clear(self) -> None:
        """Forgets the episode."""

    def read(self, observation: Any) -> Any:
        """Returns the next observation of the episode for the agent, in new arrays.

        Raises:
            UserError: if the observation does not match the declared space.
        """


class Numbers:
    """Reads numbers as one float32 vector; with `scaled`, those with bounds below `MAX_BOUND` are scaled to [-1, 1]."""

    def __init__(self, parts: Sequence[Part], scaled: bool = False) -> None:
        self._parts = parts
        self._scales = [np.concatenate(each) for each in zip(*map(_find_scale, parts), strict=True)] if scaled else None
        self.labels = [label for part in parts for label in part.make_labels()]
        self.space = Box(-np.inf, np.inf, (sum(part.count_numbers() for part in parts),), np.float32)
        whole = parts[0].space if not parts[0].key else None
        self._vector = whole.shape if isinstance(whole, Box) and len(whole.shape) == 1 else None

    def clear(self) -> None:
        """Does nothing: numbers have no history."""

    def read(self, observation: Any) -> NDArray[np.float32]:
        if self._scales is None:
            return self._read(observation)
        centres, factors = self._scales
        scaled: NDArray[np.float32] = (self._read(observation) - centres) * factors
        return scaled

    def _read(self, observation: Any) -> NDArray[np.float32]:
        if type(observation) is np.ndarray and observation.dtype == np.float32 and observation.shape == self._vector:
            return observation.copy()  # the usual case, kept fast: a step of CartPole takes 8 microseconds
        parts = [part.flatten(observation) for part in self._parts]
        with np.errstate(over="ignore"):  # too large numbers become infinite, which training and doctor report
            return np.concatenate(parts, dtype=np.float32, casting="unsafe")


def _find_scale(part: Part) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the centres of a part's numbers, and the factors that bring them from their bounds to [-1, 1]."""
    centres, factors = np.zeros(part.count_numbers(), np.float32), np.ones(part.count_numbers(), np.float32)
    if isinstance(part.space, Box):
        low, high = part.space.low.ravel().astype(np.float64), part.space.high.ravel().astype(np.float64)
        near = (np.abs(low) < MAX_BOUND) & (np.abs(high) < MAX_BOUND) & (high > low)
        centres[near] = (low[near] + high[near]) / 2
        factors[near] = 2 / (high[near] - low[near])
    return centres, factors


class Pictures:
    """Reads a picture as uint8, preprocessed and stacked. Owns the newest frames."""

    labels: Sequence[Label] = ()

    def __init__(self, part: Part, spec: Observation) -> None:
        self._part = part
        self._history = History(spec)
        self._grey = not (spec.color and part.space.shape[2:] == (3,))
        self.space = Box(0, 255, (*spec.size, spec.stack * (1 if self._grey else 3)), np.uint8)

    def clear(self) -> None:
        self._history.clear()

    def read(self, observation: Any) -> Pixels:
        """Adds a picture to the history; returns the stack, [H, W, C]."""
        picture = self._part.read(observation)
        if picture.dtype != np.uint8:
            picture = self._cast(picture)
        if picture.ndim == 3 and self._grey:
            picture = _to_grey(picture)
        self._history.add(picture)
        return self._history.stack()

    def _cast(self, picture: NDArray[Any]) -> Pixels:
        """Returns whole numbers from 0 to 255 as uint8; raises UserError for other numbers."""
        with np.errstate(invalid="ignore"):
            cast = picture.astype(np.uint8)
        if picture.dtype != np.bool_ and (cast == picture).all():
            return cast
        raise self._part.refuse(describe(picture), _suggest_picture(float(picture.min()), float(picture.max())))


def _to_grey(picture: Pixels) -> Pixels:
    """Returns the means of a picture's colours, rounded down; for a picture of one channel, that channel."""
    if picture.shape[2] == 1:
        return picture[:, :, 0]
    red, green, blue = (picture[:, :, channel].astype(np.uint16) for channel in range(3))  # eight times as fast as mean()
    return ((red + green + blue) // 3).astype(np.uint8)


class PictureAndNumbers:
    """Reads a picture and numbers, as `pixels` and `variables`. Owns their readers."""

    def __init__(self, pixels: Pictures, variables: Numbers) -> None:
        self._pixels, self._variables = pixels, variables
        self.labels = variables.labels
        self.space = Dict(pixels=pixels.space, variables=variables.space)

    def clear(self) -> None:
        self._pixels.clear()

    def read(self, observation: Any) -> dict[str, NDArray[Any]]:
        return {"pixels": self._pixels.read(observation), "variables": self._variables.read(observation)}


def make_reader(name: str, space: Any, spec: Observation) -> Reader:
    """Returns the reader for a game's observation space.

    Raises:
        UserError: if the space is not supported; the message says how to change it.
    """
    parts = [part for part in list_parts(name, space) if isinstance(part.space, NUMERIC)]
    pictures = [part for part in parts if _is_picture(part.space)]
    numbers = [part for part in parts if part not in pictures and part.count_numbers()]
    for part in numbers:
        if cure := _suggest_picture_space(part):
            subject = f"observation{part.key} is" if part.key else "observations are"
            raise UserError(f"{name}: its {subject} {shorten(part.space)}; {_SUPPORTED}: {cure}")
    if cure := _suggest_space(parts, pictures, numbers):
        raise UserError(f"{name}: its observations are {shorten(space)}; {_SUPPORTED}: {cure}")
    if not pictures:
        return Numbers(numbers, spec.scale_numbers)
    height, width = pictures[0].space.shape[:2]
    if not spec.leaves_something(height, width):
        raise UserError(f"{name}: [observation] crop = {list(spec.crop)} leaves nothing of pictures of {height}x{width}")
    picture = Pictures(pictures[0], spec)
    return PictureAndNumbers(picture, Numbers(numbers, spec.scale_numbers)) if numbers else picture


def _is_picture(space: Any) -> bool:
    """Returns whether the arrays of a space are pictures that the agent can take."""
    if not isinstance(space, Box) or space.dtype != np.uint8 or 0 in space.shape:
        return False
    return (len(space.shape) == 2 or space.shape[2:] in ((1,), (3,))) and max(space.shape[:2]) >= _GRID


def _suggest_space(parts: Sequence[Part], pictures: Sequence[Part], numbers: Sequence[Part]) -> str:
    """Returns how to change an observation space that the agent cannot take, '' if it can."""
    if len(pictures) > 1:
        named = " and ".join(f"observation{part.key} {part.space.shape}" for part in pictures)
        return (
            f"{named} are {len(pictures)} pictures: join them (np.concatenate), or keep one "
            f"(gymnasium.wrappers.FilterObservation); {_SEE_DOCS}"
        )
    if not parts:
        return f"nothing here is numbers or a picture: a gymnasium.ObservationWrapper can make numbers of it; {_SEE_DOCS}"
    if not pictures and not numbers:
        return "these are empty: return at least one number, a constant if there is nothing to observe"
    count, largest = max((part.count_numbers(), part.key) for part in numbers) if numbers else (0, "")
    if sum(part.count_numbers() for part in numbers) > _MAX_NUMBERS:
        return f"observation{largest} is {count:,} numbers, and {_MAX_NUMBERS:,} are the most: encode it by fewer"
    return ""


def _suggest_picture_space(part: Part) -> str:
    """Returns how to declare an array that looks like a picture, but not one that the agent can take; '' for others."""
    space = part.space
    if not isinstance(space, Box) or len(space.shape) not in (2, 3, 4):
        return ""
    *_, shorter, longer = sorted(space.shape)
    if longer < _GRID or shorter < (_GRID // 2 if space.dtype == np.uint8 else _GRID):  # bytes are rarely anything else
        return ""
    cures = ["return whole numbers from 0 to 255, and declare dtype=np.uint8"] if space.dtype != np.uint8 else []
    if cure := _suggest_layout(space.shape):
        cures.append(cure)
    if part.key:
        others = "return them as a vector (np.ravel), or leave them out (gymnasium.wrappers.FilterObservation)"
    else:
        others = "gymnasium.wrappers.FlattenObservation makes a vector of them"
    return f"{'; '.join(cures)}; if they are numbers, {others}; {_SEE_DOCS}"


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


def _suggest_picture(low: float, high: float) -> str:
    """Returns how to convert numbers within a range to pixels."""
    if low >= 0 and high <= 1:
        return "return (255 * picture).astype(np.uint8)"
    if low >= -1 and high <= 1:
        return "return (127.5 * (picture + 1)).astype(np.uint8)"
    if low >= 0 and high <= 255:
        return "return picture.astype(np.uint8)"
    return "scale them to whole numbers from 0 to 255, and return picture.astype(np.uint8)"
