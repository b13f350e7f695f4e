"""The seeds of a vector's games."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def list_seeds(seed: Any, games: int) -> list[int | None]:
    """Returns a seed for each game: those of a sequence, or `seed`, `seed + 1`, ... where it is one number.

    Raises:
        ValueError: if a sequence is not as long as there are games.
    """
    if seed is None:
        return [None] * games
    if isinstance(seed, int | np.integer):
        return list(range(int(seed), int(seed) + games))
    seeds = [None if one is None else int(one) for one in seed]
    if len(seeds) != games:
        raise ValueError(f"{len(seeds)} seeds for {games} games: give one number, or one for each game")
    return seeds


def renew_seeds(seeds: Iterable[int | None], restarts: int) -> list[int | None]:
    """Returns seeds for games that begin again: other episodes than the first ones, the same for the same `restarts`."""
    return [None if seed is None else int(np.random.SeedSequence([seed, restarts]).generate_state(1)[0]) for seed in seeds]
