"""Playing: the one loop that steps games, for training, evaluation and recordings alike.

What leads to what, for one game:

    observation_t, reset_t, core_state_t  --policy-->  logits_t, value_t, core_state_{t+1};  action_t ~ logits_t
    action_t  --game-->  reward_t, terminated_t, truncated_t, observation_{t+1}, reset_{t+1}

`reset_t` is 1 where observation_t is the first of its episode; the network zeroes core_state_t there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from doom_a3c.agent.distributions import Actions, Array, explore
from doom_a3c.agent.networks import Observations
from doom_a3c.agent.policy import Decider, Decision
from doom_a3c.settings.infos import CUT_SHORT, FAULTS, LIFE_LOST, SHAPING
from doom_a3c.settings.streams import split

Bools = NDArray[np.bool_]
Rewards = NDArray[np.float64]


class Episode(NamedTuple):
    """A finished episode, in the game's own units."""

    score: float  # sum of unscaled rewards
    length: int  # steps
    value: float  # mean value of the network, scaled
    game: int  # which of the player's games
    shaped: float  # the score with what shaping has paid for learning


class Step(NamedTuple):
    """One step of B games: what was decided upon, and what came of it."""

    observations: Observations  # [B, ...]
    resets: Array  # [B]
    decision: Decision
    actions: Actions  # [B, ...]
    log_probs: Array  # [B], of the actions as they were drawn, random exploration included
    rewards: Rewards  # [B], the game's own
    bonuses: Rewards  # [B], what shaping pays besides, for learning alone
    terminated: Bools  # [B]
    truncated: Bools  # [B]
    life_lost: Bools  # [B], a death for learning, though the game continues
    finals: Any  # [B], an episode's own last observation in the games whose episode has ended; None where none has
    episodes: Sequence[Episode]  # that have ended, but for those that a fault cut short: they have no score
    cut_short: Bools  # [B], a fault has ended the episode
    faults: Sequence[str]  # the kinds of all faults met


def split_seed(seed: np.random.SeedSequence, games: int) -> tuple[np.random.Generator, Any]:
    """Returns a player's generator of actions, and a seed for each game in the array form that all vectors take."""
    actions, resets = split(seed, 2)
    return np.random.default_rng(actions), resets.generate_state(games)


def met_faults(infos: dict[str, Any]) -> list[str]:
    """Returns the kinds of all faults that games have met, of their own or of what runs them."""
    tables = (infos.get("final_info", {}), infos)
    return [kind for table in tables for kinds in table.get(FAULTS, ()) for kind in kinds or ()]


def _read_bonuses(infos: dict[str, Any], games: int) -> Rewards:
    """Returns what shaping pays each game, be the step its episode's last one or not."""
    nothing = np.zeros(games)
    paid: Rewards = infos.get("final_info", {}).get(SHAPING, nothing) + infos.get(SHAPING, nothing)
    return paid


def _cut_short(infos: dict[str, Any], games: int) -> Bools:
    """Returns for each game whether a fault has ended its episode: such an episode has no score."""
    cut: Bools = infos.get("final_info", {}).get(CUT_SHORT, np.zeros(games, np.bool_))
    return cut


class Player:
    """Plays B games as a policy decides.

    Owns the games' newest observations, their recurrent state and the sums of running episodes.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], policy: Decider, random: np.random.Generator, seeds: Any = None
    ) -> None:
        """Resets the games, with `seeds` if there are any; actions are drawn from `random`."""
        self._env, self.policy, self._random = env, policy, random
        self.games = batch = env.num_envs
        self.core_state = policy.initial_state(batch)
        self.observations, self.infos = env.reset(seed=seeds)
        self.faults, self.cut_short = met_faults(self.infos), _cut_short(self.infos, batch)  # of the reset
        self.resets = np.ones(batch, np.float32)
        self._scores, self._shaped, self._value_sums = np.zeros(batch), np.zeros(batch), np.zeros(batch)
        self._lengths = np.zeros(batch, np.int64)

    @classmethod
    def from_seed(cls, env: VectorEnv[Any, Any, Any], policy: Decider, seed: np.random.SeedSequence) -> Self:
        """Returns a player whose games and actions follow from a seed."""
        return cls(env, policy, *split_seed(seed, env.num_envs))

    def step(self, epsilons: Array, greedy: bool | Bools = False) -> Step:
        """Plays one step of every game.

        Args:
            epsilons: probability of a uniformly random action, per game, [B].
            greedy: which games take their likeliest action, a bool or bools [B].
        """
        observations, resets = self.observations, self.resets
        decision = self.policy(observations, resets, self.core_state)
        actions, log_probs = explore(self.policy.distribution, decision.logits, epsilons, self._random, greedy)
        self.observations, rewards, terminated, truncated, self.infos = self._env.step(actions)
        infos = self.infos
        self.core_state, ends = decision.core_state, terminated | truncated
        self.resets = ends.astype(np.float32)
        cut_short, bonuses = _cut_short(infos, len(ends)), _read_bonuses(infos, len(ends))
        return Step(
            observations,
            resets,
            decision,
            actions,
            log_probs,
            rewards,
            bonuses,
            terminated,
            truncated,
            infos.get(LIFE_LOST, np.zeros(len(ends), np.bool_)),
            infos.get("final_obs"),
            self._count(rewards, bonuses, decision.values, ends, cut_short),
            cut_short,
            met_faults(infos),
        )

    def value(self) -> Array:
        """Returns the values of the newest observations, [B], without taking a step."""
        return self.policy(self.observations, self.resets, self.core_state).values

    def _count(self, rewards: Rewards, bonuses: Rewards, values: Array, ends: Bools, cut_short: Bools) -> list[Episode]:
        """Adds a step to the running episodes; returns the finished ones."""
        with np.errstate(over="ignore", invalid="ignore"):  # a score that is not finite is a fault
            self._scores += rewards
            self._shaped += rewards + bonuses
        self._value_sums += values
        self._lengths += 1
        episodes = []
        for game in np.flatnonzero(ends & ~cut_short):
            mean_value = self._value_sums[game] / self._lengths[game]
            score, shaped, length = float(self._scores[game]), float(self._shaped[game]), int(self._lengths[game])
            episodes.append(Episode(score, length, float(mean_value), int(game), shaped))
        for sums in (self._scores, self._shaped, self._value_sums, self._lengths):
            sums[ends] = 0
        return episodes

    def close(self) -> None:
        """Closes the games."""
        self._env.close()
