"""Vectors of games in game servers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from doom_a3c.envs.processes.retries import GamesError
from doom_a3c.envs.processes.seeds import list_seeds, renew_seeds
from doom_a3c.envs.processes.shared import SharedArrays, write_nested
from doom_a3c.envs.processes.supervisor import CLOSE_SECONDS, Group, MakeEnv, Supervisor
from doom_a3c.settings.interface import CUT_SHORT, FAULTS, Observation, map_nested

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Flags = NDArray[np.bool_]  # [B]
Picture = NDArray[np.uint8]  # [height, width, 3]


def _make_exclusive(method: Callable[Concatenate[ProcessVectorEnv, Arguments], Result]) -> Callable[..., Result]:
    """Makes a method exclusive to one thread at a time; it raises ClosedEnvironmentError after `close`."""

    @functools.wraps(method)
    def call(self: ProcessVectorEnv, /, *arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        with self._calling:
            if self.closed:
                raise ClosedEnvironmentError("the games are closed")
            return method(self, *arguments, **keywords)

    return call


class ProcessVectorEnv(VectorEnv[Any, Any, Any]):
    """Games in game servers, so that a game's crash cannot hurt this process (`AutoresetMode.SAME_STEP`).

    Owns the servers, and the arrays that it shares with them. A server that dies, or does not answer in time, is replaced
    with all of its games. Their episodes end as truncated, with the previous observation as the final one, reward 0, and
    `infos["final_info"][CUT_SHORT]`; `infos[FAULTS]` lists the kinds at the index of the server's first game. All other
    infos are as in Gymnasium's own vector environments. An exception in a game is raised here and closes the vector.
    Pickling gives a vector of new games.
    """

    def __init__(
        self,
        make_envs: Sequence[MakeEnv],
        processes: int = 1,
        *,
        rows: int = 1,
        copy: bool = True,
        prepare: bool = False,
        players: int = 1,
    ) -> None:
        """Keeps the newest `rows` observations, see `history`; without `copy`, `reset` and `step` return views of them.

        With `prepare` the games start their engines at once, and the first reset waits for them. `players` servers in a
        row are replaced together, see `MatchVectorEnv`.

        Raises:
            UserError: if the games cannot be made.
            GamesError: if their servers die repeatedly.
            ValueError: without games or processes.
        """
        if not make_envs or processes < 1:
            raise ValueError("a vector needs one game and one process at least")
        self._arguments = (make_envs, processes, rows, copy, prepare)
        self._copy = copy
        self._rows = max(rows, 3)  # with fewer, a step would overwrite the last observation of a lost game
        self.num_envs = len(make_envs)
        self._calling = threading.RLock()
        self._row, self._restarts, self._seeds = 0, 0, list_seeds(None, self.num_envs)
        self._was_reset = False
        self._supervisor = Supervisor(make_envs, processes, players)
        try:
            space, actions, metadata, self.render_mode = self._supervisor.describe()
            self.single_observation_space, self.single_action_space = space, actions
            self.metadata = {**metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
            self.observation_space = batch_space(space, self.num_envs)
            self.action_space = batch_space(actions, self.num_envs)
            self._arrays = SharedArrays(space, actions, self.num_envs, self._rows)
            self._supervisor.attach(self._arrays, prepare)
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> Any:
        make_envs, processes, rows, copy, prepare = self._arguments
        return partial(ProcessVectorEnv, rows=rows, copy=copy, prepare=prepare), (make_envs, processes)

    @property
    def prepared(self) -> int:
        """Number of games that have started their engines."""
        return int(self._arrays.prepared.sum())

    def wait_for_one(self) -> None:
        """Waits until the first game has started its engine.

        Raises:
            GamesError: if the game does not start.
        """
        self._supervisor.wait(0, 1)

    @_make_exclusive
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Resets all games, or only the ones in `options["reset_mask"]`, bool [B]; the other options go to each game.

        `seed` has one per game, or is an int: game i then gets `seed + i`.

        Raises:
            GamesError: if games do not start.
            ValueError: if there are not as many seeds, or places in the mask, as games.
        """
        seeds, options = list_seeds(seed, self.num_envs), dict(options or {})
        mask = options.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask must be {self.num_envs} bools, one for each game")
        self._seeds = [new if new is not None else old for new, old in zip(seeds, self._seeds, strict=True)]
        if mask is None:
            self._row, self._was_reset = 0, True
        groups = [group for group in self._supervisor.groups if chosen[self._list_games(group)].any()]
        infos = self._reset(groups, seeds, options, chosen)
        return self._read_observations(), self._merge_infos(infos)

    def _reset(
        self, groups: Sequence[Group], seeds: Sequence[int | None], options: dict[str, Any], chosen: Flags
    ) -> dict[int, dict[str, Any]]:
        """Resets the chosen games of groups; returns their infos."""

        def arguments(index: int) -> tuple[Any, ...]:
            part = self._supervisor.parts[index]
            return seeds[part], self._complete_options(options, part.start), chosen[part], self._row

        return self._call_all(groups, "reset", arguments)

    def _complete_options(self, options: dict[str, Any], game: int) -> dict[str, Any] | None:
        """Returns the options for the reset of a game."""
        return options or None

    @_make_exclusive
    def step(self, actions: Any) -> tuple[Observation, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Steps all games; the class describes the end of an episode.

        Raises:
            GamesError: if games of a dead server do not start again.
            ValueError: if there are not as many actions as games.
        """
        if not self._was_reset:
            raise ResetNeeded("step() needs a reset() first")
        arrays, before = self._arrays, self._row
        self._write_actions(actions)
        if before == self._rows - 1:
            self._copy_row(before, 0)
        self._row = before % (self._rows - 1) + 1

        def lose(index: int) -> None:
            part = self._supervisor.parts[index]
            arrays.rewards[part], arrays.terminated[part], arrays.truncated[part] = 0.0, False, True
            write_nested(arrays.finals, part, map_nested(lambda array: array[before, part], arrays.observations))

        infos = self._call_all(self._supervisor.groups, "step", lambda index: (self._row,), lose)
        self._restart_matches(infos)
        ends = np.flatnonzero(arrays.terminated | arrays.truncated)
        for game in ends:
            infos.setdefault(int(game), {})["final_obs"] = map_nested(lambda array: array[game].copy(), arrays.finals)  # noqa: B023  # called at once
        rewards, terminated, truncated = (a.copy() for a in (arrays.rewards, arrays.terminated, arrays.truncated))
        return self._read_observations(), rewards, terminated, truncated, self._merge_infos(infos)

    def _restart_matches(self, infos: dict[int, dict[str, Any]]) -> None:
        """Resets games that do not reset themselves at an episode's end, and adds their infos; here there are none."""

    def _find_turns(self, method: str) -> threading.Semaphore:
        """Returns the semaphore of turns that groups of servers take for calls of a method; here all call at once."""
        return threading.Semaphore(len(self._supervisor.groups))

    def _write_actions(self, actions: Any) -> None:
        def write(array: NDArray[Any], values: Any) -> None:
            new = np.asarray(values)
            if new.shape != array.shape:
                raise ValueError(f"actions of shape {new.shape} for {self.num_envs} games, which take {array.shape}")
            array[...] = new

        map_nested(write, self._arrays.actions, actions)

    def _call_all(
        self,
        groups: Sequence[Group],
        method: str,
        arguments: Callable[[int], tuple[Any, ...]],
        lose: Callable[[int], None] = lambda index: None,
    ) -> dict[int, dict[str, Any]]:
        """Calls the servers of groups, and replaces failed groups after calling `lose` for each of their servers.

        Returns the infos by game.
        """
        try:
            infos, failed = self._supervisor.call(groups, method, arguments, self._find_turns(method))
            for group, error in failed.items():
                infos |= {game: {"final_info": {CUT_SHORT: True}} for game in self._list_games(group)}
                for index in group:
                    lose(index)
                start = arguments if method == "reset" else self._start_afresh
                self._restarts += 1
                renewed = renew_seeds(self._seeds, self._restarts)

                def reset_all(
                    index: int,
                    start: Callable[[int], tuple[Any, ...]] = start,
                    renewed: Sequence[int | None] = renewed,
                ) -> tuple[Any, ...]:
                    seeds, options, *_ = start(index)
                    own = renewed[self._supervisor.parts[index]]  # a new game has no stream of seeds to continue
                    seeds = [new if seed is None else seed for seed, new in zip(seeds, own, strict=True)]
                    return seeds, options, [True] * len(seeds), self._row

                for found in self._supervisor.replace(group, error, "reset", reset_all):
                    infos |= {game: {**info, **infos[game]} for game, info in found.items()}
        except GamesError:
            raise
        except Exception:  # the servers may still send answers, which nobody would read
            self.close()
            raise
        return infos

    def _start_afresh(self, index: int) -> tuple[Any, ...]:
        """Returns the seeds and options of a reset of a server's lost games."""
        part = self._supervisor.parts[index]
        return [None] * (part.stop - part.start), self._complete_options({}, part.start)

    def _list_games(self, group: Group) -> Sequence[int]:
        return range(self._supervisor.parts[group[0]].start, self._supervisor.parts[group[-1]].stop)

    def _merge_infos(self, infos: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """Merges the infos of single games into the infos of a vector, and adds the new faults."""
        for game, kind in self._supervisor.take_faults():
            info = infos.setdefault(game, {})
            info[FAULTS] = [*info.get(FAULTS, ()), kind]
        merged: dict[str, Any] = {}
        for game, info in infos.items():
            merged = self._add_info(merged, info, game)
        return merged

    def _read_observations(self) -> Observation:
        row = self._row
        observations: Observation = map_nested(
            lambda array: array[row].copy() if self._copy else array[row], self._arrays.observations
        )
        return observations

    def _copy_row(self, source: int, target: int) -> None:
        write_nested(self._arrays.observations, target, map_nested(lambda array: array[source], self._arrays.observations))

    def history(self, steps: int) -> Observation:
        """Returns the observations before and after the last `steps` steps, [steps + 1, B, ...]: a view.

        The next step overwrites it.

        Raises:
            ValueError: if they are not stored in a row; they are after every `rows - 1` steps since the last reset.
        """
        if steps > self._row:
            raise ValueError(f"{self._row + 1} observations are kept in a row, not {steps + 1}")
        kept: Observation = map_nested(lambda array: array[self._row - steps : self._row + 1], self._arrays.observations)
        return kept

    def picture(self, final: bool = False) -> Picture | None:
        """Returns the first game's newest picture, [height, width, 3], or its last episode's final one; None if none."""
        picture: Picture | None = self._supervisor.call_first("picture", final)
        return picture

    def release(self) -> None:
        """Frees a thread that waits for these games: from now on every step returns at once, as truncated."""
        self._supervisor.release()

    def close_extras(self, **kwargs: Any) -> None:
        if alone := self._calling.acquire(blocking=False):
            self._supervisor.close_games()
        else:  # the call of another thread returns at once
            self._supervisor.release()
            alone = self._calling.acquire(timeout=CLOSE_SECONDS)
        self._supervisor.end()
        if hasattr(self, "_arrays"):
            self._arrays.close()
        self.closed = True
        if alone:
            self._calling.release()
