"""Encodes gifs picture by picture, and stops before they grow large.

Pillow's `save(append_images=...)` keeps every picture until the end, and so cannot know when a gif has become too large:
3000 pictures of 320x240 made 53 MB. imageio's writer calls the same two functions of Pillow, and fails on NumPy 2.4.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import GifImagePlugin, Image

Picture = NDArray[np.uint8]  # [height, width, 3]
MAX_PICTURES = 3000  # in one gif
MAX_BYTES = 1_200_000  # of one gif, save for its last two pictures
GIF_RATE = 10  # pictures per second, at most; browsers slow down those above 50
_COLORS = 64  # of a picture: a third smaller than with 256
GIF_PIXELS = 35 * 320 * 240  # per second of a gif, which shows fewer pictures if they are large
HELD_SECONDS = 0.5  # for the last picture of a film, which would flash by
_MAX_DURATION = 60_000  # hundredths of a second per picture: gifs have 16 bits for it


class GifWriter:
    """Makes a gif that loops in real time and holds the last picture for half a second.

    The gif has at most 3000 pictures, 10 per second (fewer if they are large) and 1.2 MB; once it is `full`, only the last
    picture is still added. Owns the gif so far, and the latest picture, whose duration is not known yet.
    """

    def __init__(self, pictures_per_second: float) -> None:
        self._rate, self._every = pictures_per_second, 1
        self._shown = self._bytes = 0  # pictures with a duration, and their size
        self.count = 0  # pictures so far
        self._begun = self._newest_begun = 0  # when the unwritten and the newest shown picture begin, in hundredths
        self._unwritten: Picture | None = None
        self._newest: Picture | None = None
        self._written: Picture | None = None
        self._data: list[bytes] = []

    def add(self, picture: Picture) -> None:
        """Adds a picture.

        Raises:
            ValueError: if its size differs from the first one's.
        """
        if self._unwritten is None:
            self._unwritten = picture
            self._every = math.ceil(self._rate * max(1 / GIF_RATE, picture[..., 0].size / GIF_PIXELS))
        if picture.shape != self._unwritten.shape:
            raise ValueError(f"a picture is {picture.shape}, earlier ones are {self._unwritten.shape}")
        if self.count and self.count % self._every == 0 and not self.full:
            self._show(picture, round(100 * self.count / self._rate))
        self._newest = picture
        self.count += 1

    @property
    def full(self) -> bool:
        """Whether further pictures are left out, except for the last one."""
        return self._shown >= MAX_PICTURES - 1 or self._bytes >= MAX_BYTES

    def _show(self, picture: Picture, begin: int) -> None:
        """Writes the previous picture, unless this one is equal."""
        assert self._unwritten is not None
        if not np.array_equal(picture, self._unwritten):
            self._write(self._unwritten, begin - self._begun)
            self._unwritten, self._begun = picture, begin
        self._newest_begun = begin
        self._shown += 1

    def _write(self, picture: Picture, hundredths: int) -> None:
        """Writes the changed part of a picture, with its own palette."""
        rows = columns = slice(0, None)
        if self._written is not None:
            changed = (picture != self._written).any(axis=2)
            rows, columns = (_find_extent(changed.any(axis=axis)) for axis in (1, 0))
        image = Image.fromarray(picture[rows, columns]).convert("P", palette=Image.Palette.ADAPTIVE, colors=_COLORS)
        if self._written is None:
            self._data += GifImagePlugin.getheader(image, info={"loop": 0})[0]
        whole, rest = divmod(hundredths - 1, _MAX_DURATION)
        for part in [_MAX_DURATION] * whole + [rest + 1]:  # a longer one is repeated
            options = {"duration": 10 * part, "include_color_table": True}
            self._data += (encoded := GifImagePlugin.getdata(image, (columns.start, rows.start), **options))
            self._bytes += sum(map(len, encoded))
        self._written = picture

    def finish(self) -> bytes:
        """Returns the gif, b'' without pictures; nothing can be added afterwards."""
        if self._unwritten is None or self._newest is None:
            return b""
        if self._newest_begun > self._begun and not np.array_equal(self._newest, self._unwritten):
            self._write(self._unwritten, self._newest_begun - self._begun)
            self._begun = self._newest_begun
        self._write(self._newest, self._newest_begun - self._begun + round(100 * HELD_SECONDS))
        return b"".join([*self._data, b";"])


def _find_extent(changed: NDArray[np.bool_]) -> slice:
    """Returns the range of the changes, or a single index if there are none."""
    places = np.flatnonzero(changed)
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 1)
