"""Network ports at which the engines of matches meet."""

from __future__ import annotations

import socket
from contextlib import suppress

from doom_a3c.settings.errors import UserError

TRIES = 100
LOCAL = "127.0.0.1"


class Ports:
    """A free UDP port for each match.

    Owns a TCP socket with the same number for each, so that no other run on this machine takes the port.
    """

    def __init__(self) -> None:
        self._locks: dict[int, socket.socket] = {}

    def renew(self, match: int) -> int:
        """Replaces the port of a match, and returns the new one.

        Raises:
            UserError: if no port is free.
        """
        self._free(match)
        for _ in range(TRIES):
            lock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                lock.bind((LOCAL, 0))
                port: int = lock.getsockname()[1]
                probe.bind(("", port))  # the engine listens on all addresses
                self._locks[match] = lock
                return port
            lock.close()
        raise UserError(f"none of {TRIES} UDP ports that were tried is free for a match on this machine")

    def get(self, match: int) -> int:
        """Returns the port of a match."""
        port: int = self._locks[match].getsockname()[1]
        return port

    def _free(self, match: int) -> None:
        if lock := self._locks.pop(match, None):
            lock.close()

    def close(self) -> None:
        """Frees all ports."""
        for match in list(self._locks):
            self._free(match)
