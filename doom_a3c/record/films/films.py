"""Writes films as mp4 files, and makes gifs and clips from them."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2
import imageio_ffmpeg
import numpy as np
from PIL import Image

from doom_a3c.record.files import write_whole
from doom_a3c.record.films.gif_writer import HELD_SECONDS, GifWriter, Picture

CLIP_SECONDS, CLIP_BYTES = 20, 1_300_000  # of a film: three of them make a page of 6 MB
# At this quality a minute of ViZDoom at 320x240 takes 2 MB; the limit is for games with more detail: 8 MB a minute.
MEGABYTES_PER_MINUTE = 8
_ENCODING = ["-crf", "30", "-preset", "veryfast", "-maxrate", "1M", "-bufsize", "1M"]


class VideoWriter:
    """Writes an mp4 file (H.264, which every browser plays) picture by picture; none without pictures."""

    def __init__(self, path: Path, pictures_per_second: float) -> None:
        self._path, self._rate = path, pictures_per_second
        self._newest: Picture
        self._video: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def add(self, picture: Picture) -> None:
        """Adds a picture, scaled to the size of the first one."""
        if self._video is None:
            self._size = picture.shape[1], picture.shape[0]
            self._video = imageio.v2.get_writer(
                self._path,
                "FFMPEG",
                fps=self._rate,
                codec="libx264",
                quality=None,
                output_params=[*_ENCODING],
                macro_block_size=2,
                ffmpeg_log_level="quiet",
            )
        if (picture.shape[1], picture.shape[0]) != self._size:
            picture = np.asarray(Image.fromarray(picture).resize(self._size))
        with _name_film(self._path):
            self._video.append_data(_pad_to_even(picture))
        self._newest = picture

    def __exit__(self, *error: object) -> None:
        if self._video is None:
            return
        with _name_film(self._path):
            for _ in range(round(HELD_SECONDS * self._rate)):
                self._video.append_data(_pad_to_even(self._newest))
            self._video.close()


@contextlib.contextmanager
def _name_film(path: Path) -> Iterator[None]:
    """Turns the errors of a broken pipe to ffmpeg into an OSError that names the film."""
    try:
        yield
    except (OSError, StopIteration, RuntimeError):
        raise _blame_disk(path) from None


def _blame_disk(path: Path) -> OSError:
    return OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(path))


def _pad_to_even(picture: Picture) -> Picture:
    """Pads odd sides by repeating the last row or column: H.264 needs even sides."""
    height, width, _ = picture.shape
    odd = height % 2 or width % 2
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge") if odd else picture


class Clip(NamedTuple):
    """The beginning of a film, or all of it, in memory."""

    data: bytes
    seconds: float
    film_seconds: float

    @property
    def is_cut(self) -> bool:
        """Whether it ends before the film."""
        return self.seconds < self.film_seconds - 0.1

    @property
    def extent(self) -> str:
        """The part of the film that it shows, such as 'first 20 s of 60'."""
        return f"first {int(self.seconds)} s of {int(self.film_seconds)}" if self.is_cut else "whole"


def cut_clip(film: Path) -> Clip:
    """Returns the first 20 s of an mp4, or as many as fit into 1.5 MB or so, without encoding them again.

    Raises:
        OSError: naming the film, if there is no room.
    """
    seconds = _measure_seconds(film)
    if seconds <= CLIP_SECONDS and film.stat().st_size <= CLIP_BYTES:
        return Clip(film.read_bytes(), seconds, seconds)
    clip = film.with_suffix(".clip.mp4")
    limits = ["-t", str(CLIP_SECONDS), "-fs", str(CLIP_BYTES)]
    try:
        _copy(["-i", film.name, *limits], clip)
        return Clip(clip.read_bytes(), _measure_seconds(clip), seconds)
    finally:
        clip.unlink(missing_ok=True)


def make_gif(film: Path) -> Clip:
    """Returns the beginning of an mp4 as a gif: as much as a gif may hold.

    Raises:
        OSError: naming the film, if it cannot be read.
    """
    with _name_film(film), contextlib.closing(imageio_ffmpeg.read_frames(film)) as pictures:
        facts = next(pictures)
        (width, height), rate = facts["size"], facts["fps"]
        gif = GifWriter(rate)
        for picture in pictures:
            gif.add(np.frombuffer(picture, np.uint8).reshape(height, width, 3))
            if gif.full:
                break
    return Clip(gif.finish(), gif.count / rate, facts["duration"])


def join_films(films: Sequence[Path], target: Path) -> None:
    """Joins mp4 files of equal size and rate, in the folder of `target`, without encoding them again.

    Raises:
        OSError: naming the film, if it cannot be written.
    """
    listed = target.with_suffix(".list")
    names = [film.name.replace("'", r"'\''") for film in films]
    try:
        write_whole(listed, "".join(f"file '{name}'\n" for name in names).encode())
        _copy(["-f", "concat", "-safe", "0", "-i", listed.name], target)
    finally:
        listed.unlink(missing_ok=True)


def _copy(source: Sequence[str], target: Path) -> None:
    """Has ffmpeg copy encoded pictures from a source to a file in the same folder, and leaves no incomplete file."""
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "quiet", "-y", *source, "-c", "copy", target.name]
    # In a separate session, which a terminal's Ctrl-C does not reach.
    ended = subprocess.run(ffmpeg, cwd=target.parent, stdin=subprocess.DEVNULL, check=False, start_new_session=True)
    if ended.returncode != 0:
        target.unlink(missing_ok=True)
        raise _blame_disk(target)


def _measure_seconds(film: Path) -> float:
    with _name_film(film), contextlib.closing(imageio_ffmpeg.read_frames(film)) as pictures:
        return float(next(pictures)["duration"])
