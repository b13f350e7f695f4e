"""Reward shaping: extra rewards for changes of game variables, for learning only and not in the score.

In a scenario file it is a table of rewards per unit gained, or of gain, loss and most:

    [shaping]
    KILLCOUNT = 1.0
    HEALTH = { gain = 0.05, loss = 0.01, most = 1.0 }

`--shaping KILLCOUNT=1 HEALTH=0.05,0.01,1` is the same. PLACES is an additional variable: the number of map squares visited
in the episode. A reward for it makes an agent explore until it finds the game's own rewards (Stanton and Clune 2018, "Deep
Curiosity Search", arXiv:1806.00553).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.fields import parse_finite
from doom_a3c.settings.numbers import parse_number

PLACES = "PLACES"
SQUARE = 128  # map units along the side of a place; a player is 32 wide
MAX_WEIGHT = 1e6
MAX_VARIABLES = 50
_PARTS = ("gain", "loss", "most")


@dataclass(frozen=True, kw_only=True)
class Weight:
    """Reward for changes of one variable in one step."""

    gain: float = 0.0  # reward per unit of increase
    loss: float = 0.0  # penalty per unit of decrease
    most: float | None = None  # largest reward or penalty of a step

    def worth(self, change: float) -> float:
        """Returns the reward for a change: gain * change, or loss * change below 0, clipped to `most`."""
        worth = (self.gain if change > 0 else self.loss) * change
        return worth if self.most is None else max(-self.most, min(self.most, worth))


def parse_weights(table: Mapping[str, Any]) -> dict[str, Weight]:
    """Returns the weights of a [shaping] table by variable.

    Raises:
        UserError: naming the mistake.
    """
    require(len(table) <= MAX_VARIABLES, f"[shaping] has {len(table)} variables, {MAX_VARIABLES} at most")
    return {name: _parse_weight(name, value) for name, value in table.items()}


def _parse_weight(name: str, value: object) -> Weight:
    parts = value if isinstance(value, Mapping) else {"gain": value}
    require(
        parts.keys() <= set(_PARTS) and len(parts) > 0,
        f"[shaping] {name} takes a number, or a table of gain, loss and most, such as {{ gain = 0.05, loss = 0.0 }}",
    )
    try:
        checked = {part: parse_finite(_read_number(value), f"[shaping] {name}: {part}") for part, value in parts.items()}
    except ValueError as error:
        raise UserError(f"{error}; it takes a number") from None
    for part, number in checked.items():
        require(abs(number) <= MAX_WEIGHT, f"[shaping] {name}: {part} is {number!r}, {MAX_WEIGHT:,.0f} at most")
    require(name != PLACES or not checked.get("loss"), f"[shaping] {PLACES}: it never falls, so it has no loss")
    require(checked.get("most", 1.0) > 0, f"[shaping] {name}: most is {checked.get('most', 1.0):g}, and must be above 0")
    return Weight(**checked)


def _read_number(value: Any) -> Any:
    """Returns the number in a text such as '2k'; anything else unchanged."""
    try:
        return parse_number(value, float, "") if isinstance(value, str) else value
    except ValueError:
        return value


def parse_shaping(words: Sequence[str]) -> dict[str, Any]:
    """Returns the [shaping] table of words such as 'HEALTH=0.05,0.01,1': gain, loss, and largest reward of a step.

    Raises:
        UserError: for words in another form.
    """
    table: dict[str, Any] = {}
    for word in words:
        name, _, numbers = word.partition("=")
        try:
            parts = dict(zip(_PARTS, map(float, map(_read_number, numbers.split(","))), strict=False))
            require(bool(name) and numbers.count(",") < len(_PARTS), "")
        except (ValueError, UserError):
            raise UserError(
                f"--shaping {word}: it takes VARIABLE=GAIN, VARIABLE=GAIN,LOSS or VARIABLE=GAIN,LOSS,MOST, "
                "such as HEALTH=0.05,0.01"
            ) from None
        require(name not in table, f"--shaping has {name} twice")
        table[name] = parts
    return table
