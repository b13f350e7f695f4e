"""Matches whose players have their own games: other buttons, or another view of the same level."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from doom_a3c.agent.opponents import PolicyOpponent
from doom_a3c.agent.policy import Policy
from doom_a3c.envs.doom.make_env import make_seat_server
from doom_a3c.envs.processes.client import GameProcess, ProcessError, answer_all
from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.ports import Ports
from doom_a3c.envs.processes.supervisor import introduce
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.interface import map_nested

TRIES = 4  # to play a match that faults cut short

MakeServer = Callable[[Wire], Any]


def move_to_level(game: DoomSpec, level: DoomSpec) -> DoomSpec:
    """Returns a game that keeps its buttons and view, but has the level, the rules and the match of another."""
    there = {name: getattr(level, name) for name in ("wad", "iwad", "map", "rules", "match")}
    return dataclasses.replace(game, **there)


@contextlib.contextmanager
def seat_players(makers: Sequence[MakeServer]) -> Iterator[tuple[Sequence[GameProcess], int]]:
    """Starts a server for each player of a match, the host first, and ends them; yields them and the match's port.

    Raises:
        ProcessError: if a server has ended.
    """
    ports, servers = Ports(), [GameProcess(maker) for maker in makers]
    try:
        for server in servers:
            server.answer()
        introduce(servers)
        yield servers, ports.renew(0)
    finally:
        for server in servers:
            server.end()
        ports.close()


def begin_match(servers: Sequence[GameProcess], seed: int, port: int) -> list[Any]:
    """Begins a match; returns each player's observation and screen."""
    for server in servers:
        server.ask("begin", seed, port)
    return answer_all(servers)


def make_players(agent: TrainedAgent, players: int, seed: int) -> PolicyOpponent:
    """Returns players with an agent's sampled actions."""
    return PolicyOpponent(Policy(agent.network), players, np.random.default_rng(seed))


def stack_observations(seen: Sequence[Any]) -> Any:
    """Returns the observations of several players as one batch."""
    return map_nested(lambda *parts: np.stack(parts), *seen)


def play_seated(
    agents: Sequence[TrainedAgent], level: DoomSpec, matches: int, seed: int, report: Callable[[int], None]
) -> Iterator[list[float]]:
    """Plays matches in a level, each agent with its own buttons and view; yields the frags of each whole match, by agent.

    A match that an engine's or server's death cuts short is played again.

    Args:
        agents: the players, the host first.
        level: the level, rules and match.
        matches: their number.
        seed: of the first match.
        report: called before each step with the number of finished matches; what it raises ends the play.

    Raises:
        UserError: if the same match is cut short several times in a row.
    """
    for match in range(matches):
        yield _play_whole(partial(_play_match, agents, level, seed + match, partial(report, match)))


def _play_whole(play: Callable[[], list[float]]) -> list[float]:
    """Returns the result of the first try that no fault cuts short."""
    for left in reversed(range(TRIES)):
        try:
            return play()
        except ProcessError as error:
            if not left:
                raise UserError(f"the match failed {TRIES} times in a row: {error}") from None
    raise AssertionError("unreachable")


def _play_match(agents: Sequence[TrainedAgent], level: DoomSpec, seed: int, report: Callable[[], None]) -> list[float]:
    scenarios = [agent.record.scenario for agent in agents]
    makers = [
        partial(make_seat_server, move_to_level(cast(DoomSpec, one.game), level), one.observation, number)
        for number, one in enumerate(scenarios)
    ]
    players = [make_players(agent, 1, seed + number) for number, agent in enumerate(agents)]
    resets, frags, ended = np.ones(1, np.float32), np.zeros(len(agents)), False
    with seat_players(makers) as (servers, port):
        seen = [observation for observation, _ in begin_match(servers, seed, port)]
        while not ended:
            report()
            actions = [player.act(stack_observations([one]), resets)[0] for player, one in zip(players, seen, strict=True)]
            for server, action in zip(servers, actions, strict=True):  # all at once: the engines wait for each other
                server.ask("step", action)
            results = answer_all(servers)
            resets, seen = np.zeros_like(resets), [observation for observation, *_ in results]
            frags += [reward for _, reward, _, _ in results]
            ended = any(end for _, _, end, _ in results)
    return list(map(float, frags))
