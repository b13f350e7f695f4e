"""Playing: an `Actor` plays B games with a network and hands out rollouts of T decisions and finished episodes.

What leads to what, for one game:

    observation_t, reset_t, core_state_t  --step-->  logits_t, value_t, core_state_{t+1};  action_t ~ logits_t
    action_t  --game-->  reward_t, terminated_t, truncated_t, observation_{t+1}, reset_{t+1}

`reset_t` is 1 where observation_t is the first of its episode; the network zeroes core_state_t there. Row T of a rollout
is row 0 of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from scipy.special import log_softmax

from doom_a3c.networks import ACNetwork, CoreState

Array = NDArray[np.float32]


class Rollout(NamedTuple):
    """T decisions of B games, time-major."""

    observations: Any  # [T+1, B, ...]
    resets: Array  # [T+1, B], 1 at the first observation of an episode
    core_state: CoreState  # the state at the rollout's start, each [B, core_size]
    actions: NDArray[np.int32]  # [T, B]
    rewards: Array  # [T, B], scaled and clipped
    discounts: Array  # [T, B], gamma, or 0 after a termination
    ends: NDArray[np.bool_]  # [T, B], the episode ends with this step, or a life where that counts as the end
    values: Array  # [T, B], of the acting network
    next_values: Array  # [T, B], V(s_{t+1}) before any reset; the last row bootstraps, if the learner does not do so itself
    log_probs: Array  # [T, B], of the actions as they were drawn, random exploration included


def blank_rollout(observations: Any, length: int, core_state: CoreState) -> Rollout:
    """Returns a rollout of zeros for games that show such `observations` [B, ...]: it has all shapes and types."""
    zeros = np.zeros((length, len(tf.nest.flatten(observations)[0])), np.float32)
    return Rollout(
        observations=tf.nest.map_structure(lambda array: np.zeros((length + 1, *array.shape), array.dtype), observations),
        resets=np.zeros((length + 1, zeros.shape[1]), np.float32),
        core_state=core_state,
        actions=zeros.astype(np.int32),
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


class Episode(NamedTuple):
    """A finished episode, in the game's own units."""

    score: float  # sum of unscaled rewards
    length: int  # decisions
    value: float  # mean value of the network, scaled
    game: int  # which of the actor's games


class Decide(Protocol):
    """What an actor needs to decide: a `Policy`, or something that asks one elsewhere."""

    def initial_state(self, batch_size: int, /) -> CoreState:
        """Returns the recurrent state at the start of an episode."""

    def __call__(self, observations: Any, resets: Array, core_state: CoreState) -> tuple[Array, Array, CoreState]:
        """Returns logits [B, A], values [B] and the next core state."""


class Policy:
    """Turns a network into decisions: one compiled call per decision of B games, and one copy of its results to the host.

    Works on the network it is given, whose weights may be changed between calls. Holds no state of any game.
    """

    def __init__(self, network: ACNetwork) -> None:
        self._network = network
        self.initial_state = network.initial_state
        self._compiled = network.compiled("decision", self._step)

    def _step(self, observations: Any, resets: tf.Tensor, core_state: CoreState) -> tf.Tensor:
        output, core_state = self._network.step(observations, resets, core_state)
        return tf.concat([output.logits, output.values[:, None], *core_state], axis=1)

    def graph(self, observations: Any) -> Any:
        """Returns the graph of a decision about `observations`."""
        batch = len(tf.nest.flatten(observations)[0])
        return self._compiled.concrete(observations, tf.ones(batch), self.initial_state(batch)).graph

    def __call__(self, observations: Any, resets: Array, core_state: CoreState) -> tuple[Array, Array, CoreState]:
        """Returns logits [B, A], values [B] and the next core state."""
        outputs = self._compiled(observations, resets, core_state).numpy()
        actions, size = self._network.actions, self._network.spec.core_size
        starts = range(actions + 1, outputs.shape[1], size)
        return outputs[:, :actions], outputs[:, actions], tuple(outputs[:, start : start + size] for start in starts)


def sample(logits: Array, random: np.random.Generator) -> NDArray[np.int32]:
    """Draws action indices from softmax(logits), [B, A] -> [B], by the Gumbel-max trick: no probability is compared."""
    actions: NDArray[np.int32] = np.argmax(logits + random.gumbel(size=logits.shape), axis=1).astype(np.int32)
    return actions


def greedy(logits: Array) -> Array:
    """Returns logits [B, A] of the policy that surely takes each row's likeliest action."""
    sure = np.full(logits.shape, -np.inf, np.float32)
    np.put_along_axis(sure, logits.argmax(axis=1)[:, None], 0.0, axis=1)
    return sure


def explore(logits: Array, epsilons: Array, random: np.random.Generator) -> tuple[NDArray[np.int32], Array]:
    """Draws from the policy, or with probability epsilon uniformly (epsilon-greedy on top of the policy).

    Args:
        logits: [B, A].
        epsilons: probability of a uniform draw, per game, [B].
        random: the stream to draw from.

    Returns:
        Actions [B], and the logarithms [B] of the probabilities (1 - epsilon) pi(a) + epsilon / A they were drawn with.
    """
    actions = sample(logits, random)
    if epsilons.any():
        anyhow = random.random(len(logits)) < epsilons
        actions[anyhow] = random.integers(logits.shape[1], size=int(anyhow.sum()))
    chosen = np.take_along_axis(log_softmax(logits, axis=1), actions[:, None], axis=1)[:, 0]
    if epsilons.any():
        chosen = np.log((1.0 - epsilons) * np.exp(chosen) + epsilons / logits.shape[1])
    return actions, chosen.astype(np.float32)


def draw_seeds(seed: np.random.SeedSequence, games: int) -> Any:
    """Returns a seed for each game, in the array form that every vector environment takes."""
    return seed.generate_state(games)


def cut_short(infos: dict[str, Any], games: int) -> Any:
    """Returns for each game whether a fault has ended its episode in this step: such an episode has no score."""
    return infos.get("final_info", {}).get("cut_short", np.zeros(games, np.bool_))


def met_faults(infos: dict[str, Any]) -> list[str]:
    """Returns the kinds of all faults that games have met, of their own or of what runs them."""
    tables = (infos.get("final_info", {}), infos)
    return [kind for table in tables for kinds in table.get("faults", ()) for kind in kinds or ()]


class Actor:
    """Plays B games as a policy decides.

    Owns the games' newest observations, their recurrent state, the sums of running episodes and the random stream that
    actions are drawn from.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        policy: Decide,
        *,
        rollout_length: int,
        discount: float,
        reward_scale: float,
        seed: np.random.SeedSequence,
        reward_clip: float | None = None,
        epsilons: Callable[[], Array] | None = None,
        history: Callable[[int], Any] | None = None,
        bootstrap: bool = True,
    ) -> None:
        """`epsilons` returns the probability of a random action for each game, asked at the start of a rollout.

        `history` returns the observations before and after the last so many steps, [T+1, B, ...], where the games keep
        them: then those of a rollout are the games' own, and the next rollout overwrites them. Without `bootstrap` the
        last row of the next values is 0 where an episode goes on: a learner that corrects rollouts computes its own.
        """
        self._env, self._policy, self._batch, self._history = env, policy, env.num_envs, history
        self._length, self._discount, self._reward_scale = rollout_length, discount, reward_scale
        self._reward_clip, self._epsilons, self._bootstrap = reward_clip, epsilons, bootstrap
        self._random = np.random.default_rng(seed)
        self._core_state = policy.initial_state(self._batch)
        self._observations, infos = env.reset(seed=draw_seeds(seed, self._batch))
        self._resets = np.ones(self._batch, np.float32)
        self._scores = np.zeros(self._batch)
        self._value_sums = np.zeros(self._batch)
        self._lengths = np.zeros(self._batch, np.int64)
        self._episodes: list[Episode] = []
        self._faults = met_faults(infos)

    def rollout(self) -> Rollout:
        """Plays T decisions of every game with weights that must not change meanwhile."""
        length, batch = self._length, self._batch
        copies = None if self._history else _rows_of(self._observations, length + 1)
        resets = np.empty((length + 1, batch), np.float32)
        actions = np.empty((length, batch), np.int32)
        rewards = np.empty((length, batch), np.float32)
        discounts = np.full((length, batch), self._discount, np.float32)
        ends = np.zeros((length, batch), np.bool_)
        values = np.zeros((length + 1, batch), np.float32)
        log_probs = np.empty((length, batch), np.float32)
        epsilons = self._epsilons() if self._epsilons else np.zeros(batch, np.float32)
        cut: list[tuple[int, int, Any, CoreState]] = []  # truncations: time, game, final observation, state to value it
        start = self._core_state
        for t in range(length):
            if copies is not None:
                _write(copies, t, self._observations)
            resets[t] = self._resets
            logits, values[t], self._core_state = self._policy(self._observations, self._resets, self._core_state)
            actions[t], log_probs[t] = explore(logits, epsilons, self._random)
            self._observations, raw_rewards, terminated, truncated, infos = self._env.step(actions[t])
            rewards[t] = self._learned(raw_rewards)
            over = terminated | truncated
            lost = infos.get("life_lost", np.False_)  # a death for learning, where the game goes on
            discounts[t, terminated | lost] = 0.0
            ends[t] = over | lost
            self._resets = over.astype(np.float32)
            for game in np.flatnonzero(truncated & ~terminated):
                cut.append((t, int(game), infos["final_obs"][game], tuple(s[game] for s in self._core_state)))
            self._count(raw_rewards, values[t], over, infos)
        if copies is not None:
            _write(copies, length, self._observations)
        observations = self._history(length) if self._history else copies
        resets[length] = self._resets
        if self._bootstrap:
            values[length] = self._policy(self._observations, self._resets, self._core_state)[1]
        next_values = values[1:].copy()
        self._value_truncations(next_values, cut)
        return Rollout(observations, resets, start, actions, rewards, discounts, ends, values[:-1], next_values, log_probs)

    def _learned(self, rewards: Array) -> Array:
        """Returns rewards as they are learned from: scaled, then clipped."""
        scaled = rewards * self._reward_scale
        return scaled if self._reward_clip is None else np.clip(scaled, -self._reward_clip, self._reward_clip)

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
        values = self._policy(stacked, np.zeros(len(finals), np.float32), core_state)[1]
        next_values[list(times), list(games)] = values[: len(cut)]

    def _count(self, rewards: Array, values: Array, ends: NDArray[np.bool_], infos: dict[str, Any]) -> None:
        """Adds a step to the running episodes and collects the finished ones; one cut short by a fault has no score."""
        self._scores += rewards
        self._value_sums += values
        self._lengths += 1
        self._faults += met_faults(infos)
        for game in np.flatnonzero(ends & ~cut_short(infos, self._batch)):
            mean_value = self._value_sums[game] / self._lengths[game]
            self._episodes.append(
                Episode(float(self._scores[game]), int(self._lengths[game]), float(mean_value), int(game))
            )
        self._scores[ends] = 0.0
        self._value_sums[ends] = 0.0
        self._lengths[ends] = 0

    def take(self) -> tuple[list[Episode], list[str]]:
        """Returns the episodes finished and the faults met since the last call."""
        taken = self._episodes, self._faults
        self._episodes, self._faults = [], []
        return taken

    def close(self) -> None:
        """Closes the games."""
        self._env.close()


def _rows_of(arrays: Any, rows: int) -> Any:
    return tf.nest.map_structure(lambda array: np.empty((rows, *array.shape), array.dtype), arrays)


def _write(buffers: Any, row: int, arrays: Any) -> None:
    tf.nest.map_structure(lambda buffer, array: np.copyto(buffer[row], array), buffers, arrays)
