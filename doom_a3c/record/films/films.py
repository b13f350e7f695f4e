"""Writes films as mp4 files, each with a gif beside it."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import imageio.v2
import numpy as np
from PIL import Image

from doom_a3c.record.files import write_whole
from doom_a3c.record.films.gif_writer import HELD_SECONDS, GifWriter, Picture


class VideoWriter:
    """Writes `stem`.mp4 (H.264, which every browser plays) picture by picture, and `stem`.gif at the end."""

    def __init__(self, stem: Path, pictures_per_second: float) -> None:
        self._stem, self._rate, self._gif = stem, pictures_per_second, GifWriter(pictures_per_second)
        self._newest: Picture
        self._video: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def add(self, picture: Picture) -> None:
        """Adds a picture, scaled to the size of the first one."""
        if self._video is None:
            self._size = picture.shape[1], picture.shape[0]
            self._video = imageio.v2.get_writer(
                self._make_path("mp4"),
                "FFMPEG",
                fps=self._rate,
                codec="libx264",
                macro_block_size=2,
                ffmpeg_log_level="quiet",
            )
        if (picture.shape[1], picture.shape[0]) != self._size:
            picture = np.asarray(Image.fromarray(picture).resize(self._size))
        with self._name_film():
            self._video.append_data(_pad_to_even(picture))
        self._gif.add(picture)
        self._newest = picture

    def __exit__(self, *error: object) -> None:
        if self._video is None:
            return
        with self._name_film():
            for _ in range(round(HELD_SECONDS * self._rate)):
                self._video.append_data(_pad_to_even(self._newest))
            self._video.close()
        write_whole(self._make_path("gif"), self._gif.finish())

    @contextlib.contextmanager
    def _name_film(self) -> Iterator[None]:
        """Turns the errors of a broken pipe to ffmpeg into an OSError that names the film."""
        try:
            yield
        except (OSError, StopIteration, RuntimeError):
            raise OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(self._make_path("mp4"))) from None

    def _make_path(self, kind: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{kind}")


def _pad_to_even(picture: Picture) -> Picture:
    """Pads odd sides by repeating the last row or column: H.264 needs even sides."""
    height, width, _ = picture.shape
    odd = height % 2 or width % 2
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge") if odd else picture


def join_films(films: Sequence[Path], target: Path) -> None:
    """Joins mp4 files of equal size and rate, in the folder of `target`, without encoding them again.

    Raises:
        OSError: naming the film, if it cannot be written.
    """
    import imageio_ffmpeg  # late: training does without

    listed = target.with_suffix(".list")
    names = [film.name.replace("'", r"'\''") for film in films]
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "quiet", "-y", "-f", "concat", "-safe", "0", "-i", listed.name]
    try:
        write_whole(listed, "".join(f"file '{name}'\n" for name in names).encode())
        command = [*ffmpeg, "-c", "copy", target.name]
        status = subprocess.run(
            command, cwd=target.parent, stdin=subprocess.DEVNULL, check=False, start_new_session=True
        ).returncode
    finally:
        listed.unlink(missing_ok=True)
    if status != 0:
        target.unlink(missing_ok=True)  # incomplete
        raise OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(target))
