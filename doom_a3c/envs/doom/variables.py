"""Game variables: scaled for the network, and rewarded by shaping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import vizdoom

from doom_a3c.settings.shaping import PLACES, SQUARE, Weight

HELD_AMMO = "SELECTED_WEAPON_AMMO"  # of the weapon in hand: another weapon may use other ammunition
HEALTH = "HEALTH"  # falls to -999900 while a dead player waits to come back
# Prefixes of the names of variables that change when a player dies and comes back.
OF_A_LIFE = (
    *("HEALTH", "ARMOR", "AMMO", "WEAPON", "SELECTED_WEAPON"),
    *(PLACES, "POSITION", "VELOCITY", "ANGLE", "PITCH", "ROLL", "VIEW", "CAMERA"),
)
ANGLES = ("ANGLE", "CAMERA_ANGLE", "ROLL", "CAMERA_ROLL")  # degrees; the engine's go from 0 to 360


class GameVariables:
    """Converts the engine's game variables to the network's input."""

    def __init__(self, names: Sequence[str], scales: Sequence[float]) -> None:
        """`scales` has one factor per variable; if empty, all are 1."""
        self._factors = np.asarray(scales or np.ones(len(names)), np.float32)
        self._angles = np.asarray([name in ANGLES for name in names], bool)
        self._least = np.asarray([0.0 if name == HEALTH else -np.inf for name in names], np.float32)

    def convert(self, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Returns the float32 inputs, [V], for the variables of one frame; angles are mapped to -180 to 180 degrees."""
        numbers = np.maximum(np.asarray(values, np.float32), self._least)
        scaled: npt.NDArray[np.float32] = np.where(self._angles, (numbers + 180.0) % 360.0 - 180.0, numbers) * self._factors
        return scaled.astype(np.float32)


class _Life(NamedTuple):
    """Whether a player lives."""

    deaths: float  # so far
    dead: bool


class Shaping:
    """Rewards changes of a game's variables from step to step.

    If the player `respawns`, changes caused by dying and coming back, such as those of health and place, pay nothing. Nor
    does `HELD_AMMO` in a step that changes the weapon: switching back and forth would be paid without end.
    Owns the variables' values after the previous step, and the set of places visited in the episode.
    """

    def __init__(self, weights: Mapping[str, Weight], respawns: bool = False) -> None:
        self._weights = list(weights.values())
        self._lost_by_death = [respawns and name.startswith(OF_A_LIFE) for name in weights]
        self._of_weapon = [name == HELD_AMMO for name in weights]
        self._life, self._weapon = _Life(0.0, dead=False), -1.0
        self._readers = [self._count_places if name == PLACES else _make_reader(name) for name in weights]
        self._visited: set[tuple[float, float]] = set()
        self._before: list[float] = []

    def begin(self, game: vizdoom.DoomGame) -> None:
        """Begins an episode and reads its starting values: the engine does not reset all variables."""
        self._visited.clear()
        self._before = self._read(game)
        self._weapon = _read_weapon(game)
        self._life = _read_life(game)  # may be dead already: in a match, a player who spawns on top of another kills it

    def compute_bonus(self, game: vizdoom.DoomGame) -> float:
        """Returns the shaping reward for the changes since the previous step; works after an episode's end, too."""
        before, self._before = self._before, self._read(game)
        ends_life = any(self._lost_by_death) and self._has_died(game)
        switched = any(self._of_weapon) and self._has_switched(game)
        kinds = zip(self._lost_by_death, self._of_weapon, strict=True)
        unpaid = [(lost and ends_life) or (held and switched) for lost, held in kinds]
        changes = zip(self._weights, before, self._before, unpaid, strict=True)
        return sum(weight.worth(now - then) for weight, then, now, skipped in changes if not skipped)

    def _has_died(self, game: vizdoom.DoomGame) -> bool:
        """Returns whether the player died or was dead during the last step."""
        before, self._life = self._life, _read_life(game)
        return self._life.deaths > before.deaths or before.dead or self._life.dead

    def _has_switched(self, game: vizdoom.DoomGame) -> bool:
        """Returns whether the last step ended with another weapon in hand, or with none."""
        before, self._weapon = self._weapon, _read_weapon(game)
        return self._weapon != before

    def _read(self, game: vizdoom.DoomGame) -> list[float]:
        return [read(game) for read in self._readers]

    def _count_places(self, game: vizdoom.DoomGame) -> float:
        """Adds the player's square of the map to the visited ones; returns their number."""
        x, y = (game.get_game_variable(of) for of in (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y))
        self._visited.add((x // SQUARE, y // SQUARE))
        return len(self._visited)


def _read_life(game: vizdoom.DoomGame) -> _Life:
    return _Life(game.get_game_variable(vizdoom.GameVariable.DEATHCOUNT), game.is_player_dead())


def _read_weapon(game: vizdoom.DoomGame) -> float:
    return game.get_game_variable(vizdoom.GameVariable.SELECTED_WEAPON)


def _make_reader(name: str) -> Callable[[vizdoom.DoomGame], float]:
    variable = getattr(vizdoom.GameVariable, name)
    return lambda game: game.get_game_variable(variable)
