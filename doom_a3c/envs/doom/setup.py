"""Sets up ViZDoom games: converts a scenario's [game] and [observation] to a configured game."""

from __future__ import annotations

from pathlib import Path

import vizdoom

from doom_a3c.envs.doom.buttons import ButtonActions, make_actions
from doom_a3c.envs.doom.match import Seat, list_arguments
from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.fields import parse_values, to_flat
from doom_a3c.settings.games import FREEDOOM, DoomSpec, Observation, locate
from doom_a3c.settings.levels import check_files
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.shaping import PLACES, parse_weights
from doom_a3c.settings.vizdoom import VizdoomSettings


def name_available_actions(spec: DoomSpec) -> list[str]:
    """Returns the names of a game's choices, from `available_buttons` alone, without reading the game's files."""
    known = vizdoom.Button.__members__
    return make_actions(spec, [known[name] for name in dict.fromkeys(spec.available_buttons) if name in known]).flat_names


def describe_game(spec: DoomSpec, observation: Observation) -> str:
    """Returns files, map and actions: 'freedoom2.wad with basic.wad, map01, 3 actions: MOVE_LEFT MOVE_RIGHT ATTACK'."""
    game = _configure_new(spec, observation)
    files = [Path(file).name for file in (game.get_doom_game_path(), game.get_doom_scenario_path()) if file]
    endless = [] if game.get_episode_timeout() else ["no time-out"]
    actions = make_actions(spec, game.get_available_buttons()).describe()
    return ", ".join([" with ".join(files), game.get_doom_map().lower(), *endless, actions])


def _configure_new(spec: DoomSpec, observation: Observation) -> vizdoom.DoomGame:
    game = vizdoom.DoomGame()
    configure(game, spec, observation)
    return game


def configure(game: vizdoom.DoomGame, spec: DoomSpec, observation: Observation, seat: Seat | None = None) -> None:
    """Configures a game by its scenario, with frames in the resolution and colours of the observation.

    A `seat` is the player's place in a match of several agents.

    Raises:
        UserError: if ViZDoom has no such button, variable or resolution, or a setting does not exist.
    """
    if spec.wad:
        game.set_doom_scenario_path(str(locate(spec.wad)))
    game.set_doom_game_path(str(locate(spec.iwad or FREEDOOM)))
    if spec.map:
        game.set_doom_map(spec.map)
    for key, value in to_flat(parse_values(VizdoomSettings, spec.settings, "[game.settings]")).items():
        if value is not None:
            getattr(game, f"set_{key}")(value)
    for name, number in spec.rules.items():
        game.add_game_args(f"+{name} {number}")
    if match := parse_match(spec.match):  # after the rules of a cfg or checkpoint: the engine follows the last
        game.set_episode_timeout(0 if seat else match.frames)  # the engines of a match have separate clocks
        game.add_game_args(list_arguments(match, seat))
    for name in spec.available_buttons:
        if name not in vizdoom.Button.__members__:
            buttons = list(vizdoom.Button.__members__)
            raise UserError(f"[game] available_buttons: unknown button {name!r}{suggest(name, buttons)}")
    game.set_available_buttons([getattr(vizdoom.Button, name) for name in spec.available_buttons])
    for name in spec.variables:
        if name not in vizdoom.GameVariable.__members__:
            variables = list(vizdoom.GameVariable.__members__)
            hint = "; it is for [shaping] alone" if name == PLACES else suggest(name, variables)
            raise UserError(f"[game] variables: unknown variable {name!r}{hint}")
    game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in spec.variables])
    shapeable = [*vizdoom.GameVariable.__members__, PLACES]
    for name in parse_weights(spec.shaping):
        if name not in shapeable:
            raise UserError(f"[shaping]: unknown variable {name!r}{suggest(name, shapeable)}")
    set_screen(game, observation.resolution, observation.color)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_window_visible(False)
    game.set_sound_enabled(False)


def set_screen(game: vizdoom.DoomGame, resolution: str, color: bool) -> None:
    """Sets the engine's resolution, such as '160x120', and RGB or grey frames; raises UserError for an unknown one."""
    name = f"RES_{resolution.upper()}"
    if name not in vizdoom.ScreenResolution.__members__:
        known = [key[4:].lower() for key in vizdoom.ScreenResolution.__members__]
        raise UserError(f"[observation] resolution: ViZDoom has no {resolution!r}, but {', '.join(known)}")
    game.set_screen_resolution(getattr(vizdoom.ScreenResolution, name))
    game.set_screen_format(vizdoom.ScreenFormat.RGB24 if color else vizdoom.ScreenFormat.GRAY8)


def check(spec: DoomSpec, observation: Observation) -> ButtonActions:
    """Checks everything about a game that can be checked without an engine; returns its actions.

    Raises:
        UserError: for a mistake in the scenario or its files.
    """
    actions = make_actions(spec, _configure_new(spec, observation).get_available_buttons())
    check_files(spec)
    return actions
