"""Vectors of matches between several players, each in its own game server."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from doom_a3c.envs.processes.ports import Ports
from doom_a3c.envs.processes.seeds import list_seeds
from doom_a3c.envs.processes.supervisor import MakeEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.settings.config import cpu_count
from doom_a3c.settings.interface import CUT_SHORT, PORT, Observation

STARTS_AT_ONCE = 4  # a start is mostly waiting


@functools.cache
def _get_turns(players: int) -> threading.Semaphore:
    """Returns the semaphore of turns that matches take for their steps, shared by all vectors of this process.

    A match's engines busy-wait for each other, so each needs its own CPU: more matches at once would keep each other from
    playing.
    """
    return threading.Semaphore(max(1, cpu_count() // players))


class MatchVectorEnv(ProcessVectorEnv):
    """Matches: `players` games in a row play each other. Owns the ports where their engines meet.

    The players of a match are reset together, with one seed, and their episodes end together. A fault of one ends the
    match as truncated for all; it counts once, and all servers of the match are replaced.
    """

    def __init__(self, make_envs: Sequence[MakeEnv], players: int, *, rows: int = 1, copy: bool = True) -> None:
        """Raises as `ProcessVectorEnv` does, and ValueError for an incomplete match."""
        if len(make_envs) % players:
            raise ValueError(f"{len(make_envs)} players are no whole matches of {players}")
        self._players, self._ports = players, Ports()
        super().__init__(make_envs, len(make_envs), rows=rows, copy=copy, players=players)

    def __reduce__(self) -> Any:
        make_envs, _, rows, copy, _ = self._arguments
        return partial(MatchVectorEnv, rows=rows, copy=copy), (make_envs, self._players)

    @property
    def prepared(self) -> int:
        """Number of players, as their engines start with the first reset."""
        return self.num_envs

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Resets as `ProcessVectorEnv.reset` does, but only whole matches, each with the seed of its first player."""
        firsts = [game - game % self._players for game in range(self.num_envs)]
        seeds, options = list_seeds(seed, self.num_envs), dict(options or {})
        if not self._was_reset:  # players that drew their own seeds would have different ones
            drawn = np.random.SeedSequence().generate_state(self.num_envs).tolist()
            seeds = [new if seed is None else seed for seed, new in zip(seeds, drawn, strict=True)]
        mask = np.asarray(options.get("reset_mask", ()))
        if mask.shape == (self.num_envs,):
            options["reset_mask"] = mask.reshape(-1, self._players).any(axis=1).repeat(self._players)
        result: tuple[Observation, dict[str, Any]] = super().reset(seed=[seeds[first] for first in firsts], options=options)
        return result

    def _complete_options(self, options: dict[str, Any], game: int) -> dict[str, Any]:
        """Adds the port of a game's match, a new one for the first player."""
        match, player = divmod(game, self._players)
        return {**options, PORT: self._ports.get(match) if player else self._ports.renew(match)}

    def _restart_matches(self, infos: dict[int, dict[str, Any]]) -> None:
        """Restarts the matches that have reached their end, and adds the infos of their resets."""
        lost = {game for game, info in infos.items() if info.get("final_info", {}).get(CUT_SHORT)}  # already replaced
        ended = [group for group in self._supervisor.groups if self._arrays.truncated[group[0]] and group[0] not in lost]
        fresh = self._reset(ended, [None] * self.num_envs, {}, np.ones(self.num_envs, np.bool_))
        infos |= {game: {**info, **infos[game]} for game, info in fresh.items()}

    def _find_turns(self, method: str) -> threading.Semaphore:
        return _get_turns(self._players) if method == "step" else threading.Semaphore(STARTS_AT_ONCE)

    def close_extras(self, **kwargs: Any) -> None:
        super().close_extras(**kwargs)
        self._ports.close()
