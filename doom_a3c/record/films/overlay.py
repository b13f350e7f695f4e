"""Draws an agent's input, policy and value beside the pictures of its game."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Pixels = NDArray[np.uint8]
Color = str | tuple[int, int, int]

HEIGHT, WIDTH = 480, 320  # of the overlay; pictures of games are scaled to its height
MAX_WIDTH = 1280  # of a game's picture
_MARGIN, _TOP = 12, 28
_SEEN_HEIGHT = 120
_FACTS, _VARIABLES, _ACTIONS, _VALUES = 156, 184, 222, 366  # top rows of the sections
_BARS_HEIGHT, _LEAST_BAR, _MOST_BAR = 120, 9, 18
_NAMES_WIDTH, _SHARES_WIDTH = 122, 36
_FEW_VALUES, _VALUES_SHOWN = 50, 200  # steps on the value axis, at least and at most
_BACKGROUND, _DIM, _BRIGHT, _CHOSEN, _OTHER = "#14161a", "#8b93a1", "#f2f4f8", "#ffb000", "#4c8df6"
_POLICY, _VALUE = (76, 141, 246), (255, 64, 64)  # colours of the saliency maps


class Salience(NamedTuple):
    """Saliency of each pixel for the policy and for the value, [H, W], 0 or more."""

    policy: NDArray[np.floating]
    value: NDArray[np.floating]


class ActionView(NamedTuple):
    """What films show of one choice or number of an action."""

    share: float  # length of its bar, from 0 to 1: the choice's probability
    words: str
    taken: bool


class StepView(NamedTuple):
    """One step of an agent: its observation, outputs, action and reward."""

    seen: Pixels | None  # [H, W, 3], the newest picture of the observation; None without pixels
    variables: Sequence[tuple[str, float]]  # the numbers of the observation, in the game's units
    actions: Sequence[ActionView]  # of each choice and number of an action
    value: float  # estimate, in scaled rewards
    step: int  # of the episode, from 1
    reward: float  # for the step
    score: float  # of the episode, after the step
    salience: Salience | None = None  # relative to the episode's maximum; None if not requested


class Overlay:
    """Draws the steps of an episode one by one. Owns the value curve of the current episode."""

    def __init__(self, actions: Sequence[str]) -> None:
        """`actions` are the names of each choice and number of an action."""
        self._actions = actions
        self._values: list[float] = []

    def panel(self, view: StepView) -> Pixels:
        """Draws the overlay for the newest step, [480, 320, 3]."""
        view = view._replace(value=float(np.nan_to_num(view.value)))
        if view.step == 1:
            self._values = []
        self._values.append(view.value)
        image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
        draw = ImageDraw.Draw(image)
        _draw_seen(image, draw, view)
        _draw_text(draw, (_MARGIN, _FACTS), f"score {view.score:,.6g}", 18, _BRIGHT)
        _draw_text(draw, (WIDTH - _MARGIN, _FACTS), f"step {view.step:,}", 12, _DIM, "ra")
        if view.reward:
            _draw_text(draw, (WIDTH - _MARGIN, _FACTS + 14), f"{view.reward:+,.6g}", 12, _CHOSEN, "ra")
        _draw_variables(draw, view.variables)
        self._draw_actions(draw, view)
        self._draw_values(draw)
        return np.asarray(image)

    def _draw_actions(self, draw: ImageDraw.ImageDraw, view: StepView) -> None:
        _draw_text(draw, (_MARGIN, _ACTIONS), "actions", 12, _DIM)
        places = list(range(len(view.actions)))
        if len(places) > (most := _BARS_HEIGHT // _LEAST_BAR):
            # First the taken ones, one of each choice: a likely value of another choice must not hide them.
            order = sorted(places, key=lambda place: (not view.actions[place].taken, -view.actions[place].share))
            places = sorted(order[:most])
        height = min(_MOST_BAR, _BARS_HEIGHT // len(places))
        left, right = _MARGIN + _NAMES_WIDTH, WIDTH - _MARGIN - _SHARES_WIDTH
        for row, place in enumerate(places):
            top, (share, words, taken) = _ACTIONS + 18 + row * height, view.actions[place]
            color = _CHOSEN if taken else _OTHER
            size = min(12, height)
            _draw_text(draw, (_MARGIN, top), _shorten(self._actions[place], size, _NAMES_WIDTH - 6), size, color)
            draw.rectangle((left, top + 1, left + round(share * (right - left)), top + height - 3), fill=color)
            _draw_text(draw, (WIDTH - _MARGIN, top), words, size, _DIM, "ra")

    def _draw_values(self, draw: ImageDraw.ImageDraw) -> None:
        shown = self._values[-_VALUES_SHOWN:]
        low, high = min(shown), max(shown)
        _draw_text(draw, (_MARGIN, _VALUES), "value", 12, _DIM)
        _draw_text(draw, (WIDTH - _MARGIN, _VALUES), f"{shown[-1]:.3g}", 12, _BRIGHT, "ra")
        top, bottom = _VALUES + 20, HEIGHT - _MARGIN
        columns = np.linspace(_MARGIN, WIDTH - _MARGIN, max(_FEW_VALUES, len(shown)))
        heights = bottom - (np.asarray(shown) - low) / max(high - low, 1e-9) * (bottom - top)
        line = list(zip(columns[: len(shown)].tolist(), heights.tolist(), strict=True))
        draw.line(line, fill=_CHOSEN, width=2)
        (column, height) = line[-1]
        draw.ellipse((column - 3, height - 3, column + 3, height + 3), fill=_BRIGHT)


def place_beside(picture: Pixels, panel: Pixels) -> Pixels:
    """Returns a game's picture, [h, w, 3], scaled to the panel's height and put beside it; the width is even, for films."""
    height, width, _ = picture.shape
    if height != HEIGHT or width % 2:
        method = Image.Resampling.BICUBIC if height > HEIGHT else Image.Resampling.NEAREST
        size = (min(MAX_WIDTH, max(2, width * HEIGHT // height // 2 * 2)), HEIGHT)
        picture = np.asarray(Image.fromarray(picture).resize(size, method))
    return np.concatenate([picture, panel], axis=1)


def _draw_seen(image: Image.Image, draw: ImageDraw.ImageDraw, view: StepView) -> None:
    _draw_text(draw, (_MARGIN, 8), "network input" + ("" if view.seen is not None else ": numbers only"), 12, _DIM)
    if view.seen is None:
        return
    if view.salience is None:
        _paste(image, view.seen, _MARGIN, WIDTH - 2 * _MARGIN)
        return
    half = (WIDTH - 3 * _MARGIN) // 2
    _paste(image, view.seen, _MARGIN, half)
    _paste(image, blend_salience(view.seen, view.salience), 2 * _MARGIN + half, half)
    _draw_text(draw, (2 * _MARGIN + half, 8), "saliency: policy,", 12, _POLICY)
    _draw_text(draw, (WIDTH - _MARGIN, 8), "value", 12, _VALUE, "ra")


def newest_picture(stack: Pixels, pictures: int) -> Pixels:
    """Returns the newest picture of a stack, [H, W, pictures x channels], as [H, W, 3]."""
    newest = stack[..., -(stack.shape[2] // pictures) :]
    return newest if newest.shape[2] == 3 else np.repeat(newest[..., -1:], 3, axis=2)


def blend_salience(picture: Pixels, salience: Salience) -> Pixels:
    """Adds saliency maps to a picture, [H, W, 3]: blue for the policy, red for the value (Greydanus et al. 2018)."""
    light = salience.policy[..., None] * np.array(_POLICY) + salience.value[..., None] * np.array(_VALUE)
    seen: Pixels = np.clip(0.6 * picture + light, 0, 255).astype(np.uint8)
    return seen


def _paste(image: Image.Image, picture: Pixels, left: int, width: int) -> None:
    """Pastes a picture, scaled to fit the width."""
    scale = min(width / picture.shape[1], _SEEN_HEIGHT / picture.shape[0])
    size = (max(1, round(scale * picture.shape[1])), max(1, round(scale * picture.shape[0])))
    image.paste(Image.fromarray(picture).resize(size, Image.Resampling.NEAREST), (left, _TOP))


def _draw_variables(draw: ImageDraw.ImageDraw, variables: Sequence[tuple[str, float]]) -> None:
    """Writes names and numbers in at most two lines."""
    left, top = _MARGIN, _VARIABLES
    for name, number in variables:
        words = f"{name} {number:.4g}   "
        width = int(_load_font(11).getlength(words))
        if left + width > WIDTH and left > _MARGIN:
            left, top = _MARGIN, top + 15
        if top > _VARIABLES + 15:
            return
        _draw_text(draw, (left, top), words, 11, _BRIGHT)
        left += width


def _draw_text(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], words: str, size: int, color: Color, anchor: str = "la"
) -> None:
    draw.text(place, words, fill=color, font=_load_font(size), anchor=anchor)


def _shorten(words: str, size: int, width: int) -> str:
    """Returns the words, with `...` for their middle if they are too wide: names of actions differ at either end."""
    shown, left = words, len(words)
    while left and _load_font(size).getlength(shown) > width:
        left -= 1
        shown = f"{words[: left - left // 2]}...{words[len(words) - left // 2 :]}"
    return shown


@functools.cache
def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
