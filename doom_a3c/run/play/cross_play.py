"""Lets agents play matches against each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.opponents import Opponent, PolicyOpponent
from doom_a3c.agent.player import Episode, Player, split_seed
from doom_a3c.agent.policy import Policy
from doom_a3c.run.evaluator import split_episodes
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.settings.streams import Stream, make_seed

AT_ONCE = 5  # matches


class Pairing(NamedTuple):
    """The matches of two agents, by index."""

    first: int
    second: int
    outcomes: Sequence[float]  # of the first in each match: 1 won, 0.5 drawn, 0 lost


def play_pairings(
    agents: Sequence[TrainedAgent], matches: int, seed: int, on_step: Callable[[int, int, int], None]
) -> Iterator[Pairing]:
    """Plays `matches` between each two agents, whose actions are sampled; yields each pairing once it is over.

    Each agent hosts half of the matches. `on_step` is called before each step with the pairing's agents and the number of
    its finished matches; what it raises ends the play.
    """
    for first, second in itertools.combinations(range(len(agents)), 2):

        def report(done: int, first: int = first, second: int = second) -> None:
            on_step(first, second, done)

        hosted = -(-matches // 2)
        one, other = agents[first], agents[second]
        won = _play_matches(one, other.network, hosted, seed, report)
        lost = _play_matches(other, one.network, matches - hosted, seed + 1, lambda done: report(hosted + done))  # noqa: B023  # called at once
        yield Pairing(first, second, [*won, *(1 - outcome for outcome in lost)])


def _play_matches(
    host: TrainedAgent, guest: ACNetwork, matches: int, seed: int, report: Callable[[int], None]
) -> list[float]:
    """Returns the outcomes of a host's matches."""
    if not matches:
        return []
    games, guests = min(matches, AT_ONCE), np.random.default_rng(make_seed(seed, Stream.PLAY))

    def make_opponent(players: int) -> Opponent:
        return PolicyOpponent(Policy(guest), players, guests)

    finished: list[list[Episode]] = [[] for _ in range(games)]
    quotas = split_episodes(matches, games)
    with closing(host.builder.make_evaluation_env(games, make_opponent)) as env:
        player = Player(env, Policy(host.network), *split_seed(make_seed(seed, Stream.EVALUATION), games))
        while (done := sum(map(len, finished))) < matches:
            report(done)
            for episode in player.step(np.zeros(games, np.float32)).episodes:
                if len(finished[episode.game]) < quotas[episode.game]:
                    finished[episode.game].append(episode)
    return [find_outcome(episode) for game in finished for episode in game]


def find_outcome(episode: Episode) -> float:
    """Returns 1 for a match that was won, 0.5 for a draw or unknown rivals, 0 for one that was lost."""
    return float(0.5 + 0.5 * np.sign(episode.score - max(episode.rivals, default=episode.score)))
