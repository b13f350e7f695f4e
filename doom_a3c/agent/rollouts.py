"""Rollouts: an `Actor` plays T steps of B games at a time and returns them as arrays for the learner.

The observation and the reset in row T of a rollout are those in row 0 of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Actions, Array, Distribution
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.player import Bools, Episode, Player, Step
from doom_a3c.agent.rewards import IDENTITY, RewardScaler, RewardStats
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments

MAX_OBSERVED = 1e15  # largest usable observation or reward: beyond it the loss overflows
# Kinds of faults for unusable rewards and observations, with the words of the error message.
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
    rewards: Array  # [T, B], scaled for learning
    discounts: Array  # [T, B], gamma, or 0 after a termination
    ends: Bools  # [T, B], the episode ends with this step, or a life does where that counts as the end
    values: Array  # [T, B], of the acting network
    # [T, B], V(s_{t+1}) before any reset; at a truncation, of the final observation. The last row is the bootstrap value;
    # for V-trace, whose learner computes that, it is 0 except at truncations.
    next_values: Array
    log_probs: Array  # [T, B], of the actions under the policy that drew them, epsilon included


class RolloutStats(NamedTuple):
    """Statistics of a rollout, over all games."""

    steps: int
    frames: int
    episodes: Sequence[Episode]  # that ended in the rollout
    counted: Sequence[Episode]  # for means: in the order of their starts, see `StartOrder`
    faults: Sequence[str]  # the kind of each
    reward_sums: RunningMoments = NO_MOMENTS  # moments of the discounted reward sums after each step


class VersionedRollout(NamedTuple):
    """A rollout with the version of its weights and its statistics."""

    rollout: Rollout
    version: int  # of the oldest weights that chose its actions
    stats: RolloutStats


def make_blank_rollout(
    observations: Observations, length: int, core_state: CoreState, distribution: Distribution
) -> Rollout:
    """Returns a rollout of zeros with the shapes and types of a real one, for games with `observations` [B, ...]."""
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


def join_states(states: Sequence[CoreState]) -> CoreState:
    """Joins the recurrent states of several groups of games along the batch axis."""
    return states[0] if len(states) == 1 else tuple(np.concatenate(parts) for parts in zip(*states, strict=True))


def concatenate(rollouts: Sequence[Rollout]) -> Rollout:
    """Joins rollouts of equal length along the batch axis."""
    if len(rollouts) == 1:
        return rollouts[0]
    core_state = join_states([rollout.core_state for rollout in rollouts])
    arrays = tf.nest.map_structure(
        lambda *parts: np.concatenate(parts, axis=1), *(r._replace(core_state=()) for r in rollouts)
    )
    return cast(Rollout, arrays)._replace(core_state=core_state)


Truncation = tuple[int, int, Observations, CoreState]  # time, game, final observation, and the core state for its value


class _StepArrays:
    """The arrays of a rollout that is being played."""

    def __init__(self, shape: tuple[int, int], distribution: Distribution, discount: float) -> None:
        length, games = shape
        self.resets = np.empty((length + 1, games), np.float32)
        self.actions = np.empty((*shape, *distribution.action_shape), distribution.action_type)
        self.rewards, self.bonuses, self.log_probs = np.empty(shape), np.empty(shape), np.empty(shape, np.float32)
        self.discounts, self.ends = np.full(shape, discount, np.float32), np.zeros(shape, np.bool_)
        self.values = np.zeros((length + 1, games), np.float32)
        self.versions: set[int] = set()
        self.episodes: list[Episode] = []
        self.counted: list[Episode] = []
        self.faults: list[str] = []
        self.truncations: list[Truncation] = []

    def add(self, t: int, step: Step) -> None:
        self.resets[t], self.actions[t], self.log_probs[t] = step.resets, step.actions, step.log_probs
        self.values[t], self.rewards[t], self.bonuses[t] = step.decision.values, step.rewards, step.bonuses
        self.discounts[t, step.terminated | step.life_lost] = 0.0
        self.ends[t] = step.terminated | step.truncated | step.life_lost
        self.truncations += _list_truncations(t, step)
        self.versions.add(step.decision.version)
        self.episodes += step.episodes
        self.faults += step.faults


class Actor:
    """Plays B games and returns rollouts with scaled rewards. Owns its player, and through it the games."""

    def __init__(
        self,
        player: Player,
        *,
        rollout_length: int,
        frame_skip: int,
        discount: float,
        rewards: RewardScaler | None = None,
        epsilons: Callable[[], Array] | None = None,
        history: Callable[[int], Observations] | None = None,
        bootstrap: bool = True,
    ) -> None:
        """Makes an actor; the games are running already.

        Args:
            player: plays the games.
            rollout_length: T, steps.
            frame_skip: frames per step, for the count of frames.
            discount: gamma.
            rewards: scales the rewards; None leaves them unscaled.
            epsilons: returns the probability of a random action in each game, [B]; called at the start of each rollout.
            history: returns the last T+1 observations, [T+1, B, ...], if the games keep them; the rollout then shares that
                memory, and the next rollout overwrites it (so not with `accumulate`). None copies each observation.
            bootstrap: whether to compute the value after the last step. V-trace needs none: the learner computes it.
        """
        self._player, self._policy, self._shape = player, player.policy, (rollout_length, player.games)
        self._frame_skip, self._discount, self._history = frame_skip, discount, history
        self._rewards = rewards or RewardScaler(IDENTITY, RewardStats(), discount, player.games)
        self._epsilons, self._bootstrap = epsilons, bootstrap
        self._faults = player.faults  # of the reset, counted with the first rollout

    def play_rollout(self) -> VersionedRollout:
        """Plays T steps of every game and returns them."""
        player, (length, games) = self._player, self._shape
        copies = None if self._history else _make_rows(player.observations, length + 1)
        played, start = _StepArrays(self._shape, self._policy.distribution, self._discount), player.core_state
        played.faults, self._faults = [*self._faults], []
        epsilons = self._epsilons() if self._epsilons else np.zeros(games, np.float32)
        for t in range(length):
            step = player.step(epsilons)
            if copies is not None:
                _write(copies, t, step.observations)
            played.add(t, step)
            played.counted += player.choose_counted(step)
        if copies is not None:
            _write(copies, length, player.observations)
        played.resets[-1] = player.resets
        observations = self._history(length) if self._history else copies
        if self._bootstrap:
            played.values[-1] = self._policy(player.observations, player.resets, player.core_state).values
        return self._finish(played, start, observations)

    def _finish(self, played: _StepArrays, start: CoreState, observations: Observations) -> VersionedRollout:
        """Returns the finished rollout; a truncated episode bootstraps from the value of its own final observation."""
        next_values = played.values[1:].copy()
        self._value_truncations(next_values, played.truncations)
        usable = np.abs(played.rewards + played.bonuses) <= MAX_OBSERVED
        rewards, sums = self._rewards.scale(played.rewards, played.bonuses, played.ends, usable)
        rollout = Rollout(
            observations,
            played.resets,
            start,
            played.actions,
            rewards,
            played.discounts,
            played.ends,
            played.values[:-1],
            next_values,
            played.log_probs,
        )
        faults = played.faults + _find_unusable(usable, observations)
        stats = RolloutStats(rewards.size, rewards.size * self._frame_skip, played.episodes, played.counted, faults, sums)
        return VersionedRollout(rollout, min(played.versions), stats)

    def _value_truncations(self, next_values: Array, cut: list[Truncation]) -> None:
        """Writes V(final observation) to `next_values` [T, B] at each truncation, from one call of the policy."""
        if not cut:
            return
        times, games, finals, states = zip(*cut, strict=True)
        # Padded to a power of two: few shapes to compile.
        pad = 2 ** int(np.ceil(np.log2(len(cut)))) - len(cut)
        finals, states = finals + finals[:1] * pad, states + states[:1] * pad
        stacked = tf.nest.map_structure(lambda *arrays: np.stack(arrays), *finals)
        core_state = tuple(np.stack(parts) for parts in zip(*states, strict=True))
        values = self._policy(stacked, np.zeros(len(finals), np.float32), core_state).values
        next_values[list(times), list(games)] = values[: len(cut)]

    def close(self) -> None:
        self._player.close()


def _find_unusable(rewards: Bools, observations: Observations) -> list[str]:
    """Returns the kinds of faults in rewards and observations; `rewards` marks the usable rewards, [T, B]."""
    numbers = [array for array in tf.nest.flatten(observations) if array.dtype == np.float32]
    good = rewards.all(), all((np.abs(array) <= MAX_OBSERVED).all() for array in numbers)
    return [kind for kind, is_good in zip(UNUSABLE, good, strict=True) if not is_good]


def _list_truncations(t: int, step: Step) -> list[Truncation]:
    games = np.flatnonzero(step.truncated & ~step.terminated)
    if not games.size:
        return []
    assert step.finals is not None  # an episode ended
    states = step.decision.core_state
    return [(t, int(game), step.finals[game], tuple(state[game] for state in states)) for game in games]


def _make_rows(arrays: Observations, rows: int) -> Observations:
    return tf.nest.map_structure(lambda array: np.empty((rows, *array.shape), array.dtype), arrays)


def _write(buffers: Observations, row: int, arrays: Observations) -> None:
    tf.nest.map_structure(lambda buffer, array: np.copyto(buffer[row], array), buffers, arrays)
