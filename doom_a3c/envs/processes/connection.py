"""Pickled messages between a process and its own child, over a Unix socket, with time limits."""

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
            TimeoutError: if the other end does not read it in time.
            OSError: if the other end is closed.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self.socket.settimeout(seconds)
        self.socket.sendall(_HEAD.pack(len(data)) + data)

    def receive(self, seconds: float | None = None) -> Any:
        """Returns the next message; `seconds` limits each wait for a part of it.

        Raises:
            TimeoutError: if none arrives in time.
            OSError: if the other end is closed.
        """
        self.socket.settimeout(seconds)
        (length,) = _HEAD.unpack(self._read_exactly(_HEAD.size))
        return pickle.loads(self._read_exactly(length))

    def _read_exactly(self, length: int) -> bytes:
        data = self.socket.recv(length)
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionResetError("the other end is closed")
            data += more
        return data

    def send_descriptor(self, descriptor: int) -> None:
        """Sends an open file; raises OSError if the other end is closed."""
        socket.send_fds(self.socket, [b"f"], [descriptor])

    def receive_descriptor(self) -> int:
        """Returns the descriptor of a file from the other end; raises OSError if that is closed."""
        _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
        if not descriptors:
            raise ConnectionResetError("the other end is closed")
        os.set_inheritable(descriptors[0], False)  # a copy in an engine would hide the server's death
        return descriptors[0]

    def receive_sockets(self, count: int) -> list[socket.socket]:
        """Returns sockets whose descriptors the other end sends; raises OSError if that is closed."""
        return [socket.socket(fileno=self.receive_descriptor()) for _ in range(count)]

    @property
    def open(self) -> bool:
        """Whether this end is still open."""
        return self.socket.fileno() >= 0

    def close(self) -> None:
        """Closes this end: the next call at the other end raises OSError, and so does a running call at this end."""
        with contextlib.suppress(OSError):  # the other end has closed first
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
