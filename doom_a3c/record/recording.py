"""Records games during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gymnasium.vector import VectorEnv, VectorWrapper

from doom_a3c.record.gif_writer import MAX_PICTURES, Picture
from doom_a3c.record.overlay import StepView
from doom_a3c.record.rate_limiter import RateLimiter


class Recording(NamedTuple):
    """A recorded episode: its pictures, or the seed and actions that replay it."""

    pictures: Sequence[Picture]  # of its first observation and of each step
    score: float
    episode: int  # of its game
    worker: int
    seed: int | None = None  # of an episode to replay
    actions: Sequence[int] = ()  # of each step, for the replay
    views: Sequence[StepView] = ()  # of each step, with an overlay


class LostFilmError(Exception):
    """A replay failed or differs from the recorded episode."""


class Narrator(Protocol):
    """Knows the agent's input and outputs in the newest step of a vector's first game."""

    def begin(self) -> None:
        """Begins an episode."""

    def view_step(self, action: int, reward: float) -> StepView:
        """Returns the view of the step that has just been played."""


@dataclass
class _Draft:
    """An unfinished recording."""

    pictures: list[Picture]
    seed: int | None
    score: float = 0.0
    actions: list[int] = field(default_factory=list)
    views: list[StepView] = field(default_factory=list)


def _has_seed(infos: dict[str, Any]) -> bool:
    """Returns whether the infos hold the seed of the first game's episode."""
    return "seed" in infos and bool(infos.get("_seed", [True])[0])


class RecordedVectorEnv(VectorWrapper[Any, Any, Any]):
    """Records every n-th episode of a vector's first game, as often as the limiter allows.

    Owns the unfinished recording. `finished` receives complete ones, with one picture per step, or with seed and actions
    only if games are to be `replayed`: these report the seeds of their episodes in `infos`, or can `begin_again`.
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
        narrator: Narrator | None = None,
    ) -> None:
        """A `narrator` provides the views for the overlay."""
        super().__init__(env)
        self._worker, self._every, self._limiter, self._finished = worker, every, limiter, finished
        self._replayed, self._narrator = replayed, narrator
        self._episode = 0  # of the first game
        self._recording: _Draft | None = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games and begins a recording if one is due."""
        return self._begin(*self.env.reset(seed=seed, options=options))

    def _begin(self, observations: Any, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begins a recording if one is due and the game has a picture; returns the current observations and infos."""
        self._recording = None
        if self._every == 0 or self._episode % self._every:
            return observations, infos
        if self._replayed and not _has_seed(infos):
            if not hasattr(self.env, "begin_again"):  # its server has died, or the vector is closing
                return observations, infos
            # Even if the limiter then forbids it: a run must not depend on the clock.
            observations, more = self.env.begin_again()
            infos = {**infos, **more}
        if not self._limiter.allow():
            return observations, infos
        if self._replayed:
            self._recording = _Draft([], int(infos["seed"][0]))
        else:
            pictures = self._picture()
            self._recording = _Draft(pictures, None) if pictures else None
        if self._recording and self._narrator:
            self._narrator.begin()
        return observations, infos

    def _picture(self, final: bool = False) -> list[Picture]:
        picture: Picture | None = self.env.picture(final)  # type: ignore[attr-defined]  # of this package's environments
        return [] if picture is None else [picture]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all games."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        ended = bool(terminated[0] or truncated[0])
        if self._recording:
            self._record(self._recording, int(actions[0]), float(rewards[0]), ended)
        if ended:  # same-step autoreset: the next episode has begun
            self._episode += 1
            observations, infos = self._begin(observations, infos)
        return observations, rewards, terminated, truncated, infos

    def _record(self, draft: _Draft, action: int, reward: float, ended: bool) -> None:
        """Adds a step; passes the recording on after the last one."""
        draft.score += reward
        draft.actions.append(action)
        if ended or len(draft.actions) < MAX_PICTURES:
            if not self._replayed:
                draft.pictures.extend(self._picture(final=ended))
            if self._narrator:
                draft.views.append(self._narrator.view_step(action, reward))
        if ended:
            facts = draft.pictures, draft.score, self._episode, self._worker
            self._finished(Recording(*facts, draft.seed, draft.actions, draft.views))
