"""Calls the game servers of a vector at the same time, and replaces servers that have ended."""

from __future__ import annotations

import itertools
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from doom_a3c.envs.processes.client import GameProcess, ProcessError, RemoteError, answer_all, gather
from doom_a3c.envs.processes.retries import with_retries
from doom_a3c.envs.processes.server import Description, GameServer
from doom_a3c.envs.processes.shared import SharedArrays
from doom_a3c.settings.errors import UserError

CLOSE_SECONDS = 5.0

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
Group = tuple[int, ...]  # indices of the servers that are replaced together


def introduce(servers: Sequence[GameProcess]) -> None:
    """Connects every pair of players in a match; raises ProcessError if one has ended."""
    ends: list[list[socket.socket]] = [[] for _ in servers]
    for pair in itertools.combinations(ends, 2):
        for mine, end in zip(pair, socket.socketpair(), strict=True):
            mine.append(end)
    try:
        for server, mine in zip(servers, ends, strict=True):
            if mine:
                server.ask("meet", len(mine))
                for end in mine:
                    server.send_descriptor(end.fileno())
                server.answer()
    finally:
        for end in itertools.chain(*ends):
            end.close()


class _ReleasedError(Exception):
    """The games were released during a replacement."""


class Supervisor:
    """The servers of a vector. Owns them, and the faults that have not been reported yet.

    Servers are replaced in groups: alone, or all players of a match together. One thread at a time may use it; any may call
    `release`.
    """

    def __init__(self, make_envs: Sequence[MakeEnv], processes: int, players: int = 1) -> None:
        """Starts the servers, which make their games in the background; `players` servers in a row meet for a match."""
        self._make_envs = make_envs
        self._released = threading.Event()
        self._faults: list[tuple[int, str]] = []
        self._arrays: SharedArrays | None = None
        self._match = players > 1
        bounds = np.linspace(0, len(make_envs), min(processes, len(make_envs)) + 1).astype(int).tolist()
        self.parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]  # the games of each server
        self.groups = [tuple(range(first, first + players)) for first in range(0, len(self.parts), players)]
        self._servers = [self._new_server(part) for part in self.parts]
        self._preparing = [0 for _ in self.parts]  # unread answers to `prepare`

    def _new_server(self, part: slice) -> GameProcess:
        return GameProcess(partial(GameServer, self._make_envs[part], part.start, restarts=not self._match))

    def describe(self) -> Description:
        """Returns `GameServer.describe` of the first server.

        Raises:
            GamesError: if it does not start.
        """
        try:
            self._servers[0].answer()
            description: Description = self._servers[0].call("describe")
        except ProcessError as error:
            (description,) = self.replace((0,), error, "describe")
        return description

    def attach(self, arrays: SharedArrays, prepare: bool) -> None:
        """Passes the shared arrays to the servers; with `prepare` they begin to start their engines."""
        self._arrays = arrays
        for index, server in enumerate(self._servers):
            self._preparing[index] = 2 if prepare else 0
            with suppress(ProcessError):  # the next call replaces it
                if index > 0:
                    server.answer()
                self._attach(server)
                if prepare:
                    server.ask("prepare", 1)
                    server.ask("prepare", len(self._make_envs))
        for group in self.groups:
            with suppress(ProcessError):
                introduce([self._servers[index] for index in group])

    def _attach(self, server: GameProcess) -> None:
        assert self._arrays is not None
        server.ask("attach", *self._arrays.plan)
        server.send_descriptor(self._arrays.descriptor)
        server.answer()

    def wait(self, index: int, left: int = 0) -> None:
        """Waits until at most `left` of a server's answers to `prepare` are unread.

        Raises:
            GamesError: if its games do not start.
        """
        try:
            while self._preparing[index] > left:
                self._servers[index].answer()
                self._preparing[index] -= 1
        except ProcessError as error:
            self._preparing[index] = 0
            self.replace((index,), error, "prepare", lambda index: (len(self._make_envs),))

    def call(
        self,
        groups: Sequence[Group],
        method: str,
        arguments: Callable[[int], tuple[Any, ...]],
        turns: threading.Semaphore,
    ) -> tuple[dict[int, dict[str, Any]], dict[Group, ProcessError]]:
        """Calls a method of the servers of these groups; `arguments` returns those for the server with an index.

        A group takes a turn for its call: `turns` limits how many call at once, here or across several supervisors.

        Returns the infos by game, and an error of each group that must be replaced.
        """
        infos: dict[int, dict[str, Any]] = {}
        failed: dict[Group, ProcessError] = {}

        def ask(group: Group) -> list[int]:
            asked = []
            for index in group:
                self.wait(index)
                try:
                    self._servers[index].ask(method, *arguments(index))
                    asked.append(index)
                except ProcessError as error:
                    failed.setdefault(group, error)
            return asked

        later, asked, held = deque(groups), deque[tuple[Group, list[int]]](), 0
        try:
            while later or asked:
                while later and turns.acquire(blocking=not asked):  # who holds a turn must not wait for another
                    held += 1
                    group = later.popleft()
                    asked.append((group, ask(group)))
                group, indices = asked.popleft()
                answers, error = gather([self._servers[index] for index in indices], failed.get(group))
                turns.release()
                held -= 1
                for answer in answers:
                    infos |= answer
                if error is not None:
                    failed[group] = error
        finally:
            for _ in range(held):
                turns.release()
        return infos, failed

    def call_first(self, method: str, *arguments: Any) -> Any:
        """Returns the result of a method of the first server; None if it has ended, as the next call replaces it."""
        with suppress(ProcessError):
            return self._servers[0].call(method, *arguments)
        return None

    def replace(
        self,
        group: Group,
        error: ProcessError,
        method: str,
        arguments: Callable[[int], tuple[Any, ...]] = lambda index: (),
    ) -> list[Any]:
        """Replaces the servers of a group and calls the new ones; returns their results, or [] once the games are released.

        Raises:
            GamesError: if no new servers live long enough to answer.
        """
        started = method == "reset"  # then a running game ended, which says little about whether another would start
        failures = [] if started else [error]

        def attempt() -> list[Any]:
            for index in group:
                self._servers[index].end()
                self._servers[index] = self._new_server(self.parts[index])
            servers = [self._servers[index] for index in group]
            for server in servers:
                if self._released.is_set():
                    server.release()
            for server in servers:
                server.answer()
                if self._arrays is not None:
                    self._attach(server)
            if self._arrays is not None:
                introduce(servers)
            for index, server in zip(group, servers, strict=True):
                server.ask(method, *arguments(index))
            return answer_all(servers)

        def wait(seconds: float) -> None:
            if self._released.wait(seconds):
                raise _ReleasedError

        try:
            return with_retries(attempt, failures, wait)
        except _ReleasedError:
            return []
        finally:
            first = self.parts[group[0]].start
            self._faults += [(first, failure.kind) for failure in ([error] if started else []) + failures]

    def take_faults(self) -> list[tuple[int, str]]:
        """Returns the faults since the last call, as pairs: index of the server's first game, and kind."""
        faults, self._faults = self._faults, []
        return faults

    def release(self) -> None:
        """Makes the current call and all later ones fail at once; from now on nothing is replaced."""
        self._released.set()
        for server in list(self._servers):
            server.release()

    def close_games(self) -> None:
        """Closes the games of all servers that answer within `CLOSE_SECONDS`; from now on nothing is replaced."""
        self._released.set()
        asked = []
        for server in self._servers:
            with suppress(ProcessError):
                server.ask("close")
                asked.append(server)
        for server in asked:
            with suppress(ProcessError, RemoteError, UserError):
                server.answer(CLOSE_SECONDS)

    def end(self) -> None:
        """Ends the servers; may be called twice."""
        for server in self._servers:
            server.end()
