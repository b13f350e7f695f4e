"""Messages between a process and one that it started and trusts: pickles over a Unix socket, with time limits."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
from typing import Any

_HEAD = struct.Struct("!I")  # the length of the pickle that follows


class Wire:
    """One end of a connection. Owns its socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: Any, seconds: float | None = None) -> None:
        """Sends a message.

        Raises:
            TimeoutError: if the other end does not take it in time.
            OSError: if it is gone.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self.socket.settimeout(seconds)
        self.socket.sendall(_HEAD.pack(len(data)) + data)

    def receive(self, seconds: float | None = None) -> Any:
        """Returns the next message; `seconds` limits each wait for a part of it.

        Raises:
            TimeoutError: if none comes in time.
            OSError: if the other end is gone.
        """
        self.socket.settimeout(seconds)
        (length,) = _HEAD.unpack(self._read_exactly(_HEAD.size))
        return pickle.loads(self._read_exactly(length))

    def _read_exactly(self, length: int) -> bytes:
        data = self.socket.recv(length)
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionResetError("the other end is gone")
            data += more
        return data

    def send_descriptor(self, descriptor: int) -> None:
        """Hands an open file over."""
        socket.send_fds(self.socket, [b"f"], [descriptor])

    def receive_descriptor(self) -> int:
        """Returns a file that the other end hands over; raises OSError if it is gone."""
        _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
        if not descriptors:
            raise ConnectionResetError("the other end is gone")
        os.set_inheritable(descriptors[0], False)  # an engine that holds a dead server's socket would hide its death
        return descriptors[0]

    @property
    def open(self) -> bool:
        """Whether this end has not been closed."""
        return self.socket.fileno() >= 0

    def close(self) -> None:
        """Closes this end: the other one's next call raises OSError. A call under way on this end does too."""
        with contextlib.suppress(OSError):  # the other end was first
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
