"""Keeps the players of a match in lockstep: all finish a frame before any begins the next, in the same state."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress

from doom_a3c.envs.processes.ends import MATCH_BROKEN, EngineError

WAIT_SECONDS = 12.0  # longer than a hanging engine lives
UNKNOWN = 255  # sent by a player that does not know its state
OUT_OF_STEP = "out_of_step"  # a kind of fault: the engines of a match no longer agree on its state


class Lockstep:
    """A player's connections to the others of its match. Owns the sockets.

    Left to their network code, engines ran ahead and then waited for each other: two players made 30 decisions a second,
    against 500 when none begins a frame before the others. The last frames of a step could even wait forever, as an engine
    sends its part of a frame only when it is asked for that frame.
    """

    def __init__(self, others: Sequence[socket.socket]) -> None:
        self._others = others
        for other in others:
            other.settimeout(WAIT_SECONDS)

    def wait(self, state: int = UNKNOWN) -> None:
        """Waits until all players have called this equally often, and with the same `state` if they know it, 0 to 254.

        Raises:
            EngineError: if another player has failed, does not answer, or is in another state.
        """
        try:
            for other in self._others:
                other.send(bytes([state]))
            received = [other.recv(1) for other in self._others]
        except OSError:
            raise EngineError(MATCH_BROKEN) from None
        if not all(received):
            raise EngineError(MATCH_BROKEN)
        if len({state, *map(ord, received)} - {UNKNOWN}) > 1:
            raise EngineError(OUT_OF_STEP)

    def is_broken(self) -> bool:
        """Returns whether another player has failed; any thread may ask."""
        with suppress(OSError, ValueError):  # closed in the meantime
            ready, _, _ = select.select(self._others, (), (), 0)
            return any(not other.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) for other in ready)
        return False

    def close(self) -> None:
        """Breaks the lockstep for all players."""
        for other in self._others:
            other.close()
