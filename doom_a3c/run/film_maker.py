"""From what has been recorded of a game in training to the pictures of a film."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from doom_a3c.envs.games import VideoRecorder
from doom_a3c.envs.process import ProcessError
from doom_a3c.record.gif_writer import Picture
from doom_a3c.record.overlay import Overlay, beside
from doom_a3c.record.recording import LostFilmError, Recording
from doom_a3c.run.builder import Builder
from doom_a3c.settings.fields import UserError


class FilmMaker:
    """Makes the pictures of recordings, playing them again in colour where they have none. Owns the game for that."""

    def __init__(self, builder: Builder) -> None:
        # Not the builder itself: a thread that films at the end would keep all games alive.
        self._make_replayer, self._overlay = builder.replayer, Overlay(builder.actions)
        self._replayer: VideoRecorder | None = None

    def __call__(self, recording: Recording) -> Iterator[Picture]:
        """Yields the pictures of a recording, with what belongs to each step beside them where that is known.

        Raises:
            LostFilmError: if its game fails, or takes another course than it has taken.
        """
        pictures = iter(recording.pictures) if recording.seed is None else self._replayed(recording.seed, recording)
        panel = None
        for index, picture in enumerate(pictures):  # which the step after it was decided by; the last has none
            if index < len(recording.moments):
                panel = self._overlay.panel(recording.moments[index])
            yield picture if panel is None else beside(picture, panel)

    def _replayed(self, seed: int, recording: Recording) -> Iterator[Picture]:
        try:
            self._replayer = replayer = self._replayer or self._make_replayer()
            assert replayer is not None
            yield from replayer.reset(seed)
            for step, action in enumerate(recording.actions, 1):
                yield from replayer.step(action, ended=step == len(recording.actions))
            score = replayer.score
        except (ProcessError, UserError) as error:
            self.close()
            raise LostFilmError(str(error)) from error
        if score is None or abs(score - recording.score) > 1e-3:
            raise LostFilmError(f"its score is {score}, and was {recording.score}")

    def close(self) -> None:
        """Ends the game; another one is started when there is need of one."""
        with contextlib.suppress(OSError):
            if self._replayer is not None:
                self._replayer.close()
        self._replayer = None
