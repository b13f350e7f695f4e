"""One player of a ViZDoom match of several agents, as a Gymnasium environment."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import gymnasium
from gymnasium.utils import EzPickle

from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.lockstep import UNKNOWN, Lockstep
from doom_a3c.envs.doom.match import BOT_LOST, Match, Seat
from doom_a3c.envs.doom.start import start_engine
from doom_a3c.envs.processes.ends import MATCH_BROKEN, EngineError
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.interface import FAULTS, PORT, RIVALS, SHAPING
from doom_a3c.settings.interface import Observation as Arrays


class SeatEnv(DoomEnv):
    """One player of a match, which it plays in lockstep with the others. Owns its connections to them.

    The environments of a match run in separate processes, `meet` once, are reset together, with the same seed and the
    same free port as `options[PORT]`, and are stepped together. A fault in one raises EngineError in all: the match is
    lost. A match ends after its number of frames, as truncated.
    """

    def __init__(self, game: DoomSpec, observation: Observation, number: int) -> None:
        """`number` is 0 for the player whose engine is the host."""
        super().__init__(game, observation)
        EzPickle.__init__(self, game, observation, number)
        self._number, self._frames = number, 0
        self._lockstep = Lockstep(())
        # The CPUs that this thread may use; none where a thread cannot be moved.
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def meet(self, others: Sequence[socket.socket]) -> None:
        """Takes over the connections to the other players of the match."""
        self._lockstep = Lockstep(others)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Starts a match, and waits for the other players.

        Raises:
            EngineError: if they do not meet.
        """
        gymnasium.Env.reset(self, seed=seed)
        info: dict[str, Any] = {"seed": int(self.np_random.integers(2**31))}
        seat = Seat(self._number, (options or {})[PORT])
        with self._fail_together():
            self._drop_process()
            self._lockstep.wait()
            self._take_cpu(seat)
            self._process = start_engine(self._spec, self._view, info["seed"], seat, self._lockstep.is_broken)
        self._find_match().begin(self._process.game, hosts=self._number == 0)
        self._shaping.begin(self._process.game)
        self._frames = 0
        self._history.clear()
        self._read_state()
        return self._observe(), info

    def step(self, action: Any) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        """Presses the buttons of `action` for `frame_skip` frames; raises EngineError after a fault in the match."""
        process, match = cast(DoomProcess, self._process), self._find_match()
        game = process.game
        with self._fail_together():
            game.set_action(self._press(action))
            state = match.read_state(game)
            for left in reversed(range(self._spec.frame_skip)):
                self._lockstep.wait(state)
                state = UNKNOWN  # within a step
                process.ask(partial(game.advance_action, 1, left == 0))
            if game.is_episode_finished():
                raise EngineError(MATCH_BROKEN)
        self._frames += self._spec.frame_skip
        ended = self._frames >= match.frames
        bonus = self._shaping.compute_bonus(game)
        info: dict[str, Any] = {SHAPING: bonus} if bonus else {}
        if ended:
            info[RIVALS] = list(match.read_rivals(game))
        elif lost := match.readd_lost(game, hosts=self._number == 0):
            info[FAULTS] = [BOT_LOST] * lost
        self._read_state()
        return self._observe(), float(match.count_frags(game)), False, ended, info

    def _take_cpu(self, seat: Seat) -> None:
        """Pins this thread, and the engines it starts, to one CPU, and the next player's to the next CPU.

        A match's engines busy-wait for each other in every frame. Two players that shared a CPU, or whose engine ran on a
        different one from its server, which wakes it, made 270 to 700 steps a second, against 1,500 when pinned.
        """
        if not self._cpus:
            return
        players = self._find_match().agents
        # The port is the same for all players; Linux gives odd ones alone.
        first = seat.port // 2 % max(1, len(self._cpus) // players) * players
        os.sched_setaffinity(0, {self._cpus[(first + seat.number) % len(self._cpus)]})

    def _press(self, action: Any) -> Sequence[float]:
        """Returns the state of each button."""
        return self._actions.press(action)

    def _find_match(self) -> Match:
        return cast(Match, self._match)

    @contextlib.contextmanager
    def _fail_together(self) -> Iterator[None]:
        """Breaks the match for all players if one fails; only that one's fault is not `MATCH_BROKEN`."""
        try:
            yield
        except BaseException as error:
            broken = isinstance(error, EngineError) and self._lockstep.is_broken()
            self._lockstep.close()
            raise EngineError(MATCH_BROKEN) if broken else error from None

    def close(self) -> None:
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        self._lockstep.close()
        super().close()
