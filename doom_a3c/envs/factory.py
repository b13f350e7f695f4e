"""What the rest of the program knows of a scenario's games: their factory, their facts and their films."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from doom_a3c.envs.processes.early_vectors import EarlyVectors

if TYPE_CHECKING:
    from doom_a3c.envs.flattening import Label
    from doom_a3c.envs.pixels import Pixels  # loads OpenCV, which the trainer does not need


class VideoRecorder(Protocol):
    """Records the episodes of a single game in colour."""

    pictures_per_second: float

    @property
    def score(self) -> float | None:
        """Score of the recorded episode; None if the recorder films the player's own game.

        A recorder with its own game must reach the player's score; otherwise it has filmed another episode.
        """

    def reset(self, seed: int) -> list[Pixels]:
        """Starts recording an episode; returns its first picture, [height, width, 3]."""

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        """Returns the pictures of a step, each [height, width, 3]."""

    def close(self) -> None:
        """Frees the recorder's game."""


class Facts(NamedTuple):
    """Properties that all games of a factory share."""

    observations: Space[Any]  # of one game
    actions: Space[Any]
    title: str  # the game and its actions
    action_names: Sequence[str] | None  # None if the actions have no names
    draws: bool = True  # whether the game draws pictures for films
    labels: Sequence[Label] | None = None  # names of the observed numbers, None if the scenario names them
    left_out: Sequence[str] = ()  # parts of the game's observations that the agent does not see


class GameFactory(ABC):
    """Makes the games of a scenario. Owns the vectors of an early start."""

    steps_per_second: float  # in real time
    agents = 1  # how many consecutive games of a vector are players of one match
    replayed = False  # whether `make_replayer` returns a recorder

    def __init__(self) -> None:
        self._early = EarlyVectors()
        self._facts: Facts | None = None

    @abstractmethod
    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        """Returns games that are stepped together, more than `games` if whole matches need them.

        `limited` ends episodes that could last forever.

        The vector has two more methods than Gymnasium's: `picture`, and `release`, which frees a thread that waits for it.
        With `rows` > 1 it may have a third one, `history`, which returns up to `rows` consecutive observations. Then
        the observations that `step` returns may be views.
        """

    @abstractmethod
    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        """Returns one game in this process, for learners of other programs; its episodes are limited."""

    @abstractmethod
    def make_recorder(self, env: VectorEnv[Any, Any, Any], *, large: bool = False) -> VideoRecorder:
        """Returns a recorder for an `env` of one game, with `large` pictures if the game can draw them."""

    def make_replayer(self) -> VideoRecorder | None:
        """Returns a recorder that replays an episode from `infos["seed"]` and its actions, one picture per step."""
        return None

    def describe(self) -> Facts:
        """Returns the facts about the games; the first call may start one."""
        if self._facts is None:
            if vector := self._early.first:
                self._facts = describe_vector(vector)
            else:
                with closing(self.make_vector(1, limited=True)) as env:
                    self._facts = describe_vector(env)
        return self._facts

    def start_early(self, vectors: int, games: int, rows: int) -> None:
        """Starts `vectors` of training games in the background if that takes long; `make_vector` then returns them."""
        return

    def startup_status(self) -> str:
        """Returns the progress of an early start, such as 'starting 48 games: 12'; '' if there is none."""
        return self._early.status

    def check(self) -> None:
        """Waits for the first game of an early start; raises UserError if it does not start."""
        if vector := self._early.first:
            vector.wait_for_one()

    def close(self) -> None:
        """Closes the games of an early start that were never used."""
        self._early.close()


def describe_vector(env: VectorEnv[Any, Any, Any], draws: bool = True) -> Facts:
    """Returns the facts about the games of a vector."""
    spaces, metadata = (env.single_observation_space, env.single_action_space), env.metadata
    names, labels, left_out = metadata.get("action_names"), metadata.get("labels"), metadata.get("left_out", ())
    return Facts(*spaces, metadata["title"], names, draws, labels, left_out)
