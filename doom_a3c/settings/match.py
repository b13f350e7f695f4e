"""Settings of a Doom match: a deathmatch of agents, of the engine's bots, or of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from doom_a3c.settings.errors import UserError, require, suggest
from doom_a3c.settings.fields import parse_values, setting

# ViZDoom's bots.cfg has these, each with its own skills.
BOTS = (
    *("Rambo", "McClane", "MacGyver", "Plissken", "Machete", "Anderson", "Leone", "Predator", "Ripley", "T800", "Dredd"),
    *("Conan", "Bond", "Jones", "Blazkowicz"),
)
MAX_PLAYERS = 16  # of the engine


@dataclass(frozen=True, kw_only=True)
class MatchSettings:
    """Keys of [game.match] in a Doom scenario."""

    bots: int = setting(0, "Number of players that are the engine's bots", low=0, high=len(BOTS))
    agents: int = setting(1, "Number of players that are agents, each with its own engine", low=1, high=MAX_PLAYERS)
    bot_names: tuple[str, ...] = setting((), "Names of the bots; unset chooses them at random", many=True)
    bot_skill: int | None = setting(None, "Skill of all bots; unset keeps each bot's own", low=0, high=100)
    minutes: float = setting(4.0, "Length of a match in game time", above=0.0, high=60.0)
    force_respawn: bool = setting(True, "Whether dead players come back at once")
    respawn_protection: bool = setting(True, "Whether players cannot be hurt just after they come back")
    spawn_farthest: bool = setting(True, "Whether players come back far from the others")
    autoaim: bool = setting(False, "Whether the engine aims up and down for the players")

    @property
    def players(self) -> int:
        """Number of players, agents and bots."""
        return self.agents + self.bots

    @property
    def frames(self) -> int:
        """Length of a match in frames."""
        return max(1, round(self.minutes * 60 * 35))

    @property
    def rules(self) -> dict[str, bool]:
        """The engine's rules that a match sets. Crouching, jumping, looking up and exits, which would end it, are off."""
        return {
            "sv_forcerespawn": self.force_respawn,
            "sv_respawnprotect": self.respawn_protection,
            "sv_spawnfarthest": self.spawn_farthest,
            "sv_noautoaim": not self.autoaim,
            "sv_nocrouch": True,
            "sv_nojump": True,
            "sv_nofreelook": True,
            "sv_noexit": True,
        }


def seat_bots(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a [game.match] table with bots in place of all agents but one; raises UserError if the table is empty."""
    if (match := parse_match(table)) is None:
        raise UserError("--opponents bots: the game is no match: [game.match] bots = 7 makes one")
    others = {key: value for key, value in table.items() if key != "bot_names" or match.agents == 1}
    return {**others, "agents": 1, "bots": match.players - 1}


def check_match(match: MatchSettings, buttons: Collection[str]) -> None:
    """Raises UserError if a player with these buttons could not come back after its first death."""
    stays_dead = not match.force_respawn and "USE" not in buttons
    require(not stays_dead, "[game.match] force_respawn = false: dead players come back by USE, so add that to the buttons")


def check_match_file(tables: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Checks the [game.match] among the valid `tables` of a scenario file; `sources` has the source of each value, by path.

    Raises:
        UserError: for an empty one, or a setting of the file, not of its cfg, that a match does not use.
    """
    if (match := tables.get("game", {}).get("match")) is None:
        return
    require(match != {}, "[game.match] is empty: bots = 7 is a match against seven bots, agents = 2 one of two agents")
    rules = MatchSettings().rules
    for path, source in sources.items():
        table, _, name = path.rpartition(".")
        if table == "game.rules" and not source.startswith("cfg"):
            require(name not in rules, f"[game.rules] {name} has no effect: a match sets it, see the keys of [game.match]")
        if table != "game.settings" or source.startswith("cfg"):
            continue
        require(name != "episode_timeout", "[game.settings] episode_timeout has no effect: a match lasts its minutes")
        paid = name.endswith(("_reward", "_penalty"))
        require(
            not paid, f"[game.settings] {name} has no effect: a match is scored by frags alone; [shaping] pays for more"
        )


def parse_match(table: Mapping[str, Any]) -> MatchSettings | None:
    """Returns the settings of a [game.match] table, None for an empty one.

    Raises:
        UserError: for an unknown key, a value out of range, or a name that no bot has.
    """
    if not table:
        return None
    match = parse_values(MatchSettings, table, "[game.match]")
    cure = "bots = 7 is a match against seven bots, agents = 2 one of two agents"
    require(
        1 < match.players <= MAX_PLAYERS, f"[game.match] has {match.players} players, 2 to {MAX_PLAYERS} can play: {cure}"
    )
    for name in match.bot_names:
        require(name in BOTS, f"[game.match] bot_names: there is no bot {name!r}{suggest(name, BOTS)}")
        require(match.bot_names.count(name) == 1, f"[game.match] bot_names has {name} twice: name another, or no bots")
    named = len(match.bot_names)
    require(
        named in (0, match.bots), f"[game.match] bot_names has {named} of {match.bots} names: one for each bot, or none"
    )
    require(match.bots > 0 or match.bot_skill is None, "[game.match] bot_skill has no effect without bots: set bots = 1")
    require(not (named and match.bot_skill is not None), "[game.match] takes bot_names or bot_skill, not both")
    return match
