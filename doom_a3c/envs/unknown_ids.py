"""Suggests ids in place of unknown ones, and of old Atari ids."""

from __future__ import annotations

import re

import gymnasium

from doom_a3c.settings.errors import first_line
from doom_a3c.settings.games import ATARI

_ATARI_ID = re.compile(r"(?:ale_py:|gymnasium:)?(?:ALE/)?(\w+?)(-ram)?-?(NoFrameskip|Deterministic)?-v(\d+)")
_MODULES = {"minigrid": "minigrid", "babyai": "minigrid", "highway": "highway_env"}  # modules by the first word of an id


def suggest_atari(game_id: str) -> str:
    """Returns the ALE/ id and the settings that match an old Atari id; '' for any other id."""
    from doom_a3c.envs.atari import list_games  # late: it loads the emulator

    match = _ATARI_ID.fullmatch(game_id)
    names = {name.lower(): name for name in list_games()}
    if not match or not (name := names.get(match[1].lower())):
        return ""
    skips, version = match[3], int(match[4])
    sticky = 0.0 if version in (1, 2, 3, 4) else 0.25
    if skips == "NoFrameskip":
        skip = "1 (4 with its usual wrappers)"
    elif skips or version == 5:
        skip = "3" if skips and name == "SpaceInvaders" else "4"
    else:
        skip = "3 (it skips 2 to 4 at random)"
    ram = "; observations are pixels, RAM is not supported" if match[2] else ""
    return (
        f"use {ATARI}{name}-v5, the same game; to match, set --frame-skip {skip} and [game] sticky_actions = {sticky:g} "
        f"(Gymnasium's repeat_action_probability); the defaults are 4 and 0, see docs/atari.md{ram}"
    )


def suggest_id(game_id: str, error: gymnasium.error.UnregisteredEnv) -> str:
    """Returns an error message for an id unknown to Gymnasium, with a suggestion."""
    if atari := suggest_atari(game_id):
        return atari
    if isinstance(error, gymnasium.error.VersionNotFound) or ":" in game_id:
        return first_line(error)
    module = _MODULES.get(re.split(r"\W", game_id)[0].lower(), "my_module")
    return f"{first_line(error)} If a module registers it, put the module in front: {module}:{game_id}"
