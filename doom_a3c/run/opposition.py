"""Opponents of matches from a league of earlier weights, for training and evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from doom_a3c.agent.distributions import Actions, Array
from doom_a3c.agent.games_wrapper import GamesWrapper
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.model import Snapshot
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.opponents import Opponent, PolicyOpponent, read_rivals
from doom_a3c.agent.player import Bools, GameVector, Rewards
from doom_a3c.agent.policy import Policy
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.checkpoints.run_record import RunRecord, find_needed_override
from doom_a3c.run.league import FOLDER, League, Member, find_outcome, rate
from doom_a3c.settings.errors import UserError, require, suggest
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.interface import map_nested
from doom_a3c.settings.streams import Stream, make_seed
from doom_a3c.settings.training import OPPONENTS

AT_ONCE = 4  # members that play at the same time


class LeagueOpponent(Opponent):
    """Plays with members of a league, a few at a time. Owns their networks.

    A member is replaced once all of its players have begun a match under it. They usually begin together; after a fault one
    of them is out of step for good, and changes its member during its match.
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
            report: receives a member and the outcome of a finished match for it, see `find_outcome`.
        """
        self._choose, self._report, count = choose, report, min(AT_ONCE, players)
        # The players of each member. The first half of an evaluation's plays greedily: both halves meet all members.
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
        """The rating of the member that each player is now, [K]; 0 if that is unknown."""
        return np.array([self._find_member(player).rating or 0.0 for player in range(len(self._begun))])

    def _find_member(self, player: int) -> Member:
        return self._members[player % len(self._parts)]

    def note(self, frags: Rewards, ended: Bools, rivals: Sequence[Sequence[float] | None]) -> None:
        self._frags += frags
        for player in map(int, np.flatnonzero(ended)):
            if theirs := rivals[player]:  # else it was cut short
                self._report(self._find_member(player), find_outcome(self._frags[player], theirs))
            self._frags[player] = 0.0


class RatedMatches(GamesWrapper):
    """Matches whose only reward is the rating of the player's performance, at their end."""

    def __init__(self, env: GameVector, opponent: LeagueOpponent) -> None:
        """`opponent` plays the other players of these matches."""
        super().__init__(env)
        self._opponent = opponent
        self._frags = np.zeros(env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all matches."""
        self._frags = np.zeros_like(self._frags)
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all matches."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._frags += rewards
        paid, theirs = np.zeros_like(self._frags), self._opponent.ratings.reshape(self.num_envs, -1).mean(axis=1)
        rivals = read_rivals(infos, self.num_envs)
        for game in map(int, np.flatnonzero(terminated | truncated)):
            paid[game] = rate(theirs[game], find_outcome(self._frags[game], rivals[game] or ()))
            self._frags[game] = 0.0
        return observations, paid, terminated, truncated, infos


def arrange_league(
    record: RunRecord, builder: Builder, folder: Path, weights: Snapshot, warn: Callable[[str], None]
) -> League | None:
    """Gives the training games their opponents; returns the league of the run, None if it has no several agents.

    Args:
        record: of the run.
        builder: of its games.
        folder: of its checkpoints, where an earlier session may have left a league.
        weights: the first member of a new league, rated as the newest of a lost one.
        warn: receives a line for each member that cannot be read.

    Raises:
        UserError: if the checkpoint that is to be the opponent does not fit.
    """
    config = record.config
    if builder.agents == 1:
        return None
    if config.opponents in OPPONENTS:
        league = League.read(folder / FOLDER, builder.make_network("opponent", 0), find_needed_override(record), warn)
        if not league.members:
            with contextlib.suppress(OSError):  # the first checkpoint will meet the same trouble, and say so
                league.add(record, league.last_rating, weights)
    else:
        league = League(folder / FOLDER, [_load_opponent(record, builder)], fixed=True)
    builder.opposed = config.count_opposed(builder.agents)
    builder.make_opponent = partial(
        _make_opponent,
        record,
        builder,
        Stream.TRAINING,
        choose=lambda random, part: league.draw(random),
        report=league.note,
    )
    return league


def _load_opponent(record: RunRecord, builder: Builder) -> Member:
    name, game = record.config.opponents, builder.scenario.name
    try:
        path = find_model(name)
    except UserError as error:
        others = (*OPPONENTS, "bots")
        raise UserError(f"--opponents: {error}; it also takes {', '.join(others)}{suggest(name, others)}") from None
    checkpoint = load(path, find_needed_override(record))  # the user has named the run's own files already
    theirs = checkpoint.record
    played = theirs.scenario.game
    if not isinstance(played, DoomSpec):
        raise UserError(f"--opponents {path} plays {theirs.scenario.name}, not Doom")
    checkpoint.check_finite(path)
    try:
        builder.make_network("opponent", 0).load(checkpoint.variables)
    except (KeyError, ValueError) as error:
        raise UserError(f"--opponents {path} has another network than {game} needs: {error}") from None
    fits = builder.has_learned(theirs.learned or played, theirs.actions)
    require(fits, f"--opponents {path} was trained on other actions than {game} has, or in another order")
    return Member(0, 0.0, checkpoint.variables)


def _make_opponent(
    record: RunRecord,
    builder: Builder,
    stream: Stream,
    players: int,
    choose: Callable[[np.random.Generator, int], Member],
    report: Callable[[Member, float], None] = lambda member, outcome: None,
) -> LeagueOpponent:
    """Makes an opponent whose members `choose` returns, given its random generator and a part of its players.

    `report` receives the outcomes of its matches.
    """
    random = np.random.default_rng(make_seed(record.config.seed, stream, record.restarts, players))
    make_network = partial(builder.make_network, seed=record.config.seed)
    return LeagueOpponent(partial(choose, random), make_network, players, random, report)


def make_rated_matches(record: RunRecord, builder: Builder, league: League, matches: int) -> GameVector:
    """Makes the matches of an evaluation, whose scores are ratings, against the four strongest members.

    Drawn members would rate by luck: of weights that win all their matches, those with the stronger draw would rate higher.
    """
    opponents: list[LeagueOpponent] = []

    def make(players: int) -> LeagueOpponent:
        opponent = _make_opponent(
            record, builder, Stream.EVALUATION, players, choose=lambda random, part: league.find_strong(part)
        )
        opponents.append(opponent)
        return opponent

    env = builder.make_evaluation_env(matches, make)
    return RatedMatches(env, opponents[0])
