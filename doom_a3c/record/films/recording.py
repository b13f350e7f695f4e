"""Records games during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gymnasium.vector import VectorEnv

from doom_a3c.record.films.gif_writer import MAX_PICTURES, Picture
from doom_a3c.record.films.overlay import StepView
from doom_a3c.record.metrics.rate_limiter import RateLimiter


class Recording(NamedTuple):
    """A recorded episode: its pictures, or the seed and actions that replay it."""

    pictures: Sequence[Picture]  # of its first observation and of each step
    score: float
    episode: int  # of its game
    worker: int
    seed: int | None = None  # of an episode to replay
    actions: Sequence[Any] = ()  # of each step, for the replay
    views: Sequence[StepView] = ()  # of each step, with an overlay


class LostFilmError(Exception):
    """A replay failed or differs from the recorded episode."""


@dataclass
class _Draft:
    """An unfinished recording."""

    pictures: list[Picture]
    seed: int | None
    score: float = 0.0
    actions: list[Any] = field(default_factory=list)
    views: list[StepView] = field(default_factory=list)


def _has_seed(infos: dict[str, Any]) -> bool:
    """Returns whether the infos hold the seed of the first game's episode."""
    return "seed" in infos and bool(infos.get("_seed", [True])[0])


class EpisodeRecorder:
    """Records every n-th episode of the first game of a vector environment, as far as the limiter allows.

    Owns the unfinished recording. `finished` receives complete ones, with one picture per step, or, if games are to be
    `replayed`, with seed and actions only: such games report their episodes' seeds in `infos`, or can `begin_again`.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        worker: int,
        every: int,
        limiter: RateLimiter,
        finished: Callable[[Recording], None],
        *,
        replayed: bool = False,
    ) -> None:
        self._env, self._worker, self._every, self._limiter = env, worker, every, limiter
        self._finished, self._replayed = finished, replayed
        self._episode = 0  # of the first game
        self._recording: _Draft | None = None

    def wants_view(self, ended: bool) -> bool:
        """Returns whether the view of the newest step, which may have ended the episode, belongs in the recording."""
        return self._recording is not None and (ended or len(self._recording.actions) + 1 < MAX_PICTURES)

    def begin(self, observations: Any, infos: dict[str, Any]) -> Any:
        """Begins a recording if one is due and has a first picture; returns the games' current observations."""
        self._recording = None
        if self._every == 0 or self._episode % self._every:
            return observations
        if self._replayed and not _has_seed(infos):
            if not hasattr(self._env, "begin_again"):  # its server has died, or the games are being closed
                return observations
            # Even if the limiter refuses the recording: a run must not depend on the clock.
            observations, infos = self._env.begin_again()
        if not self._limiter.allow():
            return observations
        if self._replayed:
            self._recording = _Draft([], int(infos["seed"][0]))
        else:
            pictures = self._take_picture()
            self._recording = _Draft(pictures, None) if pictures else None
        return observations

    def _take_picture(self, final: bool = False) -> list[Picture]:
        picture: Picture | None = self._env.picture(final)  # type: ignore[attr-defined]  # of this package's environments
        return [] if picture is None else [picture]

    def drop(self) -> None:
        """Drops the running recording: a fault has cut its episode short, which then has no score."""
        self._recording = None

    def add(self, action: Any, reward: float, ended: bool, view: StepView | None = None) -> None:
        """Adds a step of the first game, with its `view` if `wants_view`; passes on a complete recording."""
        draft = self._recording
        if ended:
            self._episode += 1
        if draft is None:
            return
        draft.score += reward
        draft.actions.append(action)
        if not self._replayed and (ended or len(draft.actions) < MAX_PICTURES):
            draft.pictures.extend(self._take_picture(final=ended))
        if view is not None:
            draft.views.append(view)
        if ended:
            seen = draft.pictures, draft.score, self._episode - 1, self._worker
            self._finished(Recording(*seen, draft.seed, draft.actions, draft.views))
