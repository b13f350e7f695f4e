"""Reward shaping in a game of Doom."""

from __future__ import annotations

from collections.abc import Mapping

import vizdoom

from doom_a3c.settings.shaping import Weight


class Shaping:
    """Pays for changes of a game's variables from step to step. Owns what they were after the step before."""

    def __init__(self, weights: Mapping[str, Weight]) -> None:
        self._weights = {getattr(vizdoom.GameVariable, name): weight for name, weight in weights.items()}
        self._before: list[float] = []

    def begin(self, game: vizdoom.DoomGame) -> None:
        """Begins an episode: some variables count on over episodes."""
        self._before = self._read(game)

    def earned(self, game: vizdoom.DoomGame) -> float:
        """Returns what the changes since the step before are worth, the last ones of an episode too."""
        before, self._before = self._before, self._read(game)
        changes = zip(self._weights.values(), before, self._before, strict=True)
        return sum(weight.worth(now - then) for weight, then, now in changes)

    def _read(self, game: vizdoom.DoomGame) -> list[float]:
        return [game.get_game_variable(variable) for variable in self._weights]
