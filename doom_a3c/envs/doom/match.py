"""A Doom match, as the engine of one player sees it: adds bots, counts frags, and notices bots that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import vizdoom

from doom_a3c.settings.match import MatchSettings

BOT_LOST = "bot_lost"  # a kind of fault
SKILLED_BOTS = "bots.cfg"  # in the engine's folder
_SKILLS = ("aiming", "perfection", "reaction", "isp")
CONNECT_SECONDS = 8  # for the engines of a match to meet
_JOINING_FRAMES = 35  # within which added bots join, usually after one frame
_COUNT = vizdoom.GameVariable.PLAYER_COUNT
_FRAGS = [getattr(vizdoom.GameVariable, f"PLAYER{number}_FRAGCOUNT") for number in range(1, 17)]


class Seat(NamedTuple):
    """A player's place in a match of several agents."""

    number: int  # the engine of player 0 is the host, which the others join
    port: int  # of the host


def list_arguments(match: MatchSettings, seat: Seat | None = None) -> str:
    """Returns the arguments of a player's engine; without a seat the match has one engine."""
    # `-host 1` makes a game of one player that bots may join; it opens no connection to anybody.
    if seat is None:
        meeting = "-host 1"
    else:
        role = "-join 127.0.0.1" if seat.number else f"-host {match.agents}"
        meeting = f"{role} -port {seat.port} +viz_connect_timeout {CONNECT_SECONDS}"
    rules = {**match.rules, "viz_respawn_delay": 0}
    return " ".join([meeting, "-deathmatch", *(f"+{name} {int(value)}" for name, value in rules.items())])


def format_bots(skill: int, count: int) -> str:
    """Returns a bots.cfg with `count` equal bots."""
    skills = "".join(f"    {name} {skill}\n" for name in _SKILLS)
    return "".join(
        f'{{\n    name Bot{number}\n{skills}    color "40 cf 00"\n    skin base\n}}\n' for number in range(1, count + 1)
    )


class Match:
    """The matches of one player, whose engine may host bots. Owns the frags counted so far."""

    def __init__(self, match: MatchSettings) -> None:
        self.frames, self.agents, self._players = match.frames, match.agents, match.players
        self._are_named = bool(match.bot_names)
        self._commands = [f"addbot {name}" for name in match.bot_names] or ["addbot"] * match.bots
        self._frags = 0.0
        self._check_at = 0  # the frame of the next check for lost bots
        self._has_lost = False  # whether bots have been lost in this match

    def begin(self, game: vizdoom.DoomGame, hosts: bool = True) -> None:
        """Begins a match on an engine that has just started; adds the bots if this engine `hosts` the match."""
        for command in self._commands if hosts else ():
            game.send_game_command(command)
        self._frags, self._check_at, self._has_lost = 0.0, _JOINING_FRAMES, False

    def count_frags(self, game: vizdoom.DoomGame) -> float:
        """Returns the change of the player's frags since the previous call; a suicide is -1."""
        before, self._frags = self._frags, game.get_game_variable(vizdoom.GameVariable.FRAGCOUNT)
        return self._frags - before

    def readd_lost(self, game: vizdoom.DoomGame, hosts: bool = True) -> int:
        """Notes that bots have left; an engine that `hosts` adds them again and returns how many; others return 0."""
        if game.get_episode_time() < self._check_at:
            return 0
        lost = self._count_missing(game)
        if lost <= 0:
            return 0
        self._has_lost, self._check_at = True, game.get_episode_time() + _JOINING_FRAMES
        if not hosts:
            return 0
        for command in self._commands if self._are_named else self._commands[:lost]:  # the engine adds no name twice
            game.send_game_command(command)
        return lost

    def _count_missing(self, game: vizdoom.DoomGame) -> int:
        return self._players - int(game.get_game_variable(_COUNT))

    def read_state(self, game: vizdoom.DoomGame) -> int:
        """Returns a checksum of all players' frags, 0 to 250, which is the same in all engines of a match."""
        return sum(place * int(frags) for place, frags in enumerate(self._read_frags(game), 1)) % 251

    def read_rivals(self, game: vizdoom.DoomGame) -> Sequence[float]:
        """Returns the frags of the others in a match that has ended; [] if a bot was lost, since its frags are lost too."""
        if self._has_lost or self._count_missing(game) > 0:
            return []
        own = int(game.get_game_variable(vizdoom.GameVariable.PLAYER_NUMBER))
        return [frags for number, frags in enumerate(self._read_frags(game)) if number != own]

    def _read_frags(self, game: vizdoom.DoomGame) -> list[float]:
        """Returns the frags of every player, by number."""
        return [game.get_game_variable(each) for each in _FRAGS[: self._players]]
