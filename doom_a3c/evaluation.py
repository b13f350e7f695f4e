"""Evaluation: fresh episodes, apart from training, with the greedy and the sampled policy."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv

from doom_a3c.networks import ACNetwork
from doom_a3c.rollouts import Policy, cut_short, draw_seeds, explore, greedy, met_faults
from doom_a3c.settings import UserError

MAX_LOST = 5  # episodes of each game, in a row, that faults may cut short


class Scores(NamedTuple):
    """Statistics of the scores of some episodes, in the game's units."""

    mean: float
    std: float
    min: float
    max: float
    episodes: int


class Evaluation(NamedTuple):
    """Scores of one network under both policies."""

    greedy: Scores
    sampled: Scores

    @property
    def better(self) -> str:
        """The policy with the higher mean, in play.py's words; greedy where they are equal."""
        return "sample" if self.sampled.mean > self.greedy.mean else "greedy"

    @property
    def score(self) -> float:
        """The mean score of the better policy."""
        return max(self.greedy.mean, self.sampled.mean)


def scores(values: list[float]) -> Scores:
    """Returns the statistics of a list of scores."""
    array = np.asarray(values)
    return Scores(float(array.mean()), float(array.std()), float(array.min()), float(array.max()), len(values))


def games_for(episodes: int) -> int:
    """Returns how many games an evaluation of that many episodes per policy is spread over."""
    return 2 * min(episodes, 5)


class Evaluator:
    """Plays evaluation episodes. Owns its games, its copy of the network and its random stream.

    The first half of the games plays greedily, but for a random action with probability `epsilon`; the second half
    samples. Every game plays a fixed share of the episodes: to take those that finish first would favour short ones.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        network: ACNetwork,
        seed: np.random.SeedSequence,
        epsilon: float = 0.0,
        add_faults: Callable[[Sequence[str]], None] = lambda faults: None,
    ) -> None:
        """`add_faults` is told the kinds of the faults that the games meet."""
        self._env, self.network, self._policy = env, network, Policy(network)
        self._random = np.random.default_rng(seed)
        self._seeds = draw_seeds(seed, env.num_envs)
        self._epsilon, self._add_faults = epsilon, add_faults

    def evaluate(self, episodes: int, stop: threading.Event | None = None) -> Evaluation | None:
        """Plays `episodes` of each policy; returns None if `stop` is set meanwhile."""
        batch = self._env.num_envs
        half = batch // 2
        quotas = np.array([episodes // half + (i % half < episodes % half) for i in range(batch)])
        epsilons = np.where(np.arange(batch) < half, self._epsilon, 0.0).astype(np.float32)
        finished: list[list[float]] = [[] for _ in range(batch)]
        running, lost_in_a_row = np.zeros(batch), 0
        core_state = self.network.initial_state(batch)
        observations, infos = self._env.reset(seed=self._seeds)
        self._add_faults(met_faults(infos))
        self._seeds = None  # later evaluations go on with the games' own streams: their episodes are new
        resets = np.ones(batch, np.float32)
        while any(len(done) < quota for done, quota in zip(finished, quotas, strict=True)):
            if stop is not None and stop.is_set():
                return None
            logits, _, core_state = self._policy(observations, resets, core_state)
            logits[:half] = greedy(logits[:half])
            actions, _ = explore(logits, epsilons, self._random)
            observations, rewards, terminated, truncated, infos = self._env.step(actions)
            self._add_faults(met_faults(infos))
            lost = cut_short(infos, batch)
            running += rewards
            ends = terminated | truncated
            if ends.any():
                lost_in_a_row = lost_in_a_row + int(np.sum(lost)) if np.any(lost) else 0
            if lost_in_a_row > MAX_LOST * batch:
                raise UserError(f"evaluation: {lost_in_a_row} episodes in a row were cut short; the games fail in each")
            for game in np.flatnonzero(ends):
                if len(finished[game]) < quotas[game] and not lost[game]:  # else played again
                    finished[game].append(float(running[game]))
                running[game] = 0.0
            resets = ends.astype(np.float32)
        return Evaluation(*(scores(list(itertools.chain(*part))) for part in (finished[:half], finished[half:])))

    def release(self) -> None:
        """Frees a thread that waits for the games; none can be played any more."""
        games: Any = self._env  # which has more methods than Gymnasium's vectors
        games.release()

    def close(self) -> None:
        """Closes the games."""
        self._env.close()
