"""Rollouts: an `Actor` plays T steps of B games at a time, as the learner wants them.

Row T of a rollout is row 0 of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Actions, Array, Distribution
from doom_a3c.agent.networks import Observations
from doom_a3c.agent.player import Bools, Episode, Player, Rewards, Step, split_seed
from doom_a3c.agent.policy import Decider
from doom_a3c.agent.rewards import AS_PAID, RewardScale
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments, moments_of

MAX_OBSERVED = 1e15  # of a number that a game shows or pays: a loss of larger ones overflows
# Kinds of faults for what a game has given that cannot be learned from, and how they are told.
UNUSABLE = {
    "reward_not_finite": f"rewards that are not finite, or beyond {MAX_OBSERVED:g}",
    "observation_unusable": f"observations that are not finite, or beyond {MAX_OBSERVED:g}",
}


class Rollout(NamedTuple):
    """T steps of B games, time-major."""

    observations: Observations  # [T+1, B, ...]
    resets: Array  # [T+1, B], 1 at the first observation of an episode
    core_state: CoreState  # the state at the rollout's start, each [B, core_size]
    actions: Actions  # [T, B, ...]
    rewards: Array  # [T, B], as they are learned from
    discounts: Array  # [T, B], gamma, or 0 after a termination
    ends: Bools  # [T, B], the episode ends with this step, or a life where that counts as the end
    values: Array  # [T, B], of the acting network
    next_values: Array  # [T, B], V(s_{t+1}) before any reset; the last row bootstraps, if the learner does not do so itself
    log_probs: Array  # [T, B], of the actions as they were drawn, random exploration included


class RolloutStats(NamedTuple):
    """What is counted of a rollout, of all games."""

    steps: int
    frames: int
    episodes: Sequence[Episode]  # that ended in it
    faults: Sequence[str]  # met in it, by kind
    reward_sums: RunningMoments = NO_MOMENTS  # of what each game had paid in its episode, discounted, after each step


class VersionedRollout(NamedTuple):
    """A rollout, how old it is, and what is counted of it."""

    rollout: Rollout
    version: int  # of the oldest weights that decided in it
    stats: RolloutStats


def blank_rollout(observations: Observations, length: int, core_state: CoreState, distribution: Distribution) -> Rollout:
    """Returns a rollout of zeros for games that show such `observations` [B, ...]: it has all shapes and types."""
    zeros = np.zeros((length, len(tf.nest.flatten(observations)[0])), np.float32)
    return Rollout(
        observations=tf.nest.map_structure(lambda array: np.zeros((length + 1, *array.shape), array.dtype), observations),
        resets=np.zeros((length + 1, zeros.shape[1]), np.float32),
        core_state=core_state,
        actions=np.zeros((*zeros.shape, *distribution.action_shape), distribution.action_type),
        rewards=zeros,
        discounts=zeros,
        ends=zeros.astype(np.bool_),
        values=zeros,
        next_values=zeros,
        log_probs=zeros,
    )


def joined_states(states: Sequence[CoreState]) -> CoreState:
    """Returns the recurrent states of several groups of games as one of all games."""
    return states[0] if len(states) == 1 else tuple(np.concatenate(parts) for parts in zip(*states, strict=True))


def concatenated(rollouts: Sequence[Rollout]) -> Rollout:
    """Returns rollouts of equal length as one of all their games."""
    if len(rollouts) == 1:
        return rollouts[0]
    core_state = joined_states([rollout.core_state for rollout in rollouts])
    arrays = tf.nest.map_structure(
        lambda *parts: np.concatenate(parts, axis=1), *(r._replace(core_state=()) for r in rollouts)
    )
    return cast(Rollout, arrays)._replace(core_state=core_state)


class Actor:
    """Plays B games and hands out rollouts with rewards as learned from. Owns its player, and with it the games."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        policy: Decider,
        *,
        rollout_length: int,
        frame_skip: int,
        discount: float,
        seed: np.random.SeedSequence,
        reward_scale: RewardScale = AS_PAID,
        known_sums: Callable[[], RunningMoments] = lambda: NO_MOMENTS,
        epsilons: Callable[[], Array] | None = None,
        history: Callable[[int], Any] | None = None,
        bootstrap: bool = True,
    ) -> None:
        """`known_sums` returns the moments of the run's `reward_sums` so far, by which rewards are normalized.

        `epsilons` returns the probability of a random action for each game, asked at the start of a rollout.

        `history` returns the observations before and after the last so many steps, [T+1, B, ...], where the games keep
        them: then those of a rollout are the games' own, and the next rollout overwrites them. Without `bootstrap` the
        last row of the next values is 0 where an episode continues: a learner that corrects rollouts computes its own.
        """
        self._policy, self._batch, self._history = policy, env.num_envs, history
        self._length, self._frame_skip = rollout_length, frame_skip
        self._discount, self._reward_scale = discount, reward_scale
        self._epsilons, self._bootstrap, self._known_sums = epsilons, bootstrap, known_sums
        self._paid = np.zeros(self._batch)  # in each game's episode so far, earlier rewards discounted
        self._player = Player(env, policy, *split_seed(seed, self._batch))
        self._faults = self._player.faults  # of the reset: the first rollout tells them

    def rollout(self) -> VersionedRollout:
        """Plays T steps of every game."""
        player, shape = self._player, (self._length, self._batch)
        copies = None if self._history else _rows_of(player.observations, self._length + 1)
        resets = np.empty((self._length + 1, self._batch), np.float32)
        distribution = self._policy.distribution
        actions = np.empty((*shape, *distribution.action_shape), distribution.action_type)
        paid, log_probs = np.empty(shape), np.empty(shape, np.float32)
        discounts = np.full(shape, self._discount, np.float32)
        ends = np.zeros(shape, np.bool_)
        values = np.zeros((self._length + 1, self._batch), np.float32)
        epsilons = self._epsilons() if self._epsilons else np.zeros(self._batch, np.float32)
        start, versions = player.core_state, set()
        episodes: list[Episode] = []
        faults, self._faults = self._faults, []
        cut: list[tuple[int, int, Any, CoreState]] = []  # truncations: time, game, final observation, state to value it
        for t in range(self._length):
            step = player.step(epsilons)
            if copies is not None:
                _write(copies, t, step.observations)
            resets[t], actions[t], log_probs[t], values[t] = step.resets, step.actions, step.log_probs, step.decision.values
            paid[t] = step.rewards + step.bonuses
            discounts[t, step.terminated | step.life_lost] = 0.0
            ends[t] = step.terminated | step.truncated | step.life_lost
            cut += _truncations(t, step)
            versions.add(step.decision.version)
            episodes += step.episodes
            faults += step.faults
        if copies is not None:
            _write(copies, self._length, player.observations)
        resets[-1] = player.resets
        observations = self._history(self._length) if self._history else copies
        if self._bootstrap:
            values[-1] = player.value()
        next_values = values[1:].copy()
        self._value_truncations(next_values, cut)
        usable = np.abs(paid) <= MAX_OBSERVED
        sums = NO_MOMENTS
        if self._reward_scale.normalized:
            sums = moments_of(self._reward_sums(np.where(usable, paid, 0.0), ends))
        paid[~np.isfinite(paid)] = np.nan  # which no limit makes a number of
        rewards = self._reward_scale.learned(paid, self._known_sums().merged(sums))
        rollout = Rollout(
            observations, resets, start, actions, rewards, discounts, ends, values[:-1], next_values, log_probs
        )
        faults += _unusable(usable, observations)
        stats = RolloutStats(rewards.size, rewards.size * self._frame_skip, episodes, faults, sums)
        return VersionedRollout(rollout, min(versions), stats)

    def _reward_sums(self, paid: Rewards, ends: Bools) -> Rewards:
        """Returns the discounted sums [T, B] of what each game has paid in its episode up to each step.

        Their spread is about that of the returns that are to come, and known at once: no step waits for its future, and no
        value of the network's has a part in it.
        """
        sums = np.empty(paid.shape)
        for t, now in enumerate(paid):
            sums[t] = self._paid = self._discount * self._paid + now
            self._paid = np.where(ends[t], 0.0, self._paid)
        return sums

    def _value_truncations(self, next_values: Array, cut: list[tuple[int, int, Any, CoreState]]) -> None:
        """Puts V(final observation) where an episode was cut off, all in one call, with each one's own core state."""
        if not cut:
            return
        times, games, finals, states = zip(*cut, strict=True)
        # Padding to a power of two keeps the number of compiled shapes small.
        pad = 2 ** int(np.ceil(np.log2(len(cut)))) - len(cut)
        finals, states = finals + finals[:1] * pad, states + states[:1] * pad
        stacked = tf.nest.map_structure(lambda *arrays: np.stack(arrays), *finals)
        core_state = tuple(np.stack(parts) for parts in zip(*states, strict=True))
        values = self._policy(stacked, np.zeros(len(finals), np.float32), core_state).values
        next_values[list(times), list(games)] = values[: len(cut)]

    def close(self) -> None:
        """Closes the games."""
        self._player.close()


def _unusable(rewards: Bools, observations: Observations) -> list[str]:
    """Returns the kinds of faults in what games have given; `rewards` says which can be learned from."""
    numbers = [array for array in tf.nest.flatten(observations) if array.dtype == np.float32]
    good = rewards.all(), all((np.abs(array) <= MAX_OBSERVED).all() for array in numbers)
    return [kind for kind, is_good in zip(UNUSABLE, good, strict=True) if not is_good]


def _truncations(t: int, step: Step) -> list[tuple[int, int, Any, CoreState]]:
    """Returns time, game, final observation and the state to value it with, of each episode that was cut off."""
    return [
        (t, int(game), step.finals[game], tuple(state[game] for state in step.decision.core_state))
        for game in np.flatnonzero(step.truncated & ~step.terminated)
    ]


def _rows_of(arrays: Any, rows: int) -> Any:
    return tf.nest.map_structure(lambda array: np.empty((rows, *array.shape), array.dtype), arrays)


def _write(buffers: Any, row: int, arrays: Any) -> None:
    tf.nest.map_structure(lambda buffer, array: np.copyto(buffer[row], array), buffers, arrays)
