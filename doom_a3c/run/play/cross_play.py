"""Lets agents play matches against each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, cast

import numpy as np

from doom_a3c.agent.opponents import Opponent, PolicyOpponent
from doom_a3c.agent.player import Episode, Player, Step, split_seed
from doom_a3c.agent.policy import Policy
from doom_a3c.run.evaluator import play_first_episodes, split_episodes
from doom_a3c.run.league import find_outcome
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.seated_match import move_to_level, play_seated
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.match import MatchSettings, parse_match
from doom_a3c.settings.streams import Stream, make_seed

AT_ONCE = 5  # matches of agents with the same buttons and view


class Pairing(NamedTuple):
    """The matches of two agents, by index."""

    first: int
    second: int
    outcomes: Sequence[float]  # of the first in each match: 1 won, 0.5 drawn, 0 lost

    @property
    def share(self) -> float:
        """The first agent's share of wins; a draw is half a win."""
        return sum(self.outcomes) / len(self.outcomes)


def check_players(agents: Sequence[TrainedAgent]) -> None:
    """Checks that agents can play each other in the match of the first.

    Raises:
        UserError: if one plays no Doom level, acts at another rate, or sees its last action although not all are alike.
    """
    first, played = agents[0], agents[0].record.scenario
    for agent in agents:
        theirs = agent.record.scenario
        if not isinstance(theirs.game, DoomSpec):
            raise UserError(f"{agent.source} plays {theirs.name}, not Doom: no match is possible")
        if theirs.game.frame_skip != played.game.frame_skip:
            raise UserError(
                f"{agent.source} acts every {theirs.game.frame_skip} frames, {first.source} every "
                f"{played.game.frame_skip}: no match is possible"
            )
    others = [agent for agent in agents if not _play_alike(first, agent, cast(DoomSpec, played.game))]
    for agent in agents if others else ():
        if agent.builder.inputs.previous:
            raise UserError(
                f"{agent.source} sees its last action or reward, so it plays only agents with its buttons, view and level: "
                "no match is possible"
            )


def play_pairings(
    agents: Sequence[TrainedAgent], matches: int, seed: int, on_step: Callable[[int, int, int], None]
) -> Iterator[Pairing]:
    """Plays `matches` between every pair of agents in the level of the first agent; yields each pairing once it is over.

    Actions are sampled. Each agent hosts half of the matches. `on_step` is called before each step with the pairing's
    agents and the number of its finished matches; what it raises ends the play.

    Raises:
        UserError: if games do not start.
    """
    level = cast(DoomSpec, agents[0].record.scenario.game)
    for first, second in itertools.combinations(range(len(agents)), 2):

        def report(done: int, first: int = first, second: int = second) -> None:
            on_step(first, second, done)

        hosted = -(-matches // 2)
        one, other = agents[first], agents[second]
        play = _play_together if _play_alike(one, other, level) else _play_apart
        won = play(one, other, level, hosted, seed, report)
        lost = play(other, one, level, matches - hosted, seed + 1, lambda done: report(hosted + done))  # noqa: B023  # called at once
        yield Pairing(first, second, [*won, *(1 - outcome for outcome in lost)])


def _play_alike(one: TrainedAgent, other: TrainedAgent, level: DoomSpec) -> bool:
    """Returns whether two agents were trained in a level with the same buttons and view."""
    games = [cast(DoomSpec, agent.record.scenario.game) for agent in (one, other)]
    return one.has_interface_of(other) and all(move_to_level(game, level) == game for game in games)


def _play_apart(
    host: TrainedAgent, guest: TrainedAgent, level: DoomSpec, matches: int, seed: int, report: Callable[[int], None]
) -> list[float]:
    """Returns the outcomes of a host's matches in a level, one after another; bots in it do not count."""
    others = cast(MatchSettings, parse_match(level.match)).agents - 1
    played = play_seated([host, *[guest] * others], level, matches, seed, report)
    return [find_outcome(mine, theirs) for mine, *theirs in played]


def _play_together(
    host: TrainedAgent, guest: TrainedAgent, _: DoomSpec, matches: int, seed: int, report: Callable[[int], None]
) -> list[float]:
    """Returns the outcomes of a host's matches, several at a time, in its own level."""
    if not matches:
        return []
    games, guests = min(matches, AT_ONCE), np.random.default_rng(make_seed(seed, Stream.PLAY))
    others, outcomes = host.builder.agents - 1, list[float]()

    def make_opponent(players: int) -> Opponent:
        return PolicyOpponent(Policy(guest.network), players, guests)

    def play() -> Step:
        report(len(outcomes))
        return player.step(np.zeros(games, np.float32))

    def read(episode: Episode) -> float:
        outcomes.append(find_outcome(episode.score, episode.rivals[:others]))  # bots, which come last, do not count
        return outcomes[-1]

    with closing(host.builder.make_evaluation_env(games, make_opponent)) as env:
        player = Player(env, Policy(host.network), *split_seed(make_seed(seed, Stream.EVALUATION), games))
        play_first_episodes(play, split_episodes(matches, games), lambda: True, read)
    return outcomes
