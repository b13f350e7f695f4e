"""Games that the doctor plays: at random, and with one action repeated from the start of an episode."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, Space
from numpy.typing import NDArray

from doom_a3c.agent.distributions import Actions, Array, Distribution
from doom_a3c.agent.inputs import read_input_shapes
from doom_a3c.agent.joint_actions import find_distribution
from doom_a3c.agent.player import GameVector, Seeds
from doom_a3c.agent.random_policy import RandomPolicy
from doom_a3c.envs.factory import GameFactory
from doom_a3c.settings.actions import list_choice_sizes
from doom_a3c.settings.interface import Observation, map_nested
from doom_a3c.settings.streams import Stream, make_seed

GAMES = 8  # played at random
PLAY_SECONDS, EPISODES = 15.0, 4  # random play ends after these seconds, or once each game has finished these episodes
TRIAL_STEPS, TRIALS = 8, 3  # steps of an action from the start of an episode, and episodes in which it is tried
TRIAL_SECONDS = 15.0
MATCHES, MATCH_SECONDS = (1, 4, 8, 16), 3.0  # of several agents, side by side, and how long they play
PICTURES = (3, 6)  # rows and columns of the sheet of observations


class RandomPlay(NamedTuple):
    """The results of random play."""

    scores: list[float]
    lengths: list[int]  # of the finished episodes, in steps
    time_outs: int  # episodes that ended by a time-out
    missing: int  # episodes that were not finished in time: the longer ones
    rewards: NDArray[np.float64]  # of all steps
    observations: list[Observation]  # a sample, each of one game
    unusable: NDArray[np.float64]  # share of all observations in which each number was NaN or infinite, [V]
    steps_per_second: float


class _Sample:
    """Collects observations: a sample of them, and how many have unusable numbers."""

    def __init__(self) -> None:
        self.kept: list[Observation] = []
        self._wanted, self._steps, self._count = math.prod(PICTURES), 0, 0
        self._unusable: NDArray[np.int64] | int = 0

    def keep(self, observations: Observation) -> None:
        """Keeps the first game's observation: half of the sample from the first steps, half at intervals."""
        first_half = self._steps < self._wanted // 2
        if len(self.kept) < self._wanted and (first_half or self._steps % 7 == 0):
            self.kept.append(map_nested(lambda array: np.array(array[0]), observations))
        self._steps += 1

    def check(self, observations: Observation) -> None:
        """Counts the unusable numbers of observations [B, ...]."""
        numbers = read_numbers(observations)
        self._unusable = self._unusable + np.sum(~np.isfinite(numbers), axis=0)
        self._count += len(numbers)

    @property
    def unusable(self) -> NDArray[np.float64]:
        """The share of observations in which each number was NaN or infinite, [V]."""
        return np.asarray(self._unusable, np.float64) / max(1, self._count)


@np.errstate(over="ignore", invalid="ignore")  # rewards may be infinite, or overflow when summed
def play_at_random(games: GameFactory, seed: int) -> RandomPlay:
    """Plays random actions, until the time is over or each game has finished its episodes."""
    random = np.random.default_rng(make_seed(seed, Stream.RANDOM_PLAY))
    scores: list[float] = []
    lengths: list[int] = []
    time_outs = 0
    rewards: list[NDArray[np.float64]] = []
    sample = _Sample()
    policy = RandomPolicy(find_games_distribution(games))
    with closing(games.make_vector(GAMES, limited=True)) as env:
        count = env.num_envs  # more than `GAMES` for whole matches
        observations, _ = env.reset(seed=seed)
        totals, ages, ended, start = np.zeros(count), np.zeros(count, int), np.zeros(count, int), time.monotonic()
        sample.check(observations)
        while time.monotonic() - start < PLAY_SECONDS and ended.min() < EPISODES:
            sample.keep(observations)
            observations, paid, terminated, truncated, infos = env.step(_draw_actions(policy, observations, count, random))
            sample.check(observations)
            rewards.append(np.asarray(paid, np.float64))
            totals += paid
            ages += 1
            for game in np.flatnonzero(terminated | truncated):
                if ended[game] < EPISODES:  # the first episodes of each game: the first to finish overall are the shortest
                    scores.append(float(totals[game]))
                    lengths.append(int(ages[game]))
                    time_outs += bool(truncated[game])
                    ended[game] += 1
                sample.check(map_nested(lambda array: array[None], infos["final_obs"][game]))
                totals[game] = ages[game] = 0
        rate = len(rewards) * count / (time.monotonic() - start)
    missing = count * EPISODES - len(scores)
    paid = np.concatenate(rewards) if rewards else np.zeros(0)
    return RandomPlay(scores, lengths, time_outs, missing, paid, sample.kept, sample.unusable, rate)


def measure_matches(games: GameFactory, matches: int) -> float:
    """Returns the steps of all players per second while `matches` matches of several agents are played at random."""
    policy, random = RandomPolicy(find_games_distribution(games)), np.random.default_rng(0)
    with closing(games.make_vector(matches * games.agents, limited=True)) as env:
        observations, _ = env.reset(seed=0)
        steps, start = 0, time.monotonic()
        while time.monotonic() - start < MATCH_SECONDS:
            observations, *_ = env.step(_draw_actions(policy, observations, env.num_envs, random))
            steps += env.num_envs
        return steps / (time.monotonic() - start)


def _draw_actions(policy: RandomPolicy, observations: Observation, games: int, random: np.random.Generator) -> Actions:
    """Draws a random allowed action for each of the `games`."""
    logits = policy(observations, np.zeros(games, np.float32), ()).logits
    return policy.distribution.sample_uniform(logits, random)


def find_games_distribution(games: GameFactory) -> Distribution:
    """Returns the distribution over the actions of some games; raises UserError if the agent cannot take them."""
    facts = games.describe()
    return find_distribution(facts.actions, bool(read_input_shapes(facts.observations).mask))


def list_trials(space: Space[Any], names: Sequence[str] | None) -> list[tuple[str, Actions]]:
    """Returns names and actions that show each choice's and number's effect, the others at their first or middle value.

    `names` are of each value of each choice, and of each number; None where they have none.
    """
    if isinstance(space, Discrete):
        return [(name, np.array(n)) for n, name in enumerate(names or [f"action {n}" for n in range(space.n)])]
    sizes = list_choice_sizes(space)
    assert names is not None  # only single choices have none
    starts = np.cumsum([0, *sizes])
    still = np.zeros(space.shape or (), space.dtype)
    first = [names[start] for start in starts[:-1]]
    idle = bool(first) and all(name.startswith("no ") for name in first)  # as in Doom's heads
    trials = [("NOTHING" if idle else " ".join(first) or "all numbers in the middle", still)]
    for column, size in enumerate(sizes):
        trials += [(names[starts[column] + n], _replace(still, column, n)) for n in range(1, size)]
    for column, name in enumerate(names[starts[-1] :], len(sizes)):
        trials += [(f"{name} {end}", _replace(still, column, n)) for end, n in (("lowest", -1), ("highest", 1))]
    return trials


def _replace(action: Actions, column: int, value: float) -> Actions:
    changed = action.copy()
    changed[column] = value
    return changed


def read_numbers(observations: Observation) -> NDArray[np.float32]:
    """Returns the numbers of observations, [..., V]; V is 0 where there are none."""
    parts = observations if isinstance(observations, dict) else {"pixels": observations}
    numbers = parts["variables" if "variables" in parts else "pixels"]
    return numbers if numbers.dtype == np.float32 else np.empty((*numbers.shape[:-3], 0), np.float32)


def read_pixels(observation: Observation) -> NDArray[np.uint8] | None:
    """Returns the pixels of one game's observation, None where it has none."""
    pixels = observation.get("pixels") if isinstance(observation, dict) else observation
    return pixels if pixels is not None and pixels.ndim == 3 else None


def try_actions(games: GameFactory) -> tuple[list[str], list[tuple[bytes, ...]]]:
    """Tries every choice and number while time permits; returns the names of the trials and the outcomes so far.

    Trials with the same outcome did the same. An action that was forbidden at every start has empty ones.
    """
    start = time.monotonic()
    outcomes: list[tuple[bytes, ...]] = []
    facts = games.describe()
    trials, distribution = list_trials(facts.actions, facts.action_names), find_games_distribution(games)
    with closing(games.make_vector(1, limited=True)) as env:
        for _, action in trials:
            if time.monotonic() - start > TRIAL_SECONDS:
                break
            code = distribution.encode(action[None])[0]
            outcomes.append(tuple(_repeat_action(env, action, code, seed) for seed in range(TRIALS)))
    return [name for name, _ in trials], outcomes


def _repeat_action(env: GameVector, action: Actions, code: Array, seed: int) -> bytes:
    """Returns the observations and rewards after repeating an action from the start of an episode while it is allowed.

    All players of a match repeat it; the first one's results count.
    """
    seeds: Seeds = np.full(env.num_envs, seed)
    actions = np.repeat(action[None], env.num_envs, axis=0)
    observations, _ = env.reset(seed=seeds)
    parts: list[bytes] = []
    for _ in range(TRIAL_STEPS):
        mask = observations.get("mask", np.zeros((1, 0))) if isinstance(observations, dict) else np.zeros((1, 0))
        if (mask[0] < code[: mask.shape[1]]).any():
            break
        observations, rewards, terminated, truncated, _ = env.step(actions)
        arrays = observations.values() if isinstance(observations, dict) else [observations]
        parts += [np.asarray(array[:1]).tobytes() for array in (*arrays, rewards)]
        if terminated[0] or truncated[0]:
            break
    return b"".join(parts)
