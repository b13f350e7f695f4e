"""The agent's actions in a ViZDoom game: one choice among combinations of buttons, or a choice for each group of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import vizdoom
from gymnasium.spaces import Discrete, MultiDiscrete, Space

from doom_a3c.settings.actions import read_choice, shorten
from doom_a3c.settings.errors import UserError, suggest
from doom_a3c.settings.games import DoomSpec, describe_actions

TOGETHER = (("MOVE_FORWARD", "MOVE_BACKWARD"), ("MOVE_LEFT", "MOVE_RIGHT"), ("TURN_LEFT", "TURN_RIGHT"), ("ATTACK",))
WEAPONS = ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON", *(f"SELECT_WEAPON{number}" for number in range(10)))
HEADS = (*TOGETHER, ("USE",), ("JUMP", "CROUCH"), WEAPONS)  # of 'heads'; any other button is a head of its own
TURN, TURNS, FASTEST_TURN = "TURN_LEFT_RIGHT_DELTA", 21, 12.5  # of 'heads': steps, and degrees per frame
MAX_DELTA = 180  # degrees per frame of a turn; the engine scales looks and moves differently
MAX_COMBINATIONS = 64  # a scenario with more should list the useful actions
MAX_HEADS, MAX_STEPS = 32, 255
IDLE = "NOTHING"  # the name of an action that presses no button


class ButtonActions(NamedTuple):
    """The actions of a game: the engine's button vectors for each choice of each head, and their names."""

    heads: Sequence[Sequence[Sequence[float]]]  # with several heads, the sums of their vectors are pressed
    names: Sequence[Sequence[str]]
    joint: bool  # whether one choice decides all buttons

    @property
    def space(self) -> Space[Any]:
        sizes = [len(head) for head in self.heads]
        return Discrete(sizes[0]) if self.joint else MultiDiscrete(np.array(sizes))

    @property
    def flat_names(self) -> list[str]:
        """The names of all choices; those of several heads are unique."""
        if self.joint:
            return list(self.names[0])
        return [f"no {_shorten_head(names)}" if name == IDLE else name for names in self.names for name in names]

    def press(self, action: Any) -> list[float]:
        """Returns the button vector of an action; raises UserError if it is not in the space."""
        choices = [action] if self.joint else action
        try:
            chosen = [head[read_choice(choice, len(head))] for head, choice in zip(self.heads, choices, strict=True)]
        except (TypeError, ValueError):
            sizes = ", ".join(str(len(head)) for head in self.heads)
            whole = "a whole number" if self.joint else "whole numbers, each"
            raise UserError(f"the action {shorten(action)} is not {whole} from 0 to below {sizes}") from None
        return list(chosen[0]) if self.joint else [sum(values) for values in zip(*chosen, strict=True)]

    def describe(self) -> str:
        """Returns the actions in a few words."""
        if self.joint:
            return describe_actions(self.names[0])
        heads = ", ".join(f"{len(names)} of {_shorten_head(names)}" for names in self.names)
        return f"{len(self.heads)} choices: {heads}"


def _shorten_head(names: Sequence[str]) -> str:
    pressed = [name for name in names if name != IDLE]
    return pressed[0].partition("=")[0] + (" ..." if len(pressed) > 1 and "=" not in pressed[0] else "")


def make_actions(spec: DoomSpec, buttons: Sequence[vizdoom.Button]) -> ButtonActions:
    """Returns the actions that [game] buttons describes.

    `buttons = { heads = [...] }` makes a choice for each group: nothing (always the first), one of its buttons or lists of
    buttons, or a step of a delta button, such as `{ TURN_LEFT_RIGHT_DELTA = { steps = 21, most = 12.5 } }`, evenly spaced
    from -12.5 to 12.5 per frame. 'heads' makes the groups: forward and back, left and right, turns (in 21 steps with the
    delta button), attack, use, jump and crouch, weapons, and each other button. 'auto' is 'heads' for a game that offers
    more than moves, turns and shots, otherwise 'together'. All other settings make a single choice, see `build_actions`.

    Raises:
        UserError: as `build_actions`, or if a group is wrong.
    """
    names, binary = _name_buttons(buttons)
    setting = spec.buttons
    if setting == "auto":
        setting = "heads" if set(names) - set(itertools.chain(*TOGETHER)) else "together"
    if setting == "heads" or isinstance(setting, Mapping):
        heads = _find_heads(names, binary) if setting == "heads" else _read_heads(setting, names, binary)
        vectors = [[_build_vector(action, names, binary) for action in head] for head in heads]
        pressed = [{part.partition("=")[0] for action in head for part in action} for head in heads]
        if shared := [name for one, two in itertools.combinations(pressed, 2) for name in sorted(one & two)]:
            raise UserError(f"[game] buttons: {shared[0]} is in two heads")
        return ButtonActions(vectors, [_name_all(head, buttons) for head in vectors], joint=False)
    actions = build_actions(setting, buttons)
    return ButtonActions([actions], [_name_all(actions, buttons)], joint=True)


def _name_buttons(buttons: Sequence[vizdoom.Button]) -> tuple[list[str], list[str]]:
    """Returns the names of all buttons, and those of the binary ones, which are either pressed or not."""
    return [button.name for button in buttons], [button.name for button in buttons if not vizdoom.is_delta_button(button)]


def _find_heads(names: Sequence[str], binary: Sequence[str]) -> list[list[list[str]]]:
    """Returns the heads of 'heads' for these buttons."""
    pressed = [name for name in binary if not (TURN in names and name in ("TURN_LEFT", "TURN_RIGHT"))]
    groups = [[name for name in group if name in pressed] for group in HEADS]
    alone = [[name] for name in pressed if not any(name in group for group in groups)]
    heads = [[[], *([name] for name in group)] for group in (*groups, *alone) if group]
    if TURN in names:
        heads.append(_list_steps(TURN, TURNS, FASTEST_TURN))
    if not heads:
        raise UserError(_suggest_buttons(names))
    return heads


def _list_steps(name: str, steps: int, most: float) -> list[list[str]]:
    """Returns the steps of a delta button, preceded by the idle choice, [], if 0 is one of them."""
    amounts = np.linspace(-most, most, steps).round(6).tolist()
    return [*([[]] if 0 in amounts else []), *([f"{name}={amount:.6g}"] for amount in amounts if amount)]


def _read_heads(table: Mapping[str, Any], names: Sequence[str], binary: Sequence[str]) -> list[list[list[str]]]:
    """Returns the choices of each head of a table `{ heads = [...] }`."""
    groups = table.get("heads")
    if set(table) != {"heads"} or not isinstance(groups, list | tuple) or not 0 < len(groups) <= MAX_HEADS:
        raise UserError(f"[game] buttons: a table has heads, a list of 1 to {MAX_HEADS} groups of buttons, not {table!r}")
    return [_read_head(group, names, binary) for group in groups]


def _read_head(group: Any, names: Sequence[str], binary: Sequence[str]) -> list[list[str]]:
    if isinstance(group, list | tuple) and group:
        actions = [[], *(_parse_action(action) for action in group)]
        if any(actions):
            return [action for index, action in enumerate(actions) if action not in actions[:index]]
    if isinstance(group, Mapping) and len(group) == 1:
        ((name, steps),) = group.items()
        if name not in names or name in binary:
            raise UserError(
                f"[game] buttons: {name!r} is none of the game's buttons whose names end in _DELTA: add one, such as "
                f"{TURN}, to available_buttons"
            )
        if isinstance(steps, Mapping) and set(steps) == {"steps", "most"}:
            count, most = steps["steps"], steps["most"]
            whole = isinstance(count, int) and not isinstance(count, bool) and 2 <= count <= MAX_STEPS
            if whole and isinstance(most, int | float) and not isinstance(most, bool) and 0 < most <= MAX_DELTA:
                return _list_steps(name, count, float(most))
        raise UserError(
            f"[game] buttons: {name} needs {{ steps = 21, most = 12.5 }}: 2 to {MAX_STEPS} steps up to an amount per "
            f"frame, {MAX_DELTA} at most, not {steps!r}"
        )
    raise UserError(
        f'[game] buttons: a head is a list of buttons, such as ["TURN_LEFT", "TURN_RIGHT"], or a delta button with its '
        f"steps, not {group!r}"
    )


def _name_all(actions: Sequence[Sequence[float]], buttons: Sequence[vizdoom.Button]) -> list[str]:
    return [
        "+".join(_name_press(*pressed) for pressed in zip(buttons, action, strict=True) if pressed[1]) or IDLE
        for action in actions
    ]


def _name_press(button: vizdoom.Button, value: float) -> str:
    """Returns a button's notation in scenarios: its name, followed by the amount if it is a delta button."""
    return f"{button.name}={value:g}" if vizdoom.is_delta_button(button) else button.name


def build_actions(setting: Any, buttons: Sequence[vizdoom.Button]) -> list[list[float]]:
    """Returns the engine's button vectors, one per action of the agent, for [game] buttons without heads.

    - 'single': one action for each button.
    - 'combinations': one action for each subset of the buttons.
    - 'together': combinations of forward or back, left or right, a turn and a shot, or none of each (54 actions at most),
      and each other button alone.
    - A list of actions: each is a button or a list of buttons; [] does nothing.
    - A list of groups: one action for each choice of one element from every group. [["TURN_LEFT", "TURN_RIGHT", []],
      ["ATTACK", []]] makes six.

    The first three leave out delta buttons. In a list, a delta button comes with its amount per frame:
    "TURN_LEFT_RIGHT_DELTA=-1.5" turns 1.5 degrees to the left, so 6 in a step of 4 frames.

    Raises:
        UserError: if the scenario has no usable button or too many combinations, names an unknown button, or gives a delta
            button no amount.
    """
    names, binary = _name_buttons(buttons)
    actions = _list_actions(setting, binary)
    if not binary and not isinstance(setting, list | tuple):
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
        "[game] buttons must be 'single', 'together', 'combinations', 'heads', 'auto', a list of actions, each a button or "
        f"a list of buttons, or a list of groups of actions, not {setting!r}"
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
