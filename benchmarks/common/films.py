"""Small films for the documentation, made from play.py's films."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imageio.v3
from PIL import Image, ImageSequence

HEIGHT, MAX_WIDTH = 120, 160
SECONDS, PICTURES_PER_SECOND = 8, 6
MAX_BYTES = 150_000
QUALITIES = range(85, 15, -10)


def make_film(source: Path) -> bytes:
    """Encodes the first eight seconds of an mp4 with motion, at six pictures per second."""
    rate = imageio.v3.immeta(source, plugin="FFMPEG")["fps"]
    pictures: list[Image.Image] = []
    due = 0.0
    for index, picture in enumerate(imageio.v3.imiter(source, plugin="FFMPEG")):
        if index / rate < due:
            continue
        due += 1 / PICTURES_PER_SECOND
        small = _shrink(picture)
        if not pictures or small != pictures[-1]:
            pictures.append(small)
        if len(pictures) == SECONDS * PICTURES_PER_SECOND:
            break
    return encode(pictures)


def encode(pictures: Sequence[Image.Image]) -> bytes:
    """Encodes a looping WebP film for READMEs and pages, at the best quality that fits 150 kB."""
    for quality in QUALITIES:
        file = io.BytesIO()
        options = {"duration": round(1000 / PICTURES_PER_SECOND), "loop": 0, "quality": quality, "method": 6}
        pictures[0].save(file, "WEBP", save_all=True, append_images=pictures[1:], **options)
        if file.tell() <= MAX_BYTES:
            break
    return file.getvalue()


def _shrink(picture: Any) -> Image.Image:
    height, width, _ = picture.shape
    size = min(MAX_WIDTH, round(width * HEIGHT / height)), HEIGHT
    return Image.fromarray(picture).resize(size, Image.Resampling.BOX)


def write_four_in_one(films: Sequence[Path], folder: Path) -> None:
    """Tiles four films, if all exist, two by two into `games.webp`; shorter ones loop."""
    if not all(path.exists() for path in films):
        return
    tiles = [_read(path) for path in films]
    pictures = []
    for index in range(SECONDS * PICTURES_PER_SECOND):
        picture = Image.new("RGB", (2 * MAX_WIDTH, 2 * HEIGHT))
        for place, tile in enumerate(tiles):
            shown = tile[index % len(tile)]
            left = place % 2 * MAX_WIDTH + (MAX_WIDTH - shown.width) // 2
            picture.paste(shown, (left, place // 2 * HEIGHT))
        pictures.append(picture)
    (folder / "games.webp").write_bytes(encode(pictures))


def _read(path: Path) -> list[Image.Image]:
    """Returns a film's pictures, each repeated for as long as it lasts."""
    pictures = []
    with Image.open(path) as film:
        for picture in ImageSequence.Iterator(film):
            copy = picture.convert("RGB")
            pictures += [copy] * max(1, round(picture.info["duration"] * PICTURES_PER_SECOND / 1000))
    return pictures
