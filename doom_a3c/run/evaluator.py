"""Plays evaluation episodes with the greedy and the sampled policy, in separate games."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Episode, GameVector, Player, Step, split_seed
from doom_a3c.agent.policy import Policy
from doom_a3c.record.metrics.counters import EvaluationPoint
from doom_a3c.run.checkpoints.run_record import PolicyName
from doom_a3c.settings.errors import UserError

MAX_LOST = 5  # consecutive episodes of each game that faults may cut short


class Scores(NamedTuple):
    """Statistics of episode scores, in the game's units."""

    mean: float
    std: float
    min: float
    max: float
    episodes: int


class Evaluation(NamedTuple):
    """Scores of the same weights under both policies."""

    greedy: Scores
    sampled: Scores

    def point(self, frames: int) -> EvaluationPoint:
        return EvaluationPoint(frames, *self.greedy[:2], *self.sampled[:2])

    @property
    def score(self) -> float:
        """The score that selects the best weights: the mean of the better policy, biased upwards by taking the higher."""
        return max(self.greedy.mean, self.sampled.mean)


class Stop(Protocol):
    """A request to end an evaluation early, such as `threading.Event`."""

    def is_set(self) -> bool:
        """Returns whether the evaluation must end."""


def summarize(scores: Sequence[float]) -> Scores:
    """Returns the statistics of a list of scores."""
    array = np.asarray(scores)
    with np.errstate(over="ignore", invalid="ignore"):  # rewards may be infinite or NaN
        return Scores(float(array.mean()), float(array.std()), float(array.min()), float(array.max()), len(scores))


def split_episodes(episodes: int, games: int) -> list[int]:
    """Returns the number of episodes that each game plays, as equal as possible."""
    return [episodes // games + (game < episodes % games) for game in range(games)]


ReadScore = Callable[[Episode], float]  # called before the step after the episode's last


def read_score(episode: Episode) -> float:
    """Returns an episode's own score."""
    return episode.score


def play_first_episodes(
    play: Callable[[], Step], quotas: Sequence[int], going_on: Callable[[], bool], read: ReadScore = read_score
) -> list[list[float]]:
    """Returns what `read` returns of each game's first episodes, up to its quota; fewer if `going_on` returns False.

    Taking the episodes that finish first, of whichever game, would favour short ones.
    """
    finished: list[list[float]] = [[] for _ in quotas]
    while any(len(done) < quota for done, quota in zip(finished, quotas, strict=True)) and going_on():
        for episode in play().episodes:
            if len(finished[episode.game]) < quotas[episode.game]:
                finished[episode.game].append(read(episode))
    return finished


def count_games(episodes: int) -> int:
    """Returns the number of games for an evaluation of `episodes` per policy."""
    return 2 * min(episodes, 5)


class Evaluator:
    """Plays evaluation episodes. Owns its games, its copy of the network and its random stream.

    The first half of the games plays greedily, but for a random action with probability `epsilon`; the second half
    samples. Every game plays a fixed share of the episodes.
    """

    def __init__(
        self,
        env: GameVector,
        network: ACNetwork,
        seed: np.random.SeedSequence,
        epsilon: float = 0.0,
        add_fault: Callable[[str], None] = lambda kind: None,
        read: ReadScore = read_score,
    ) -> None:
        """`add_fault` is called with the kind of each fault in the games; `read` returns the score of an episode."""
        self._env, self.network, self._policy = env, network, Policy(network)
        self._random, self._seeds = split_seed(seed, env.num_envs)
        self._epsilon, self._add_fault, self._read = epsilon, add_fault, read

    def evaluate(self, episodes: int, stop: Stop | None = None) -> Evaluation | None:
        """Plays `episodes` of each policy; returns None if `stop` is set before they are over.

        Raises:
            UserError: if faults cut short too many consecutive episodes.
        """
        half = self._env.num_envs // 2
        finished = self._play_first(np.arange(2 * half) < half, 2 * split_episodes(episodes, half), stop)
        parts = [list(itertools.chain(*part)) for part in (finished[:half], finished[half:])]
        return Evaluation(*map(summarize, parts)) if all(len(part) == episodes for part in parts) else None

    def play(self, policy: PolicyName, episodes: int, stop: Stop | None = None) -> Scores | None:
        """Plays `episodes` of one policy, in all games; returns None and raises as `evaluate` does."""
        games = self._env.num_envs
        finished = self._play_first(np.full(games, policy == "greedy"), split_episodes(episodes, games), stop)
        scores = list(itertools.chain(*finished))
        return summarize(scores) if len(scores) == episodes else None

    def _play_first(self, greedy: NDArray[np.bool_], quotas: Sequence[int], stop: Stop | None) -> list[list[float]]:
        """Returns the scores of each game's first episodes, up to its quota; fewer if `stop` is set."""
        epsilons = np.where(greedy, self._epsilon, 0.0).astype(np.float32)
        player = Player(self._env, self._policy, self._random, self._seeds)
        self._seeds = None  # later evaluations continue the games' own random streams: their episodes are new
        self._count_faults(player.faults)
        lost_in_a_row = 0

        def play() -> Step:
            nonlocal lost_in_a_row
            step = player.step(epsilons, greedy)
            self._count_faults(step.faults)
            if np.any(step.terminated | step.truncated):
                lost_in_a_row = lost_in_a_row + int(np.sum(step.cut_short)) if np.any(step.cut_short) else 0
            if lost_in_a_row > MAX_LOST * self._env.num_envs:
                raise UserError(f"evaluation: {lost_in_a_row} episodes in a row were cut short; the games fail in each")
            return step

        return play_first_episodes(play, quotas, lambda: stop is None or not stop.is_set(), self._read)

    def _count_faults(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self._add_fault(kind)

    def release(self) -> None:
        """Unblocks a thread that waits for the games; they cannot be played afterwards."""
        self._env.release()  # type: ignore[attr-defined]  # a method of this project's vectors

    def close(self) -> None:
        self._env.close()
