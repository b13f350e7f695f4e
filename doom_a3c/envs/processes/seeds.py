"""Seeds for the games of a vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsInt

import numpy as np


def list_seeds(seed: int | np.integer[Any] | Iterable[SupportsInt | None] | None, games: int) -> list[int | None]:
    """Returns a seed for each game: the elements of a sequence, or `seed`, `seed + 1`, ... if it is one number.

    Raises:
        ValueError: if a sequence does not have one seed per game, or a seed is below 0.
    """
    if seed is None:
        return [None] * games
    if isinstance(seed, int | np.integer):
        seed = range(int(seed), int(seed) + games)
    seeds = [None if element is None else int(element) for element in seed]
    if negative := [each for each in seeds if each is not None and each < 0]:
        raise ValueError(f"a seed must be 0 or more, not {negative[0]}")
    if len(seeds) != games:
        raise ValueError(f"{len(seeds)} seeds for {games} games: give one number, or one for each game")
    return seeds


def renew_seeds(seeds: Iterable[int | None], restarts: int) -> list[int | None]:
    """Returns new seeds for games of a replaced server, determined by the old seeds and the number of `restarts`."""
    return [None if seed is None else int(np.random.SeedSequence([seed, restarts]).generate_state(1)[0]) for seed in seeds]
