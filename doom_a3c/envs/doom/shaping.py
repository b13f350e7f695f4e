"""Reward shaping in a game of Doom."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import vizdoom

from doom_a3c.settings.shaping import PLACES, SQUARE, Weight


class Shaping:
    """Pays for changes of a game's variables from step to step.

    Owns what they were after the step before, and the places that the episode has been in.
    """

    def __init__(self, weights: Mapping[str, Weight]) -> None:
        self._weights = list(weights.values())
        self._readers = [self._places if name == PLACES else _make_reader(name) for name in weights]
        self._visited: set[tuple[float, float]] = set()
        self._before: list[float] = []

    def begin(self, game: vizdoom.DoomGame) -> None:
        """Begins an episode: some variables count on over episodes."""
        self._visited.clear()
        self._before = self._read(game)

    def compute_bonus(self, game: vizdoom.DoomGame) -> float:
        """Returns what the changes since the step before are worth, the last ones of an episode too."""
        before, self._before = self._before, self._read(game)
        changes = zip(self._weights, before, self._before, strict=True)
        return sum(weight.worth(now - then) for weight, then, now in changes)

    def _read(self, game: vizdoom.DoomGame) -> list[float]:
        return [read(game) for read in self._readers]

    def _places(self, game: vizdoom.DoomGame) -> float:
        """Returns how many squares of the map the episode has been in, the one of now among them."""
        x, y = (game.get_game_variable(of) for of in (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y))
        self._visited.add((x // SQUARE, y // SQUARE))
        return len(self._visited)


def _make_reader(name: str) -> Callable[[vizdoom.DoomGame], float]:
    variable = getattr(vizdoom.GameVariable, name)
    return lambda game: game.get_game_variable(variable)
