"""Sets up ViZDoom games: converts a scenario's [game] and [observation] to a configured game and its actions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vizdoom

from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.fields import parse_values, to_flat
from doom_a3c.settings.games import FREEDOOM, DoomSpec, Observation, describe_actions, locate
from doom_a3c.settings.levels import check_files
from doom_a3c.settings.shaping import PLACES, parse_weights
from doom_a3c.settings.vizdoom import VizdoomSettings

TOGETHER = (("MOVE_FORWARD", "MOVE_BACKWARD"), ("MOVE_LEFT", "MOVE_RIGHT"), ("TURN_LEFT", "TURN_RIGHT"), ("ATTACK",))
MAX_DELTA = 180  # degrees per frame of a turn; the engine scales looks and moves differently
MAX_COMBINATIONS = 64  # a scenario with more should list the useful actions


def name_actions(spec: DoomSpec, observation: Observation) -> list[str]:
    """Returns the buttons of each action, such as 'MOVE_LEFT+ATTACK'; raises UserError for a mistake in the scenario."""
    return _name_all(_configure_new(spec, observation).get_available_buttons(), spec)


def name_available_actions(spec: DoomSpec) -> list[str]:
    """Returns the same from `available_buttons` alone, without reading the game's files."""
    known = vizdoom.Button.__members__
    return _name_all([known[name] for name in dict.fromkeys(spec.available_buttons) if name in known], spec)


def describe_game(spec: DoomSpec, observation: Observation) -> str:
    """Returns files, map and actions: 'freedoom2.wad with basic.wad, map01, 3 actions: MOVE_LEFT MOVE_RIGHT ATTACK'."""
    game = _configure_new(spec, observation)
    files = [Path(file).name for file in (game.get_doom_game_path(), game.get_doom_scenario_path()) if file]
    endless = [] if game.get_episode_timeout() else ["no time-out"]
    actions = describe_actions(_name_all(game.get_available_buttons(), spec))
    return ", ".join([" with ".join(files), game.get_doom_map().lower(), *endless, actions])


def _configure_new(spec: DoomSpec, observation: Observation) -> vizdoom.DoomGame:
    game = vizdoom.DoomGame()
    configure(game, spec, observation)
    return game


def _name_all(buttons: Sequence[vizdoom.Button], spec: DoomSpec) -> list[str]:
    return [
        "+".join(_name_press(*pressed) for pressed in zip(buttons, action, strict=True) if pressed[1]) or "NOTHING"
        for action in build_actions(spec, buttons)
    ]


def _name_press(button: vizdoom.Button, value: float) -> str:
    """Returns a button's notation in scenarios: its name, followed by the amount if it is a delta button."""
    return f"{button.name}={value:g}" if vizdoom.is_delta_button(button) else button.name


def build_actions(spec: DoomSpec, buttons: Sequence[vizdoom.Button]) -> list[list[float]]:
    """Returns the engine's button vectors, one per action of the agent.

    - 'single': one action for each button.
    - 'combinations': one action for each subset of the buttons.
    - 'together': combinations of forward or back, left or right, a turn and a shot, or none of each (54 actions at most),
      and each other button alone.
    - A list of actions: each is a button or a list of buttons; [] does nothing.
    - A list of groups: one action for each choice of one element from every group. [["TURN_LEFT", "TURN_RIGHT", []],
      ["ATTACK", []]] makes six.

    The first three leave out delta buttons. In lists a delta button has its amount per frame: "TURN_LEFT_RIGHT_DELTA=-1.5"
    turns 1.5 degrees to the left, so 6 in a step of 4 frames.

    Raises:
        UserError: if the scenario has no usable button or too many combinations, names an unknown button, or gives a delta
            button no amount.
    """
    names = [button.name for button in buttons]
    binary = [name for name, button in zip(names, buttons, strict=True) if not vizdoom.is_delta_button(button)]
    actions = _list_actions(spec.buttons, binary)
    if not binary and not isinstance(spec.buttons, list | tuple):
        raise UserError(_suggest_buttons(names))
    if not actions:
        raise UserError("[game] buttons is empty: name the actions")
    return [_build_vector(action, names, binary) for action in actions]


def _list_actions(setting: object, binary: Sequence[str]) -> list[list[Any]]:
    """Returns the buttons of each action that the setting [game] buttons describes."""
    if setting == "single":
        return [[name] for name in binary]
    if setting == "together":
        pairs = [[name for name in pair if name in binary] for pair in TOGETHER]
        alone = [[name] for name in binary if not any(name in pair for pair in pairs)]
        return _multiply_groups([[[], *pair] for pair in pairs if pair]) + alone
    if setting == "combinations":
        if 2 ** len(binary) > MAX_COMBINATIONS:
            raise UserError(
                f"{len(binary)} buttons make {2 ** len(binary)} combinations, {MAX_COMBINATIONS} at most: "
                "set [game] buttons to 'together' or to a list of the useful actions"
            )
        return [list(subset) for size in range(len(binary) + 1) for subset in itertools.combinations(binary, size)]
    if isinstance(setting, list | tuple) and all(isinstance(action, str | list | tuple) for action in setting):
        grouped = any(not isinstance(part, str) for action in setting for part in action)
        return _multiply_groups(setting) if grouped else [_parse_action(action) for action in setting]
    raise UserError(
        "[game] buttons must be 'single', 'together', 'combinations', a list of actions, each a button or a list of "
        f"buttons, or a list of groups of actions, not {setting!r}"
    )


def _suggest_buttons(deltas: Sequence[str]) -> str:
    """Returns the cure for a scenario without buttons, or with delta buttons alone."""
    if not deltas:
        return "the scenario has no button to press: name some in available_buttons of its cfg"
    actions = ", ".join(f'"{name}={amount}"' for name in deltas[:2] for amount in (-5, 5))
    return (
        f"{', '.join(deltas)}: delta buttons need amounts. List the actions in a .toml whose config is the cfg, such as "
        f"[game] buttons = [{actions}], or add buttons such as TURN_LEFT to available_buttons"
    )


def _build_vector(action: Sequence[object], names: Sequence[str], binary: Sequence[str]) -> list[float]:
    """Returns the value of each button in an action."""
    pressed = dict.fromkeys(names, 0.0)
    for part in action:
        name, value = _parse_press(part, names, binary)
        if pressed[name] not in (0, value):
            raise UserError(f"[game] buttons: {name} is pressed twice, by {pressed[name]:g} and by {value:g}")
        pressed[name] = value
    return list(pressed.values())


def _parse_press(part: object, names: Sequence[str], binary: Sequence[str]) -> tuple[str, float]:
    """Returns the button of one part of an action, and its value: the amount of a delta button, 1 for `binary` ones."""
    name, valued, amount = str(part).partition("=")
    if name not in names:
        raise UserError(f"[game] buttons: {part!r} is none of {', '.join(names)}{suggest(name, names)}")
    if name in binary:
        if valued:
            raise UserError(f"[game] buttons: {name} is pressed or not; {part!r} is for buttons whose names end in _DELTA")
        return name, 1
    try:
        value = float(amount)
    except ValueError:
        value = math.nan
    if not 0 < abs(value) <= MAX_DELTA:
        raise UserError(f"[game] buttons: {part!r} needs an amount per frame, such as {name}=-1.5, {MAX_DELTA} at most")
    return name, value


def _parse_action(action: object) -> list[Any]:
    """Returns the buttons of an action, which may be a single button."""
    if not isinstance(action, str | list | tuple):
        raise UserError(f"[game] buttons: an action is a button or a list of buttons, not {action!r}")
    return [action] if isinstance(action, str) else list(action)


def _multiply_groups(groups: Sequence[Any]) -> list[list[Any]]:
    """Returns one action for every choice of one element from each group."""
    if not all(isinstance(group, list | tuple) and group for group in groups):
        raise UserError(f"[game] buttons: where some are groups of actions, all must be, and none empty: {groups!r}")
    if (count := math.prod(map(len, groups))) > MAX_COMBINATIONS:
        raise UserError(f"[game] buttons: the groups make {count} actions, {MAX_COMBINATIONS} at most")
    return [list(itertools.chain.from_iterable(map(_parse_action, choice))) for choice in itertools.product(*groups)]


def configure(game: vizdoom.DoomGame, spec: DoomSpec, observation: Observation) -> None:
    """Configures a game by its scenario, with frames in the resolution and colours of the observation.

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


def check(spec: DoomSpec, observation: Observation) -> list[list[float]]:
    """Checks a game as far as possible without an engine; returns its button vectors, one per action.

    Raises:
        UserError: for a mistake in the scenario or its files.
    """
    game = _configure_new(spec, observation)
    check_files(spec)
    return build_actions(spec, game.get_available_buttons())
