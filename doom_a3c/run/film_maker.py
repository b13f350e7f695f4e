"""Makes the pictures of a film from a recording of a training game."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from doom_a3c.envs.factory import VideoRecorder
from doom_a3c.envs.processes.client import ProcessError
from doom_a3c.record.films.gif_writer import MAX_PICTURES, Picture
from doom_a3c.record.films.overlay import Overlay, place_beside
from doom_a3c.record.films.recording import LostFilmError, Recording
from doom_a3c.run.builder import Builder
from doom_a3c.settings.errors import UserError

STEP_SECONDS = 3.0  # for the current step of a replay when the run ends


class FilmMaker:
    """Makes the pictures of recordings; replays a recording without pictures in colour. Owns the game for replays."""

    def __init__(self, builder: Builder) -> None:
        # Not the builder itself: a thread that still films at the end would keep all games alive.
        self._make_replayer, self._overlay = builder.replayer, Overlay(builder.actions)
        self._replayer: VideoRecorder | None = None
        self._lock, self._closed = threading.Lock(), False

    def __call__(self, recording: Recording) -> Iterator[Picture]:
        """Yields the first 2999 pictures of a recording and the last one, with the view of their step beside them, if any.

        Raises:
            LostFilmError: if the replay fails or ends with another score.
        """
        pictures = iter(recording.pictures) if recording.seed is None else self._replay(recording.seed, recording)
        panel = last = None
        for index, picture in enumerate(pictures):  # each is the input of the step after it; the last has none
            if index >= MAX_PICTURES - 1:
                last = picture
                continue
            if index < len(recording.views):
                panel = self._overlay.panel(recording.views[index])
            yield picture if panel is None else place_beside(picture, panel)
        if last is not None:
            if len(recording.views) >= MAX_PICTURES:
                panel = self._overlay.panel(recording.views[-1])
            yield last if panel is None else place_beside(last, panel)

    def _replay(self, seed: int, recording: Recording) -> Iterator[Picture]:
        try:
            with self._guard_step():
                self._replayer = replayer = self._replayer or self._make_replayer()
                assert replayer is not None
                pictures = replayer.reset(seed)
            yield from pictures
            for step, action in enumerate(recording.actions, 1):
                with self._guard_step():
                    pictures = replayer.step(action, ended=step == len(recording.actions))
                yield from pictures
            score = replayer.score
        except (ProcessError, UserError) as error:
            self._end_game()
            raise LostFilmError(str(error)) from error
        if score is None or abs(score - recording.score) > 1e-3:
            raise LostFilmError(f"its score is {score}, and was {recording.score}")

    @contextlib.contextmanager
    def _guard_step(self) -> Iterator[None]:
        """Delays `close` until a step is over; raises LostFilmError after `close`."""
        with self._lock:
            if self._closed:
                raise LostFilmError("the run has ended")
            yield

    def close(self) -> None:
        """Ends the game, after the current step of a filming thread unless that takes too long."""
        held = self._lock.acquire(timeout=STEP_SECONDS)
        self._closed = True
        self._end_game()
        if held:
            self._lock.release()

    def _end_game(self) -> None:
        with contextlib.suppress(OSError):
            if self._replayer is not None:
                self._replayer.close()
        self._replayer = None
