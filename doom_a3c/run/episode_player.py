"""Playing single episodes of a trained agent, to be recorded and watched."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Episode, Player
from doom_a3c.agent.policy import Policy
from doom_a3c.envs.games import VideoRecorder
from doom_a3c.envs.process import ProcessError
from doom_a3c.record.recording import Picture, VideoWriter
from doom_a3c.run.builder import Builder
from doom_a3c.settings.fields import UserError


class Screen(Protocol):
    """Where people watch."""

    def show(self, picture: Picture, pictures_per_second: float) -> None:
        """Shows a picture, [height, width, 3], for as long as it lasts."""

    def close(self) -> None:
        """Closes it."""


class EpisodePlayer:
    """Plays single episodes, recording them on request. Owns a game and what records it; a context that closes both."""

    def __init__(
        self, builder: Builder, network: ACNetwork, *, greedy: bool, epsilon: float, record: bool, screen: Screen | None
    ) -> None:
        """`record` tells whether any episode will be; with a `screen` all are watched there."""
        self._policy, self._greedy, self._epsilon = Policy(network), greedy, np.array([epsilon], np.float32)
        self.interrupted = False  # set it, and the episode under way ends with its next step
        self._env = builder.evaluation_env(1)
        self._recorder = builder.recorder(self._env) if record or screen else None
        self._screen = screen

    def __enter__(self) -> EpisodePlayer:
        return self

    def __exit__(self, *error: object) -> None:
        self._env.close()
        for view in (self._recorder, self._screen):
            if view:
                view.close()

    def episode(self, seed: int, stem: Path | None) -> Episode:
        """Plays one episode from its first observation to its end; records it as `stem`.mp4 and .gif where there is one.

        Raises:
            KeyboardInterrupt: after an interrupt, whatever else that has broken.
            UserError: if the game fails.
        """
        try:
            return self._recorded(seed, stem)
        except Exception:
            if self.interrupted:
                raise KeyboardInterrupt from None
            raise

    def _recorded(self, seed: int, stem: Path | None) -> Episode:
        recorder = self._recorder if stem or self._screen else None
        if recorder is None:
            return self._played(seed, None, lambda picture: None)
        video = VideoWriter(stem, recorder.pictures_per_second) if stem else None

        def show(picture: Picture) -> None:
            if self._screen:
                self._screen.show(picture, recorder.pictures_per_second)
            if video:
                video.add(picture)

        with video or contextlib.nullcontext():
            try:
                return self._played(seed, recorder, show)
            except ProcessError as error:
                raise UserError(f"the game failed while it was recorded ({error}); run play.py again") from None

    def _played(self, seed: int, recorder: VideoRecorder | None, show: Callable[[Picture], None]) -> Episode:
        random = np.random.default_rng(seed)  # an episode's own: it is the same whatever has been played before
        seeds: Any = np.array([seed])  # the form that all vector environments take
        player = Player(self._env, self._policy, random, seeds)
        if player.cut_short[0]:
            raise UserError(f"the game failed as it began ({', '.join(player.faults)}); run play.py again")
        for picture in recorder.reset(int(player.infos["seed"][0]) if "seed" in player.infos else seed) if recorder else ():
            show(picture)
        episode = None
        while episode is None:
            if self.interrupted:
                signal.alarm(0)  # which watches over a step that may not come
                raise KeyboardInterrupt
            step = player.step(self._epsilon, self._greedy)
            if step.cut_short[0]:
                raise UserError(f"the game failed while it was played ({', '.join(step.faults)}); run play.py again")
            (episode,) = step.episodes or (None,)
            for picture in recorder.step(step.actions[0], episode is not None) if recorder else ():
                show(picture)
        if recorder and recorder.score is not None and abs(recorder.score - episode.score) > 1e-3:
            print(f"warning: the recording of seed {seed} shows another course ({recorder.score:.1f})", file=sys.stderr)
        return episode
