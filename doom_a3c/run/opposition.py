"""Opponents of matches from a league of earlier weights, for training and evaluation."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from doom_a3c.agent.distributions import Actions, Array
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.model import Snapshot
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.opponents import Opponent, PolicyOpponent
from doom_a3c.agent.player import Bools, Episode, GameVector, Rewards
from doom_a3c.agent.policy import Policy
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import RunRecord, find_needed_override
from doom_a3c.run.evaluator import ReadScore
from doom_a3c.run.league import FOLDER, League, Member, find_outcome, rate
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.interface import map_nested
from doom_a3c.settings.streams import Stream, make_seed
from doom_a3c.settings.training import OPPONENTS

AT_ONCE = 4  # members that play at the same time


class LeagueOpponent(Opponent):
    """Plays as members of a league, a few at a time. Owns their networks.

    A member is replaced once all of its players have begun a match under it. They usually begin together; after a fault,
    one of them is out of step for good, and its member changes in the middle of its match.
    """

    def __init__(
        self,
        choose: Callable[[int], Member],
        make_network: Callable[[str], ACNetwork],
        players: int,
        random: np.random.Generator,
        report: Callable[[Member, float], None] = lambda member, outcome: None,
    ) -> None:
        """Makes the networks of at most four members.

        Args:
            choose: returns the next member for a part of the players, 0 to 3.
            make_network: makes a network by its name.
            players: K.
            random: samples the actions.
            report: receives a member and the outcome of a finished match between it and the host, see `find_outcome`.
        """
        self._choose, self._report, count = choose, report, min(AT_ONCE, players)
        # The players of each member, interleaved: the greedy first half of an evaluation and the second meet all members.
        self._parts = [np.arange(part, players, count) for part in range(count)]
        self._order = np.argsort(np.concatenate(self._parts))  # of the players among the parts' actions
        self._networks = [make_network(f"opponent_{index}") for index in range(len(self._parts))]
        self._opponents = [
            PolicyOpponent(Policy(network), len(part), random)
            for network, part in zip(self._networks, self._parts, strict=True)
        ]
        self._begun = np.zeros(players, np.bool_)  # whether each player has begun a match since its member was drawn
        self._members: dict[int, Member] = {}  # of each part
        self._frags = np.zeros(players)  # of each player in its match

    def act(self, observations: Observations, resets: Array) -> Actions:
        parts = []
        self._begun |= resets > 0
        for index, (part, network, opponent) in enumerate(zip(self._parts, self._networks, self._opponents, strict=True)):
            if self._begun[part].all():
                self._begun[part] = False
                member = self._choose(index)
                network.load(member.weights)
                self._members[index] = member
            seen = map_nested(lambda array, part=part: array[part], observations)
            parts.append(opponent.act(seen, resets[part]))
        return np.concatenate(parts)[self._order]

    @property
    def ratings(self) -> Array:
        """The rating of the member that plays each player now, [K]; 0 if it is unknown."""
        return np.array([self._find_member(player).rating or 0.0 for player in range(len(self._begun))])

    def _find_member(self, player: int) -> Member:
        return self._members[player % len(self._parts)]

    def note(self, frags: Rewards, ended: Bools, rivals: Sequence[Sequence[float] | None]) -> None:
        self._frags += frags
        for player in map(int, np.flatnonzero(ended)):
            if theirs := rivals[player]:  # else it was cut short, or a bot was lost
                self._report(self._find_member(player), find_outcome(self._frags[player], theirs[:1]))  # of the host
            self._frags[player] = 0.0


def arrange_league(
    record: RunRecord, builder: Builder, folder: Path, weights: Snapshot, warn: Callable[[str], None]
) -> League | None:
    """Gives the training games their opponents; returns the league of the run, None if its game has one agent.

    Args:
        record: of the run.
        builder: of its games.
        folder: of its checkpoints, where an earlier session may have left a league.
        weights: the first member of a new league, rated as the newest member of an earlier, lost one.
        warn: receives a line for each member that cannot be read.

    Raises:
        UserError: if the checkpoint that should be the opponent does not fit.
    """
    config = record.config
    if builder.agents == 1:
        return None
    if config.opponents in OPPONENTS:
        league = League.read(folder / FOLDER, builder.make_network("opponent", 0), find_needed_override(record), warn)
        if not league.members:
            with contextlib.suppress(OSError):  # the first checkpoint will run into the same error, and report it
                league.add(record, league.last_rating, weights)
    else:
        weights = load_opponent("--opponents", config.opponents, record, builder)
        league = League(folder / FOLDER, [Member(0, 0.0, weights)], fixed=True)
    builder.opposed = config.count_opposed(builder.agents)
    vectors = itertools.count()

    def make_opponent(players: int) -> LeagueOpponent:
        random = _make_random(record, Stream.TRAINING, next(vectors), players)  # workers draw other members
        return LeagueOpponent(lambda part: league.draw(random), make_network, players, random, league.note)

    make_network = partial(builder.make_network, seed=config.seed)
    builder.make_opponent = make_opponent
    return league


def load_opponent(flag: str, model: str, record: RunRecord, builder: Builder) -> Snapshot:
    """Returns the weights of a checkpoint that plays the others in a run's matches.

    Raises:
        UserError: naming the flag, if there is no such checkpoint or it does not fit.
    """
    checkpoint = load(path := find_model(model), find_needed_override(record))  # the user has named the run's files already
    theirs, game = checkpoint.record, builder.scenario.name
    played = theirs.scenario.game
    if not isinstance(played, DoomSpec):
        raise UserError(f"{flag} {path} plays {theirs.scenario.name}, not Doom")
    checkpoint.check_finite(path)
    try:
        builder.make_network("opponent", 0).load(checkpoint.variables)
    except (KeyError, ValueError) as error:
        raise UserError(f"{flag} {path} has another network than {game} needs: {error}") from None
    fits = builder.has_learned(theirs.learned or played, theirs.actions)
    require(fits, f"{flag} {path} was trained on other actions than {game} has, or in another order")
    seen = builder.shows_view_of(theirs.scenario)
    require(seen, f"{flag} {path} sees another part of the screen, or other variables, than {game} shows")
    return checkpoint.variables


def _make_random(record: RunRecord, stream: Stream, *keys: int) -> np.random.Generator:
    return np.random.default_rng(make_seed(record.config.seed, stream, record.restarts, *keys))


def make_rated_matches(record: RunRecord, builder: Builder, league: League, matches: int) -> tuple[GameVector, ReadScore]:
    """Makes the matches of an evaluation against the four strongest members; also returns what reads an episode's rating.

    With drawn members, luck would decide: of two agents that win all matches, the one with the stronger draw rates higher.
    """
    players = matches * (builder.agents - 1)
    random = _make_random(record, Stream.EVALUATION, players)
    make_network = partial(builder.make_network, seed=record.config.seed)
    opponent = LeagueOpponent(league.find_strong, make_network, players, random)

    def read_rating(episode: Episode) -> float:
        return rate(episode.score, episode.rivals, opponent.ratings.reshape(matches, -1)[episode.game])

    return builder.make_evaluation_env(matches, lambda players: opponent), read_rating
