"""From what has been recorded of a game in training to the pictures of a film."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from doom_a3c.envs.games import VideoRecorder
from doom_a3c.envs.process import ProcessError
from doom_a3c.record.films import MAX_PICTURES, Picture, apart
from doom_a3c.record.overlay import Overlay, beside
from doom_a3c.record.recording import Recording
from doom_a3c.run.builder import Builder
from doom_a3c.settings.fields import UserError


class FilmMaker:
    """Makes the pictures of recordings, playing them again in colour where they have none. Owns the game for that."""

    def __init__(self, builder: Builder) -> None:
        # Not the builder itself: a thread that films at the end would keep all games alive.
        self._make_replayer, self._rate, self._overlay = (
            builder.replayer,
            builder.steps_per_second,
            Overlay(builder.actions),
        )
        self._replayer: VideoRecorder | None = None

    def __call__(self, recording: Recording) -> Sequence[Picture]:
        """Returns the pictures of a recording; none where its game fails, or takes another course than it has taken.

        Large ones are fewer, see `apart`.
        """
        pictures = recording.pictures
        if recording.seed is not None:
            try:
                pictures = self._replayed(recording.seed, recording)
            except (ProcessError, UserError):
                self.close()
                return []
        if not recording.moments:
            return pictures
        # A picture is what the step after it was decided by; the last one, if there is one, comes after all of them.
        panels = [self._overlay.panel(moment) for moment in recording.moments[:1]]
        every = apart(beside(pictures[0], panels[0]), self._rate) if pictures else 1
        shown = []
        for index, picture in enumerate(pictures):
            if 0 < index < len(recording.moments):
                panels[0] = self._overlay.panel(recording.moments[index])
            if index % every == 0 or index == len(pictures) - 1:
                shown.append(beside(picture, panels[0]))
        return shown

    def _replayed(self, seed: int, recording: Recording) -> Sequence[Picture]:
        self._replayer = replayer = self._replayer or self._make_replayer()
        assert replayer is not None
        pictures = replayer.reset(seed)
        for action in recording.actions:
            newest = replayer.step(action, ended=False)
            pictures = pictures[:MAX_PICTURES] if len(pictures) > MAX_PICTURES else pictures
            pictures += newest
        whole = replayer.score is not None and abs(replayer.score - recording.score) < 1e-3
        return pictures if whole else []

    def close(self) -> None:
        """Ends the game; another one is started when there is need of one."""
        with contextlib.suppress(OSError):
            if self._replayer is not None:
                self._replayer.close()
        self._replayer = None
