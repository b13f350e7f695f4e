"""Films: gifs of games in training, gifs and videos of played episodes."""

from __future__ import annotations

import contextlib
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

from doom_a3c.files import write_whole

Frame = NDArray[np.uint8]
KEPT_GIFS = 50
SECONDS_BETWEEN_GIFS = 60.0
MAX_FRAMES = 3000  # of one film


def gif_bytes(frames: Sequence[Frame], frames_per_second: float) -> bytes:
    """Returns a gif that plays for ever. Frames are [height, width, 3]."""
    duration = max(1000.0 / frames_per_second, 20.0)  # browsers slow anything under 20 ms down to 100 ms
    data: bytes = imageio.v3.imwrite("<bytes>", np.stack(frames), extension=".gif", duration=duration, loop=0)
    return data


class FilmWriter:
    """Writes a film as `stem`.mp4 (H.264, every browser plays it) frame by frame, and `stem`.gif at its end. A context.

    The gif has the first 3000 frames: it is made in memory, and larger ones are a burden to who opens them.
    """

    def __init__(self, stem: Path, frames_per_second: float) -> None:
        self._stem, self._rate = stem, frames_per_second
        self._frames: list[Frame] = []
        self._video: Any = None

    def __enter__(self) -> FilmWriter:
        return self

    def add(self, frame: Frame) -> None:
        """Adds a frame, [height, width, 3]."""
        if self._video is None:
            path = self._stem.with_name(self._stem.name + ".mp4")
            self._video = imageio.v2.get_writer(path, "FFMPEG", fps=self._rate, codec="libx264", macro_block_size=2)
        self._video.append_data(frame)
        if len(self._frames) < MAX_FRAMES:
            self._frames.append(frame)

    def __exit__(self, *error: object) -> None:
        if self._video is not None:
            self._video.close()
        if self._frames:
            write_whole(self._stem.with_name(self._stem.name + ".gif"), gif_bytes(self._frames, self._rate))


class Film(NamedTuple):
    """A recorded episode."""

    frames: list[Frame]
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


class Gate:
    """Lets one film a minute through, over all workers. Owns the time of the last one."""

    def __init__(self, seconds: float = SECONDS_BETWEEN_GIFS) -> None:
        self._lock, self._seconds, self._next = threading.Lock(), seconds, 0.0

    def enter(self) -> bool:
        """Tells whether a film may start now, and if so counts it."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return False
            self._next = now + self._seconds
            return True


class FilmedVectorEnv(VectorWrapper[Any, Any, Any]):
    """A vector environment that films every n-th episode of its first game, as far as the gate lets it.

    Owns the film in the making. One frame per decision; a finished film goes to `finished`.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], worker: int, every: int, gate: Gate, finished: Callable[[Film], None]
    ) -> None:
        super().__init__(env)
        self._worker, self._every, self._gate, self._finished = worker, every, gate, finished
        self._episode, self._score = 0, 0.0
        self._frames: list[Frame] | None = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games and begins a film if one is due."""
        result = self.env.reset(seed=seed, options=options)
        self._begin()
        return result

    def _begin(self) -> None:
        self._score = 0.0
        due = self._every > 0 and self._episode % self._every == 0 and self._gate.enter()
        self._frames = self._picture() if due else None

    def _picture(self, final: bool = False) -> list[Frame]:
        picture: Frame | None = self.env.picture(final)  # type: ignore[attr-defined]  # of this package's environments
        return [] if picture is None else [picture]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all games."""
        result = self.env.step(actions)
        _, rewards, terminated, truncated, _ = result
        self._score += float(rewards[0])
        if terminated[0] or truncated[0]:  # the game shows its next episode already
            if self._frames:
                frames = [*self._frames, *self._picture(final=True)]
                self._finished(Film(frames, self._score, self._episode, self._worker))
            self._episode += 1
            self._begin()
        elif self._frames is not None and len(self._frames) < MAX_FRAMES:
            self._frames += self._picture()
        return result


class GifMaker:
    """Makes gifs of films without holding up the games. Owns a thread and its queue."""

    def __init__(self, frames_per_second: float, made: Callable[[Gif], None]) -> None:
        self._rate, self._made = frames_per_second, made
        self._films: Queue[Film | None] = Queue(maxsize=4)
        self._thread = threading.Thread(target=self._run, name="gif-maker", daemon=True)
        self._thread.start()

    def add(self, film: Film) -> None:
        """Queues a film; drops it when the thread is several films behind."""
        with contextlib.suppress(Full):
            self._films.put_nowait(film)

    def _run(self) -> None:
        while (film := self._films.get()) is not None:
            height, width, _ = film.frames[0].shape
            data = gif_bytes(film.frames, self._rate)
            self._made(Gif(data, height, width, film.score, film.episode, film.worker))

    def close(self, timeout: float = 5.0) -> None:
        """Finishes the films in the queue, as far as the time allows."""
        with contextlib.suppress(Full):
            self._films.put(None, timeout=timeout)
        self._thread.join(timeout)


class GifFolder:
    """Keeps the newest 50 gifs of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, gif: Gif) -> None:
        """Writes a gif."""
        stamp = time.strftime("%Y%m%d-%H%M%S")  # a resumed run counts its episodes anew
        name = f"worker_{gif.worker}-episode_{gif.episode:07d}-score_{gif.score:.0f}-{stamp}.gif"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / name, gif.data)
            for old in sorted(self._folder.glob("worker_*.gif"), key=lambda p: p.stat().st_mtime)[:-KEPT_GIFS]:
                old.unlink()
        except OSError as error:  # a full disk must not end the training
            print(f"warning: no gif written: {error}", flush=True)
