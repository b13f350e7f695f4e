"""Matches from the view of some of their players: opponents play the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from doom_a3c.agent.distributions import Actions, Array, explore
from doom_a3c.agent.games_wrapper import GamesWrapper
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.player import Bools, GameVector, Rewards
from doom_a3c.agent.policy import Decider
from doom_a3c.settings.interface import RIVALS, map_nested


def read_rivals(infos: dict[str, Any], games: int) -> Sequence[Sequence[float] | None]:
    """Returns the final frags of each game's rivals, [B]; None where no match has ended or a fault has ended it."""
    rivals: Sequence[Sequence[float] | None] = infos.get("final_info", {}).get(RIVALS, [None] * games)
    return rivals


class Opponent(Protocol):
    """Plays K players of matches. Owns their recurrent state."""

    def act(self, observations: Observations, resets: Array) -> Actions:
        """Returns the actions, [K, ...], for observations [K, ...]; resets, [K], are 1 at a match's first."""
        ...

    def note(self, frags: Rewards, ended: Bools, rivals: Sequence[Sequence[float] | None]) -> None:
        """Takes the players' frags in the last step, [K], whether it ended their matches, and their rivals' final frags.

        Does nothing unless overridden.
        """
        return  # a default, not an abstract method


class PolicyOpponent(Opponent):
    """An opponent that samples its actions from a policy."""

    def __init__(self, policy: Decider, players: int, random: np.random.Generator, epsilon: float = 0.0) -> None:
        """`epsilon` is the probability of a random action."""
        self._policy, self._random = policy, random
        self._core_state = policy.initial_state(players)
        self._epsilons = np.full(players, epsilon, np.float32)

    def act(self, observations: Observations, resets: Array) -> Actions:
        decision = self._policy(observations, resets, self._core_state)
        self._core_state = decision.core_state
        actions, _ = explore(self._policy.distribution, decision.logits, self._epsilons, self._random)
        return actions


class OpposedGames(GamesWrapper):
    """A vector of matches of which only some players are shown, each as a game; an opponent plays the others."""

    def __init__(self, env: GameVector, shown: Sequence[int], opponent: Opponent) -> None:
        """`shown` has the indices of the shown players, in order; the first player of each match must be one of them."""
        super().__init__(env)
        self._shown = np.array(shown)
        self._hidden = np.setdiff1d(np.arange(env.num_envs), self._shown)
        self._opponent = opponent
        self._seen: Observations  # by the hidden players
        self._resets = np.ones(len(self._hidden), np.float32)
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space
        self.observation_space = batch_space(env.single_observation_space, len(shown))
        self.action_space = batch_space(env.single_action_space, len(shown))
        if hasattr(env, "history"):
            self.history = self._read_history

    @property
    def num_envs(self) -> int:  # type: ignore[override]  # Gymnasium's own wrapper has this property, too
        """The number of shown players."""
        return len(self._shown)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all matches; `seed` has one for each shown player, or is one for all."""
        seeds = np.full(self.env.num_envs, None)
        seeds[self._shown] = seed
        observations, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]  # an array, as all vectors here take
        self._resets = np.ones_like(self._resets)
        return self._show(observations), self._select(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all matches."""
        theirs = self._opponent.act(self._seen, self._resets)
        joined = np.empty((self.env.num_envs, *theirs.shape[1:]), theirs.dtype)
        joined[self._shown], joined[self._hidden] = actions, theirs
        observations, *results, infos = self.env.step(joined)
        frags, terminated, truncated = (each[self._hidden] for each in results)
        ended = terminated | truncated
        self._resets = ended.astype(np.float32)
        rivals = read_rivals(infos, self.env.num_envs)
        self._opponent.note(frags, ended, [rivals[player] for player in self._hidden.tolist()])
        rewards, terminated, truncated = (each[self._shown] for each in results)
        return self._show(observations), rewards, terminated, truncated, self._select(infos)

    def _show(self, observations: Any) -> Any:
        """Keeps the hidden players' observations; returns the shown players'."""
        self._seen = map_nested(lambda array: array[self._hidden], observations)
        return map_nested(lambda array: array[self._shown], observations)

    def _select(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Returns the infos of the shown players."""
        return {key: self._select(value) if isinstance(value, dict) else value[self._shown] for key, value in infos.items()}

    def _read_history(self, steps: int) -> Any:
        """Returns the observations before and after the last `steps` steps, [steps + 1, B, ...], as the games' own does."""
        kept: NDArray[Any] | dict[str, NDArray[Any]] = self.env.history(steps)  # type: ignore[attr-defined]
        return map_nested(lambda array: array[:, self._shown], kept)
