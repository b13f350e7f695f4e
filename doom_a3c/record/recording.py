"""Recordings: gifs of games in training, gifs and videos of played episodes."""

from __future__ import annotations

import contextlib
import errno
import math
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Full, Queue
from typing import Any, NamedTuple

import imageio.v2
import imageio.v3
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from doom_a3c.record.files import write_whole
from doom_a3c.record.outage import Outage
from doom_a3c.record.rate_limiter import RateLimiter

Picture = NDArray[np.uint8]  # [height, width, 3]
KEPT_GIFS = 50
SECONDS_BETWEEN_GIFS = 60.0
MAX_PICTURES = 3000  # of one recording
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
        """Adds a picture."""
        if self._video is None:
            self._every = math.ceil(picture[..., 0].size * self._rate / GIF_PIXELS)
            self._video = imageio.v2.get_writer(
                self._path("mp4"), "FFMPEG", fps=self._rate, codec="libx264", macro_block_size=2, ffmpeg_log_level="quiet"
            )
        try:
            self._video.append_data(picture)
        except OSError:  # of a pipe to ffmpeg, which has ended
            raise OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(self._path("mp4"))) from None
        self._newest = picture
        if self._count % self._every == 0 and self._count < MAX_PICTURES:
            self._pictures.append(picture)
        self._count += 1

    def __exit__(self, *error: object) -> None:
        if self._video is not None:
            for _ in range(round(HELD_SECONDS * self._rate)):
                self._video.append_data(self._newest)
            self._video.close()
        if self._pictures:
            if self._count < MAX_PICTURES:
                self._pictures[-1] = self._newest
            write_whole(self._path("gif"), gif_bytes(self._pictures, self._rate / self._every))

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
        status = subprocess.run(command, cwd=target.parent, stdin=subprocess.DEVNULL, check=False).returncode
    finally:
        listed.unlink()
    if status != 0:
        raise OSError(errno.EPIPE, "ffmpeg has failed; is the disk full?", str(target))


class Recording(NamedTuple):
    """A recorded episode."""

    pictures: list[Picture]
    score: float
    episode: int  # of its game
    worker: int


class Gif(NamedTuple):
    """A recorded episode as the contents of a gif file."""

    data: bytes
    height: int
    width: int
    score: float
    episode: int  # of its game
    worker: int


class RecordedVectorEnv(VectorWrapper[Any, Any, Any]):
    """A vector environment that records every n-th episode of its first game, as far as the limiter allows.

    Owns the recording in the making. One picture a step; a finished recording goes to `finished`.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        worker: int,
        every: int,
        limiter: RateLimiter,
        finished: Callable[[Recording], None],
    ) -> None:
        super().__init__(env)
        self._worker, self._every, self._limiter, self._finished = worker, every, limiter, finished
        self._episode, self._score = 0, 0.0
        self._pictures: list[Picture] | None = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games and begins a recording if one is due."""
        result = self.env.reset(seed=seed, options=options)
        self._begin()
        return result

    def _begin(self) -> None:
        self._score = 0.0
        due = self._every > 0 and self._episode % self._every == 0 and self._limiter.allow()
        self._pictures = self._picture() if due else None

    def _picture(self, final: bool = False) -> list[Picture]:
        picture: Picture | None = self.env.picture(final)  # type: ignore[attr-defined]  # of this package's environments
        return [] if picture is None else [picture]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all games."""
        result = self.env.step(actions)
        _, rewards, terminated, truncated, _ = result
        self._score += float(rewards[0])
        if terminated[0] or truncated[0]:  # the game shows its next episode already
            if self._pictures:
                pictures = [*self._pictures, *self._picture(final=True)]
                self._finished(Recording(pictures, self._score, self._episode, self._worker))
            self._episode += 1
            self._begin()
        elif self._pictures and len(self._pictures) < MAX_PICTURES:  # without a first one there are none
            self._pictures += self._picture()
        return result


class GifMaker:
    """Makes gifs of recordings without holding up the games. Owns a thread and its queue."""

    def __init__(self, pictures_per_second: float, made: Callable[[Gif], None]) -> None:
        self._rate, self._made = pictures_per_second, made
        self._recordings: Queue[Recording | None] = Queue(maxsize=4)
        self._thread = threading.Thread(target=self._run, name="gif-maker", daemon=True)
        self._thread.start()

    def add(self, recording: Recording) -> None:
        """Queues a recording; drops it when the thread is several behind."""
        with contextlib.suppress(Full):
            self._recordings.put_nowait(recording)

    def _run(self) -> None:
        while (recording := self._recordings.get()) is not None:
            height, width, _ = recording.pictures[0].shape
            data = gif_bytes(recording.pictures, self._rate)
            self._made(Gif(data, height, width, recording.score, recording.episode, recording.worker))

    def close(self, timeout: float = 5.0) -> None:
        """Finishes those in the queue, as far as the time allows."""
        with contextlib.suppress(Full):
            self._recordings.put(None, timeout=timeout)
        self._thread.join(timeout)


class GifFolder:
    """Keeps the newest 50 gifs of a run."""

    def __init__(self, folder: Path, log: Callable[[str], None]) -> None:
        self._folder, self._outage = folder, Outage("gifs", log)
        self.newest: Path | None = None  # of this session

    def add(self, gif: Gif) -> None:
        """Writes a gif."""
        stamp = time.strftime("%Y%m%d-%H%M%S")  # a resumed run counts its episodes anew
        name = f"worker_{gif.worker}-episode_{gif.episode:07d}-score_{gif.score:.0f}-{stamp}.gif"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / name, gif.data)
            self.newest = self._folder / name
            for old in sorted(self._folder.glob("worker_*.gif"), key=lambda p: p.stat().st_mtime)[:-KEPT_GIFS]:
                old.unlink()
            self._outage.worked()
        except OSError as error:  # a full disk must not end the training
            self._outage.failed(error)
