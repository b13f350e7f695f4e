"""Films as files: gifs, and mp4s that every browser plays."""

from __future__ import annotations

import contextlib
import errno
import math
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import imageio.v2
import imageio.v3
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doom_a3c.record.files import write_whole

Picture = NDArray[np.uint8]  # [height, width, 3]
MAX_PICTURES = 3000  # of one gif
GIF_PIXELS = 35 * 320 * 240  # of a gif, a second: larger pictures are fewer, else they are a burden to whoever opens them
HELD_SECONDS = 0.5  # the last picture of a film: an end that flashes by is not seen


def gif_bytes(pictures: Sequence[Picture], pictures_per_second: float) -> bytes:
    """Returns a gif that plays in a loop at that speed, and holds its last picture for half a second."""
    chosen, durations = timed(len(pictures), pictures_per_second)
    duration = durations if len(durations) > 1 else durations[0]  # the library takes no list of one
    stacked = np.stack([pictures[index] for index in chosen])
    data: bytes = imageio.v3.imwrite("<bytes>", stacked, extension=".gif", duration=duration, loop=0)
    return data


def timed(count: int, pictures_per_second: float) -> tuple[list[int], list[int]]:
    """Returns which of so many pictures a gif shows, and for how many milliseconds each.

    Gifs count in hundredths of a second. What lasts less than two of those is left out: browsers would show it for ten.
    """
    chosen, starts = [0], [0]
    for index in range(1, count):
        start = round(100 * index / pictures_per_second)
        if start - starts[-1] >= 2:
            chosen.append(index)
            starts.append(start)
    chosen[-1] = count - 1
    ends = [*starts[1:], starts[-1] + round(100 * HELD_SECONDS)]
    return chosen, [10 * (end - start) for start, end in zip(starts, ends, strict=True)]


def apart(picture: Picture, pictures_per_second: float) -> int:
    """Returns every how many of such pictures a gif may have one."""
    return math.ceil(picture[..., 0].size * pictures_per_second / GIF_PIXELS)


class VideoWriter:
    """Writes `stem`.mp4 (H.264, which every browser plays) picture by picture, and `stem`.gif at the end. A context.

    The gif has the first 3000 pictures, or every n-th of them where they are large: it is made in memory.
    """

    def __init__(self, stem: Path, pictures_per_second: float) -> None:
        self._stem, self._rate = stem, pictures_per_second
        self._pictures: list[Picture] = []  # of the gif
        self._count, self._every = 0, 1  # pictures so far, of which every so many are the gif's
        self._newest: Picture
        self._video: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def add(self, picture: Picture) -> None:
        """Adds a picture; one of another size than the first is scaled."""
        if self._video is None:
            self._every, self._size = apart(picture, self._rate), (picture.shape[1], picture.shape[0])
            self._video = imageio.v2.get_writer(
                self._path("mp4"), "FFMPEG", fps=self._rate, codec="libx264", macro_block_size=2, ffmpeg_log_level="quiet"
            )
        if (picture.shape[1], picture.shape[0]) != self._size:
            picture = np.asarray(Image.fromarray(picture).resize(self._size))
        with self._failing():
            self._video.append_data(picture)
        self._newest = picture
        if self._count % self._every == 0 and self._count < MAX_PICTURES:
            self._pictures.append(picture)
        self._count += 1

    def __exit__(self, *error: object) -> None:
        if self._video is not None:
            with self._failing():
                for _ in range(round(HELD_SECONDS * self._rate)):
                    self._video.append_data(self._newest)
                self._video.close()
        if self._pictures:
            if self._count < MAX_PICTURES:
                self._pictures[-1] = self._newest
            write_whole(self._path("gif"), gif_bytes(self._pictures, self._rate / self._every))

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Turns what is raised once ffmpeg has ended, its pipe broken, into an OSError that names the film."""
        try:
            yield
        except (OSError, StopIteration, RuntimeError):
            raise OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(self._path("mp4"))) from None

    def _path(self, kind: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{kind}")


def joined(films: Sequence[Path], target: Path) -> None:
    """Makes one film of several mp4 files of equal size and speed, which lie in its folder, without encoding them again.

    Raises:
        OSError: naming it, if it cannot be written.
    """
    import imageio_ffmpeg  # late: a trainer does without

    listed = target.with_suffix(".part")
    names = [film.name.replace("'", r"'\''") for film in films]
    listed.write_text("".join(f"file '{name}'\n" for name in names))
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "quiet", "-y", "-f", "concat", "-safe", "0", "-i", listed.name]
    try:
        command = [*ffmpeg, "-c", "copy", target.name]
        status = subprocess.run(
            command, cwd=target.parent, stdin=subprocess.DEVNULL, check=False, start_new_session=True
        ).returncode
    finally:
        listed.unlink()
    if status != 0:
        raise OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(target))
