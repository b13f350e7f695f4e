"""Small gifs for the documentation, of what play.py has filmed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imageio.v3
import numpy as np
from PIL import Image, ImageSequence

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from doom_a3c.record.gif_writer import GifWriter  # noqa: E402

HEIGHT, MAX_WIDTH = 120, 160
SECONDS, PICTURES_PER_SECOND = 8, 6
COLORS = 32


def film(source: Path) -> bytes:
    """Returns the first eight seconds of an mp4 in which something moves as a gif of some 300 kB, six pictures a second."""
    rate = imageio.v3.immeta(source, plugin="FFMPEG")["fps"]
    writer, due, shown, before = GifWriter(PICTURES_PER_SECOND), 0.0, 0, None
    for index, picture in enumerate(imageio.v3.imiter(source, plugin="FFMPEG")):
        if index / rate < due:
            continue
        due += 1 / PICTURES_PER_SECOND
        small = _small(picture)
        if before is None or not np.array_equal(small, before):
            writer.add(small)
            before, shown = small, shown + 1
        if shown == SECONDS * PICTURES_PER_SECOND:
            break
    return writer.finish()


def _small(picture: Any) -> Any:
    height, width, _ = picture.shape
    image = Image.fromarray(picture).resize((min(MAX_WIDTH, round(width * HEIGHT / height)), HEIGHT), Image.Resampling.BOX)
    return np.asarray(image.quantize(COLORS, dither=Image.Dither.NONE).convert("RGB"))


def four_in_one(films: Sequence[Path], folder: Path) -> None:
    """Writes four gifs, if all are there, as one, `games.gif`, two beside each other; each begins anew where it is over."""
    if not all(path.exists() for path in films):
        return
    frames = []
    for path in films:
        with Image.open(path) as gif:
            times = [(np.asarray(each.convert("RGB")), each.info["duration"]) for each in ImageSequence.Iterator(gif)]
        frames.append([each for each, duration in times for _ in range(round(duration * PICTURES_PER_SECOND / 1000))])
    writer = GifWriter(PICTURES_PER_SECOND)
    for index in range(SECONDS * PICTURES_PER_SECOND):
        tiles = [_padded(film[index % len(film)]) for film in frames]
        writer.add(np.vstack([np.hstack(tiles[:2]), np.hstack(tiles[2:])]))
    (folder / "games.gif").write_bytes(writer.finish())


def _padded(picture: Any) -> Any:
    """Returns a picture in the middle of black."""
    left = (MAX_WIDTH - picture.shape[1]) // 2
    return np.pad(picture, ((0, 0), (left, MAX_WIDTH - picture.shape[1] - left), (0, 0)))
