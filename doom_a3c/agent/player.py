"""Playing: the one loop that steps games, for training, evaluation and recordings alike.

The order of events in one game:

    observation_t, reset_t, core_state_t  --policy-->  logits_t, value_t, core_state_{t+1};  action_t ~ logits_t
    action_t  --game-->  reward_t, terminated_t, truncated_t, observation_{t+1}, reset_{t+1}

`reset_t` is 1 if observation_t is the first of its episode; the network then zeroes core_state_t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from doom_a3c.agent.distributions import Actions, Array, explore
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.policy import Decider, Decision
from doom_a3c.settings.interface import CUT_SHORT, FAULTS, LIFE_LOST, RIVALS, SHAPING
from doom_a3c.settings.streams import split

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has its own

Bools = NDArray[np.bool_]
Rewards = NDArray[np.float64]
GameVector: TypeAlias = VectorEnv[Any, Any, Any]  # B games that step together
Seeds: TypeAlias = Any  # an array of one seed per game, as all vectors take it; Gymnasium's type knows only lists


class Episode(NamedTuple):
    """A finished episode, in the game's own units."""

    score: float  # sum of the game's own rewards, unscaled
    length: int  # steps
    value: float  # mean value estimate of the network, in scaled rewards
    game: int  # index of the player's game
    shaped: float  # the score plus all shaping rewards
    rivals: tuple[float, ...] = ()  # the other players' frags, in a match


class Step(NamedTuple):
    """One step of B games: the decision and its outcome."""

    observations: Observations  # [B, ...]
    resets: Array  # [B]
    decision: Decision
    actions: Actions  # [B, ...]
    log_probs: Array  # [B], of the actions, with the probability of random exploration
    rewards: Rewards  # [B], from the game itself
    bonuses: Rewards  # [B], shaping rewards, added for learning only
    terminated: Bools  # [B]
    truncated: Bools  # [B]
    life_lost: Bools  # [B], learning treats it as the episode's end, though the game continues
    finals: NDArray[np.object_] | None  # [B], the last observation of each episode that ended here; None if none did
    episodes: Sequence[Episode]  # the finished ones, without episodes that a fault cut short: they have no score
    cut_short: Bools  # [B], a fault ended the episode
    faults: Sequence[str]  # the kinds of all faults


def split_seed(seed: np.random.SeedSequence, games: int) -> tuple[np.random.Generator, Seeds]:
    """Returns the random generator of a player's actions, and one seed per game."""
    actions, resets = split(seed, 2)
    return np.random.default_rng(actions), resets.generate_state(games)


def read_faults(infos: dict[str, Any]) -> list[str]:
    """Returns the kinds of all faults in games and game processes."""
    tables = (infos.get("final_info", {}), infos)
    return [kind for table in tables for kinds in table.get(FAULTS, ()) for kind in kinds or ()]


def read_bonuses(infos: dict[str, Any], games: int) -> Rewards:
    """Returns the shaping rewards of a step, [B]; at the end of an episode they are in its `final_info`."""
    nothing = np.zeros(games)
    paid: Rewards = infos.get("final_info", {}).get(SHAPING, nothing) + infos.get(SHAPING, nothing)
    return paid


def _cut_short(infos: dict[str, Any], games: int) -> Bools:
    """Returns for each game whether a fault has ended its episode: such an episode has no score."""
    cut: Bools = infos.get("final_info", {}).get(CUT_SHORT, np.zeros(games, np.bool_))
    return cut


class Player:
    """Plays B games with the actions of a policy.

    Owns the games' newest observations, their recurrent state and the running sums of unfinished episodes.
    """

    def __init__(self, env: GameVector, policy: Decider, random: np.random.Generator, seeds: Seeds = None) -> None:
        """Resets the games, with `seeds` if given; draws actions from `random`."""
        self._env, self.policy, self._random = env, policy, random
        self.games = batch = env.num_envs
        self.core_state = policy.initial_state(batch)
        self.observations, self.infos = env.reset(seed=seeds)
        self.faults, self.cut_short = read_faults(self.infos), _cut_short(self.infos, batch)  # of the reset
        self.resets = np.ones(batch, np.float32)
        self._scores, self._shaped, self._value_sums = np.zeros(batch), np.zeros(batch), np.zeros(batch)
        self._lengths = np.zeros(batch, np.int64)
        # Chooses the episodes that means include once this step has been played; in training, a `StartOrder`.
        self.choose_counted: Callable[[Step], Sequence[Episode]] = lambda step: step.episodes

    @classmethod
    def from_seed(cls, env: GameVector, policy: Decider, seed: np.random.SeedSequence) -> Self:
        """Returns a player with games and actions seeded from `seed`."""
        return cls(env, policy, *split_seed(seed, env.num_envs))

    def step(self, epsilons: Array, greedy: bool | Bools = False) -> Step:
        """Plays one step of every game.

        Args:
            epsilons: probability of a uniformly random action in each game, [B].
            greedy: whether to take the likeliest action instead of sampling, one bool or bools [B].
        """
        observations, resets = self.observations, self.resets
        decision = self.policy(observations, resets, self.core_state)
        actions, log_probs = explore(self.policy.distribution, decision.logits, epsilons, self._random, greedy)
        self.observations, rewards, terminated, truncated, self.infos = self._env.step(actions)
        infos = self.infos
        self.core_state, ends = decision.core_state, terminated | truncated
        self.resets = ends.astype(np.float32)
        cut_short, bonuses = _cut_short(infos, len(ends)), read_bonuses(infos, len(ends))
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
            read_faults(infos),
        )

    def _count(self, rewards: Rewards, bonuses: Rewards, values: Array, ends: Bools, cut_short: Bools) -> list[Episode]:
        """Adds a step to the running episodes; returns the finished ones."""
        with np.errstate(over="ignore", invalid="ignore"):  # a score may overflow; it is reported as a fault
            self._scores += rewards
            self._shaped += rewards + bonuses
        self._value_sums += values
        self._lengths += 1
        episodes = []
        rivals = self.infos.get("final_info", {}).get(RIVALS, [()] * self.games)
        for game in np.flatnonzero(ends & ~cut_short):
            mean_value = self._value_sums[game] / self._lengths[game]
            score, shaped, length = float(self._scores[game]), float(self._shaped[game]), int(self._lengths[game])
            episodes.append(Episode(score, length, float(mean_value), int(game), shaped, tuple(rivals[game] or ())))
        for sums in (self._scores, self._shaped, self._value_sums, self._lengths):
            sums[ends] = 0
        return episodes

    def close(self) -> None:
        self._env.close()
