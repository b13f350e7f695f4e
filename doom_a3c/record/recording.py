"""Recording games in training, as they are played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gymnasium.vector import VectorEnv, VectorWrapper

from doom_a3c.record.gif_writer import MAX_PICTURES, Picture
from doom_a3c.record.overlay import StepView
from doom_a3c.record.rate_limiter import RateLimiter


class Recording(NamedTuple):
    """A recorded episode, by its pictures, or by what it takes to play it again."""

    pictures: Sequence[Picture]  # of its first observation and of each step
    score: float
    episode: int  # of its game
    worker: int
    seed: int | None = None  # where there are no pictures
    actions: Sequence[int] = ()  # of each step, then
    moments: Sequence[StepView] = ()  # of each step, where they are to be seen


class LostFilmError(Exception):
    """An episode cannot be shown again as it was."""


class Narrator(Protocol):
    """Knows what an agent has seen and thought in the newest step of a vector's first game."""

    def begin(self) -> None:
        """Begins an episode."""

    def moment(self, action: int, reward: float) -> StepView:
        """Returns the record of the step that has just been played."""


@dataclass
class _Making:
    """A recording in the making."""

    pictures: list[Picture]
    seed: int | None
    score: float = 0.0
    actions: list[int] = field(default_factory=list)
    moments: list[StepView] = field(default_factory=list)


def _tells_seed(infos: dict[str, Any]) -> bool:
    """Tells whether the first game says which seed its episode has."""
    return "seed" in infos and bool(infos.get("_seed", [True])[0])


class RecordedVectorEnv(VectorWrapper[Any, Any, Any]):
    """A vector environment that records every n-th episode of its first game, as far as the limiter allows.

    Owns the recording in the making. A finished one goes to `finished`, with one picture a step; or with seed and actions
    alone, where games are to be `replayed`: those tell the seeds of their episodes in their infos, or can `begin_again`.
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
        """A `narrator` knows what is to be seen beside the pictures."""
        super().__init__(env)
        self._worker, self._every, self._limiter, self._finished = worker, every, limiter, finished
        self._replayed, self._narrator = replayed, narrator
        self._episode = 0  # of the first game
        self._recording: _Making | None = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games and begins a recording if one is due."""
        return self._begin(*self.env.reset(seed=seed, options=options))

    def _begin(self, observations: Any, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begins a recording if one is due; without a first picture there is none. Returns what is to be seen now."""
        self._recording = None
        if self._every == 0 or self._episode % self._every:
            return observations, infos
        if self._replayed and not _tells_seed(infos):
            if not hasattr(self.env, "begin_again"):  # its server is gone, or all are being closed
                return observations, infos
            # Whether it is recorded or not: runs do not depend on the clock.
            observations, told = self.env.begin_again()
            infos = {**infos, **told}
        if not self._limiter.allow():
            return observations, infos
        if self._replayed:
            self._recording = _Making([], int(infos["seed"][0]))
        else:
            pictures = self._picture()
            self._recording = _Making(pictures, None) if pictures else None
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
        if ended:  # the game shows its next episode already
            self._episode += 1
            observations, infos = self._begin(observations, infos)
        return observations, rewards, terminated, truncated, infos

    def _record(self, making: _Making, action: int, reward: float, ended: bool) -> None:
        """Adds a step; hands the recording out where it is the last one."""
        making.score += reward
        making.actions.append(action)
        if ended or len(making.actions) < MAX_PICTURES:
            if not self._replayed:
                making.pictures.extend(self._picture(final=ended))
            if self._narrator:
                making.moments.append(self._narrator.moment(action, reward))
        if ended:
            seen = making.pictures, making.score, self._episode, self._worker
            self._finished(Recording(*seen, making.seed, making.actions, making.moments))
