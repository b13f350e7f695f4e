"""Vectors of games: in processes of their own, or in this one."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from doom_a3c.envs.process import GameProcess, ProcessError, RemoteError
from doom_a3c.envs.server import GameServer
from doom_a3c.envs.shared import SharedArrays, map_nested, write
from doom_a3c.settings import UserError

PAUSES = (0.0, 0.5, 1.0, 2.0)  # seconds before each try to start a server in place of another
CLOSE_SECONDS = 5.0

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class GamesError(UserError):
    """Games do not start, after several tries; the message tells what they have said last."""

    @classmethod
    def of(cls, failure: ProcessError) -> GamesError:
        """Returns the error of games whose process has failed that way."""
        return cls(f"the games do not start: {failure}")


def game_seeds(seed: Any, games: int) -> list[int | None]:
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


class LocalVectorEnv(SyncVectorEnv):
    """Games in this process, stepped one after the other in the calling thread."""

    def __init__(self, make_envs: Sequence[MakeEnv]) -> None:
        super().__init__(list(make_envs), autoreset_mode=AutoresetMode.SAME_STEP)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games; `seed` is one per game, or an int that gives game i the seed `seed + i`."""
        seeds: Any = game_seeds(seed, self.num_envs)
        return super().reset(seed=seeds, options=options)

    def picture(self, final: bool = False) -> Any:
        """Returns the newest picture of the first game, or of the end of its last episode; None where there is none."""
        return self.envs[0].get_wrapper_attr("picture")(final)

    def release(self) -> None:
        """Does nothing: these games run in their caller's thread."""


def _exclusive(method: Callable[Concatenate[ProcessVectorEnv, Arguments], Result]) -> Callable[..., Result]:
    """Has one thread at a time call the games of a vector, as long as it is open."""

    @functools.wraps(method)
    def call(self: ProcessVectorEnv, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with self._calling:
            if self.closed:
                raise ClosedEnvironmentError("the games are closed")
            return method(self, *arguments, **named)

    return call


class ProcessVectorEnv(VectorEnv[Any, Any, Any]):
    """Games in server processes: whatever happens to a game stays there (`AutoresetMode.SAME_STEP`).

    Owns the servers, and the arrays that it shares with them. A server that dies, or does not answer in time, is replaced
    with all of its games. Their episodes end as truncated, with the observation before as the final one, no reward, and
    `infos["final_info"]["cut_short"]`; `infos["faults"]` lists the kinds at the first of its games. All other infos are
    those of Gymnasium's own vector environments. An exception in a game is raised here and closes the vector. Pickling
    gives a vector of new games.
    """

    def __init__(
        self,
        make_envs: Sequence[MakeEnv],
        processes: int = 1,
        *,
        rows: int = 1,
        copy: bool = True,
        prepare: bool = False,
    ) -> None:
        """The newest `rows` observations are kept, see `history`; without `copy`, those returned are views of them.

        With `prepare` games that can do so begin to start at once, and the first reset waits for them.

        Raises:
            UserError: if the games cannot be made.
            GamesError: if their servers die again and again.
        """
        if not make_envs or processes < 1:
            raise ValueError("a vector needs one game and one process at least")
        self._arguments = (make_envs, processes, rows, copy, prepare)
        self._make_envs, self._copy = make_envs, copy
        self._rows = max(rows, 3)  # with fewer, a step would overwrite what a lost game has shown before it
        self.num_envs = len(make_envs)
        self._released, self._calling = threading.Event(), threading.RLock()
        self._row, self._restarts, self._seeds = 0, 0, game_seeds(None, self.num_envs)
        self._was_reset = False
        self._untold: list[str] = []  # faults since the last infos
        bounds = np.linspace(0, self.num_envs, min(processes, self.num_envs) + 1).astype(int).tolist()
        self._parts = [range(start, stop) for start, stop in itertools.pairwise(bounds)]
        self._servers = [self._new_server(part) for part in self._parts]
        self._preparing = [2 if prepare else 0 for _ in self._parts]  # answers that nobody has waited for
        try:
            space, actions, metadata, self.render_mode = self._described()
            self.single_observation_space, self.single_action_space = space, actions
            self.metadata = {**metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
            self.observation_space, self.action_space = (
                batch_space(space, self.num_envs),
                batch_space(actions, self.num_envs),
            )
            self._arrays = SharedArrays(space, actions, self.num_envs, self._rows)
            for index, server in enumerate(self._servers):
                with suppress(ProcessError):  # it is replaced when it is needed
                    if index > 0:
                        server.answer()
                    self._attach(server)
                    if prepare:
                        server.ask("prepare", 1)
                        server.ask("prepare", self.num_envs)
        except BaseException:
            self.close()
            raise

    def _new_server(self, part: range) -> GameProcess:
        return GameProcess(partial(GameServer, [self._make_envs[index] for index in part], part.start))

    def _described(self) -> Any:
        """Returns what the first server says of its games."""
        try:
            self._servers[0].answer()
            return self._servers[0].call("describe")
        except ProcessError as error:
            described, faults = self._replaced(0, error, "describe")
            self._untold += faults
            return described

    def _attach(self, server: GameProcess) -> None:
        """Gives a server the arrays."""
        server.ask("attach", self.single_observation_space, self.single_action_space, self.num_envs, self._rows)
        server.send_descriptor(self._arrays.descriptor)
        server.answer()

    def __reduce__(self) -> Any:
        make_envs, processes, rows, copy, prepare = self._arguments
        return partial(ProcessVectorEnv, rows=rows, copy=copy, prepare=prepare), (make_envs, processes)

    def wait_for_one(self) -> None:
        """Waits until the first game that was to be prepared is.

        Raises:
            GamesError: if it does not start.
        """
        self._wait(0, 1)

    def _wait(self, index: int, left: int = 0) -> None:
        """Waits until at most so many answers of a server that prepares its games are left to wait for."""
        try:
            while self._preparing[index] > left:
                self._servers[index].answer()
                self._preparing[index] -= 1
        except ProcessError as error:
            self._preparing[index] = 0
            self._untold += self._replaced(index, error, "prepare", self.num_envs)[1]

    @_exclusive
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games, or those in the array `options["reset_mask"]`; the other options go to each game.

        `seed` is one per game, or an int that gives game i the seed `seed + i`.

        Raises:
            GamesError: if games do not start, after several tries.
            ValueError: if there are not as many seeds, or places in the mask, as games.
        """
        seeds, options = game_seeds(seed, self.num_envs), dict(options or {})
        mask = options.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask must be {self.num_envs} bools, one for each game")
        self._seeds = [given if given is not None else known for given, known in zip(seeds, self._seeds, strict=True)]
        if mask is None:
            self._row, self._was_reset = 0, True

        def arguments(index: int) -> tuple[Any, ...]:
            part = slice(self._parts[index].start, self._parts[index].stop)
            return seeds[part], options or None, chosen[part], self._row

        infos, faults = self._all("reset", arguments)
        return self._observed(), self._merged(infos, faults)

    @_exclusive
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all games; see the class for what happens at the end of an episode.

        Raises:
            GamesError: if games whose server is gone do not start again.
            ValueError: if there are not as many actions as games.
        """
        if not self._was_reset:
            raise ResetNeeded("step() needs a reset() first")
        arrays, before = self._arrays, self._row
        self._take(actions)
        if before == self._rows - 1:
            self._copy_row(before, 0)
        self._row = before % (self._rows - 1) + 1

        def lose(index: int) -> None:
            part = slice(self._parts[index].start, self._parts[index].stop)
            arrays.rewards[part], arrays.terminated[part], arrays.truncated[part] = 0.0, False, True
            write(arrays.finals, part, map_nested(lambda array: array[before, part], arrays.observations))

        infos, faults = self._all("step", lambda index: (self._row,), lose)
        ends = np.flatnonzero(arrays.terminated | arrays.truncated)
        for game in ends:
            infos.setdefault(int(game), {})["final_obs"] = map_nested(lambda array: array[game].copy(), arrays.finals)  # noqa: B023  # called at once
        rewards, terminated, truncated = (a.copy() for a in (arrays.rewards, arrays.terminated, arrays.truncated))
        return self._observed(), rewards, terminated, truncated, self._merged(infos, faults)

    def _take(self, actions: Any) -> None:
        def take(array: Any, values: Any) -> None:
            given = np.asarray(values)
            if given.shape != array.shape:
                raise ValueError(f"actions of shape {given.shape} for {self.num_envs} games, which take {array.shape}")
            array[...] = given

        map_nested(take, self._arrays.actions, actions)

    def _all(
        self, method: str, arguments: Callable[[int], tuple[Any, ...]], lose: Callable[[int], None] = lambda index: None
    ) -> tuple[dict[int, dict[str, Any]], list[tuple[int, str]]]:
        """Calls all servers at the same time, and replaces those that are gone (see `_replaced`) after calling `lose`.

        Returns the infos by game, and the faults as pairs of game and kind.
        """
        for index in range(len(self._servers)):
            self._wait(index)
        faults, self._untold = [(0, kind) for kind in self._untold], []
        gone: dict[int, ProcessError] = {}
        infos: dict[int, dict[str, Any]] = {}
        try:
            for index, server in enumerate(self._servers):
                try:
                    server.ask(method, *arguments(index))
                except ProcessError as error:
                    gone[index] = error
            for index, server in enumerate(self._servers):
                if index not in gone:
                    try:
                        infos |= server.answer()
                    except ProcessError as error:
                        gone[index] = error
            for index, fault in gone.items():
                lose(index)
                part = self._parts[index]
                seeds, options = arguments(index)[:2] if method == "reset" else (self._fresh_seeds(part), None)
                found, kinds = self._replaced(index, fault, "reset", seeds, options, [True] * len(part), self._row)
                infos |= {game: {**info, "final_info": {"cut_short": True}} for game, info in found.items()}
                faults += [(part.start, kind) for kind in kinds]
        except GamesError:
            raise
        except Exception:  # answers that nobody has waited for are under way
            self.close()
            raise
        return infos, faults

    def _fresh_seeds(self, part: range) -> list[int | None]:
        """Returns seeds for games that begin again: other episodes than the first ones, the same for the same faults."""
        self._restarts += 1
        seeds = [self._seeds[game] for game in part]
        return [
            None if seed is None else int(np.random.SeedSequence([seed, self._restarts]).generate_state(1)[0])
            for seed in seeds
        ]

    def _replaced(self, index: int, error: ProcessError, method: str, *arguments: Any) -> tuple[Any, list[str]]:
        """Replaces a server and calls the new one; returns the result, and the kinds of the faults up to there."""
        faults, telling = [error.kind], error
        for pause in PAUSES:
            if self._released.wait(pause):
                return {game: {} for game in self._parts[index]}, faults
            server = self._servers[index] = self._new_server(self._parts[index])
            if self._released.is_set():
                server.release()
            try:
                server.answer()
                if hasattr(self, "_arrays"):
                    self._attach(server)
                return server.call(method, *arguments), faults
            except ProcessError as again:
                faults.append(again.kind)
                telling = again if again.words else telling
        raise GamesError.of(telling if telling.words else ProcessError(f"{faults[-1]}, {len(faults)} times in a row"))

    def _merged(self, infos: dict[int, dict[str, Any]], faults: Iterable[tuple[int, str]]) -> dict[str, Any]:
        """Returns the infos of single games as those of a vector."""
        for game, kind in faults:
            info = infos.setdefault(game, {})
            info["faults"] = [*info.get("faults", ()), kind]
        merged: dict[str, Any] = {}
        for game, info in infos.items():
            merged = self._add_info(merged, info, game)
        return merged

    def _observed(self) -> Any:
        row = self._row
        return map_nested(lambda array: array[row].copy() if self._copy else array[row], self._arrays.observations)

    def _copy_row(self, source: int, target: int) -> None:
        write(self._arrays.observations, target, map_nested(lambda array: array[source], self._arrays.observations))

    def history(self, steps: int) -> Any:
        """Returns the observations before and after the last `steps` steps, [steps + 1, B, ...]; a view.

        The next step overwrites them.

        Raises:
            ValueError: if they are not kept in a row: `steps` is `rows - 1` and its multiples since the last reset are.
        """
        if steps > self._row:
            raise ValueError(f"{self._row + 1} observations are kept in a row, not {steps + 1}")
        return map_nested(lambda array: array[self._row - steps : self._row + 1], self._arrays.observations)

    def picture(self, final: bool = False) -> Any:
        """Returns the newest picture of the first game, or of the end of its last episode; None where there is none."""
        with suppress(ProcessError):  # the next step replaces the server
            return self._servers[0].call("picture", final)
        return None

    def release(self) -> None:
        """Frees a thread that waits for these games, whatever for: from now on every step ends at once, as truncated."""
        self._released.set()
        for server in list(self._servers):
            server.release()

    def close_extras(self, **kwargs: Any) -> None:
        """Closes all games and ends the servers."""
        self._released.set()  # a thread that still plays replaces nothing any more
        if alone := self._calling.acquire(blocking=False):
            self._ask_to_close()
        else:  # what another thread waits for fails at once, as truncated
            self.release()
            alone = self._calling.acquire(timeout=CLOSE_SECONDS)
        for server in self._servers:
            server.end()
        if hasattr(self, "_arrays"):
            self._arrays.close()
        self.closed = True
        if alone:
            self._calling.release()

    def _ask_to_close(self) -> None:
        asked = []
        for server in self._servers:
            with suppress(ProcessError):
                server.ask("close")
                asked.append(server)
        for server in asked:
            with suppress(ProcessError, RemoteError, UserError):
                server.answer(CLOSE_SECONDS)
