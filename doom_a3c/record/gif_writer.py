"""Gifs, made picture by picture: long films are never in memory as a whole."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import GifImagePlugin, Image

Picture = NDArray[np.uint8]  # [height, width, 3]
MAX_PICTURES = 3000  # of one gif
GIF_PIXELS = 35 * 320 * 240  # of a gif, a second: larger pictures are fewer, else they are a burden to whoever opens them
HELD_SECONDS = 0.5  # the last picture of a film: an end that flashes by is not seen
_MOST = 60_000  # hundredths of a second that one picture lasts: gifs have 16 bits for it
_LEAST = 2  # hundredths of a second, in which gifs count: browsers show for ten of them what is to last for less


class GifWriter:
    """Makes a gif that plays in a loop, as fast as its pictures come, and holds the last one for half a second.

    It shows the first 3000 pictures and the last, of large ones every n-th, and none for less than two hundredths of a
    second. Owns the gif so far, and the picture that has not been written because nobody knows yet how long it lasts.
    """

    def __init__(self, pictures_per_second: float) -> None:
        self._rate, self._every = pictures_per_second, 1
        self._count = self._shown = 0  # pictures so far, and those of them that had a time of their own
        self._begun = self._newest_begun = 0  # when the unwritten picture and the newest with a time begin, in hundredths
        self._unwritten: Picture | None = None
        self._newest: Picture | None = None
        self._written: Picture | None = None
        self._data: list[bytes] = []

    def add(self, picture: Picture) -> None:
        """Adds a picture.

        Raises:
            ValueError: if it is not as large as the first.
        """
        if self._unwritten is None:
            self._unwritten = picture
            self._every = math.ceil(picture[..., 0].size * self._rate / GIF_PIXELS)
        if picture.shape != self._unwritten.shape:
            raise ValueError(f"a picture is {picture.shape}, those before it are {self._unwritten.shape}")
        begin = round(100 * self._count / self._rate)
        if self._count % self._every == 0 and begin - self._newest_begun >= _LEAST and self._shown < MAX_PICTURES - 1:
            self._show(picture, begin)
        self._newest = picture
        self._count += 1

    def _show(self, picture: Picture, begin: int) -> None:
        """Writes the picture before, unless this one is the same."""
        assert self._unwritten is not None
        if not np.array_equal(picture, self._unwritten):
            self._write(self._unwritten, begin - self._begun)
            self._unwritten, self._begun = picture, begin
        self._newest_begun = begin
        self._shown += 1

    def _write(self, picture: Picture, hundredths: int) -> None:
        """Writes what has changed of a picture, with a palette of its own."""
        rows = columns = slice(0, None)
        if self._written is not None:
            changed = (picture != self._written).any(axis=2)
            rows, columns = (_extent(changed.any(axis=axis)) for axis in (1, 0))
        image = Image.fromarray(picture[rows, columns]).convert("P", palette=Image.Palette.ADAPTIVE)
        if self._written is None:
            self._data += GifImagePlugin.getheader(image, info={"loop": 0})[0]
        for part in [_MOST] * ((hundredths - 1) // _MOST) + [(hundredths - 1) % _MOST + 1]:  # one that stays comes again
            told = {"duration": 10 * part, "include_color_table": True}
            self._data += GifImagePlugin.getdata(image, (columns.start, rows.start), **told)
        self._written = picture

    def finished(self) -> bytes:
        """Returns the gif, b'' if it has no pictures; nothing can be added any longer."""
        if self._unwritten is None or self._newest is None:
            return b""
        if self._newest_begun > self._begun and not np.array_equal(self._newest, self._unwritten):
            self._write(self._unwritten, self._newest_begun - self._begun)
            self._begun = self._newest_begun
        self._write(self._newest, self._newest_begun - self._begun + round(100 * HELD_SECONDS))
        return b"".join([*self._data, b";"])


def _extent(changed: NDArray[np.bool_]) -> slice:
    """Returns from where to where there are changes; one place where there are none."""
    places = np.flatnonzero(changed)
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 1)
