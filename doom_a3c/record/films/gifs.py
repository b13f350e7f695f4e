"""Makes the gifs of a run in the background and keeps the newest ones."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Full, Queue
from typing import NamedTuple

from doom_a3c.record.files import write_whole
from doom_a3c.record.films.gif_writer import GifWriter, Picture
from doom_a3c.record.films.recording import LostFilmError, Recording
from doom_a3c.record.metrics.failure_reporter import FailureReporter

KEPT_GIFS = 20
SECONDS_BETWEEN_GIFS = 60.0


class Gif(NamedTuple):
    """A recorded episode as an encoded gif."""

    data: bytes
    height: int
    width: int
    score: float
    episode: int  # of its game
    worker: int


class GifMaker:
    """Encodes recordings in its own thread, without delaying the games. Owns thread and queue."""

    def __init__(
        self,
        film: Callable[[Recording], Iterable[Picture]],
        pictures_per_second: float,
        made: Callable[[Gif], None],
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`film` yields the pictures of a recording or raises LostFilmError; `failed` receives all other errors."""
        self._film, self._rate, self._made, self._failed = film, pictures_per_second, made, failed
        self._recordings: Queue[Recording | None] = Queue(maxsize=4)
        self._thread = threading.Thread(target=self._run, name="gif-maker", daemon=True)
        self._thread.start()

    def add(self, recording: Recording) -> None:
        """Queues a recording, or drops it if the queue is full."""
        with contextlib.suppress(Full):
            self._recordings.put_nowait(recording)

    def _run(self) -> None:
        while (recording := self._recordings.get()) is not None:
            try:
                self._make(recording)
            except LostFilmError:
                continue
            except Exception as error:  # a game may draw anything; the next film may work
                self._failed(error)

    def _make(self, recording: Recording) -> None:
        gif, shape = GifWriter(self._rate), (0, 0)
        for picture in self._film(recording):
            gif.add(picture)
            shape = picture.shape[:2]
        if data := gif.finish():
            self._made(Gif(data, *shape, recording.score, recording.episode, recording.worker))

    def close(self, timeout: float = 5.0) -> None:
        """Finishes the queued recordings within the time-out."""
        with contextlib.suppress(Full):
            self._recordings.put(None, timeout=timeout)
        self._thread.join(timeout)


class GifFolder:
    """Keeps the newest 20 gifs of a run in a folder."""

    def __init__(self, folder: Path, log: Callable[[str], None]) -> None:
        self._folder, self._failures = folder, FailureReporter("gifs", log)
        self.newest: Path | None = None  # in this session

    def warn(self, error: Exception) -> None:
        """Warns once that gifs fail."""
        self._failures.report_failure(error)

    def add(self, gif: Gif) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")  # a resumed run restarts its episode numbers
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
