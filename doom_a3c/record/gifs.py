"""The gifs of a run: made beside it, and the newest kept."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Full, Queue
from typing import NamedTuple

from doom_a3c.record.failure_reporter import FailureReporter
from doom_a3c.record.files import write_whole
from doom_a3c.record.gif_writer import GifWriter, Picture
from doom_a3c.record.recording import LostFilmError, Recording

KEPT_GIFS = 50
SECONDS_BETWEEN_GIFS = 60.0


class Gif(NamedTuple):
    """A recorded episode as the contents of a gif file."""

    data: bytes
    height: int
    width: int
    score: float
    episode: int  # of its game
    worker: int


class GifMaker:
    """Makes gifs of recordings without holding up the games. Owns a thread and its queue."""

    def __init__(
        self,
        film: Callable[[Recording], Iterable[Picture]],
        pictures_per_second: float,
        made: Callable[[Gif], None],
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`film` makes the pictures of a recording, or raises LostFilmError; `failed` is told of other errors."""
        self._film, self._rate, self._made, self._failed = film, pictures_per_second, made, failed
        self._recordings: Queue[Recording | None] = Queue(maxsize=4)
        self._thread = threading.Thread(target=self._run, name="gif-maker", daemon=True)
        self._thread.start()

    def add(self, recording: Recording) -> None:
        """Queues a recording; drops it when the thread is several behind."""
        with contextlib.suppress(Full):
            self._recordings.put_nowait(recording)

    def _run(self) -> None:
        while (recording := self._recordings.get()) is not None:
            try:
                self._make(recording)
            except LostFilmError:
                continue
            except Exception as error:  # whatever a game has drawn: the next one may be better
                self._failed(error)

    def _make(self, recording: Recording) -> None:
        gif, shape = GifWriter(self._rate), (0, 0)
        for picture in self._film(recording):
            gif.add(picture)
            shape = picture.shape[:2]
        if data := gif.finished():
            self._made(Gif(data, *shape, recording.score, recording.episode, recording.worker))

    def close(self, timeout: float = 5.0) -> None:
        """Finishes those in the queue, as far as the time allows."""
        with contextlib.suppress(Full):
            self._recordings.put(None, timeout=timeout)
        self._thread.join(timeout)


class GifFolder:
    """Keeps the newest 50 gifs of a run."""

    def __init__(self, folder: Path, log: Callable[[str], None]) -> None:
        self._folder, self._failures = folder, FailureReporter("gifs", log)
        self.newest: Path | None = None  # of this session

    def failed(self, error: Exception) -> None:
        """Says once that gifs fail."""
        self._failures.report_failure(error)

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
            self._failures.report_success()
        except OSError as error:  # a full disk must not end the training
            self._failures.report_failure(error)
