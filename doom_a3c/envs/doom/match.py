"""A Doom match against the engine's bots, on one engine: adds them, counts frags, and notices bots that are lost."""

from __future__ import annotations

from collections.abc import Sequence

import vizdoom

from doom_a3c.settings.match import MatchSettings

BOT_LOST = "bot_lost"  # a kind of fault
SKILLED_BOTS = "bots.cfg"  # in the engine's folder
_SKILLS = ("aiming", "perfection", "reaction", "isp")
_JOINING_FRAMES = 35  # within which added bots join, as a rule after one
_COUNT = vizdoom.GameVariable.PLAYER_COUNT
_FRAGS = [getattr(vizdoom.GameVariable, f"PLAYER{number}_FRAGCOUNT") for number in range(1, 17)]


def list_arguments(match: MatchSettings) -> str:
    """Returns the engine's arguments for a match on one engine.

    Autoaim, crouching, jumping, looking up and the exits are off by rules: a bot that took an exit would end the match.
    """
    rules = {
        "sv_forcerespawn": match.force_respawn,
        "sv_respawnprotect": match.respawn_protection,
        "sv_spawnfarthest": match.spawn_farthest,
        "sv_noautoaim": not match.autoaim,
        "sv_nocrouch": True,
        "sv_nojump": True,
        "sv_nofreelook": True,
        "sv_noexit": True,
        "viz_respawn_delay": 0,
    }
    # `-host 1` makes a game of one player that bots may join; it opens no connection to anybody.
    return " ".join(["-host 1 -deathmatch", *(f"+{name} {int(value)}" for name, value in rules.items())])


def format_bots(skill: int, count: int) -> str:
    """Returns a bots.cfg with `count` equal bots."""
    skills = "".join(f"    {name} {skill}\n" for name in _SKILLS)
    return "".join(
        f'{{\n    name Bot{number}\n{skills}    color "40 cf 00"\n    skin base\n}}\n' for number in range(1, count + 1)
    )


class BotMatch:
    """The bots of one game's matches. Owns the frags counted so far."""

    def __init__(self, match: MatchSettings) -> None:
        self._match = match
        self._commands = [f"addbot {name}" for name in match.bot_names] or ["addbot"] * match.bots
        self._frags = 0.0
        self._check_at = 0  # the frame of the next look for lost bots
        self._has_lost = False  # whether bots have been lost in this match

    def begin(self, game: vizdoom.DoomGame) -> None:
        """Adds the bots to a match that has just begun."""
        for command in self._commands:
            game.send_game_command(command)
        self._frags, self._check_at, self._has_lost = 0.0, _JOINING_FRAMES, False

    def count_frags(self, game: vizdoom.DoomGame) -> float:
        """Returns the change of the player's frags since the previous call; a suicide is -1."""
        before, self._frags = self._frags, game.get_game_variable(vizdoom.GameVariable.FRAGCOUNT)
        return self._frags - before

    def readd_lost(self, game: vizdoom.DoomGame) -> int:
        """Adds bots that have left the match again; returns how many were lost."""
        if game.get_episode_time() < self._check_at:
            return 0
        lost = self._count_missing(game)
        if lost <= 0:
            return 0
        self._has_lost, self._check_at = True, game.get_episode_time() + _JOINING_FRAMES
        for command in self._commands if self._match.bot_names else self._commands[:lost]:  # the engine adds no name twice
            game.send_game_command(command)
        return lost

    def _count_missing(self, game: vizdoom.DoomGame) -> int:
        return self._match.bots + 1 - int(game.get_game_variable(_COUNT))

    def read_rivals(self, game: vizdoom.DoomGame) -> Sequence[float]:
        """Returns the frags of each bot in a match that has ended; none if one was lost, as its frags are lost with it."""
        if self._has_lost or self._count_missing(game) > 0:
            return []
        own = int(game.get_game_variable(vizdoom.GameVariable.PLAYER_NUMBER))
        frags = [game.get_game_variable(each) for each in _FRAGS[: self._match.bots + 1]]
        return [value for number, value in enumerate(frags) if number != own]
