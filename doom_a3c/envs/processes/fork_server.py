"""The fork server: a small process that starts a trainer's game servers, and cleans up after them and after the trainer.

The fork server and every game server lead their own process sessions, so a terminal's signals do not reach them. The
fork server imports the servers' modules once; a fork then takes milliseconds. Its only connection closes when the trainer
ends, even by SIGKILL; then it kills all servers and removes their files and shared memory.

A server leads a process group that contains its engines, so killing the group kills all of them. The server stays a zombie
until the fork server waits for it, so the group's number cannot have been reused.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.ends import FAILED, LOG, UNKNOWN_END, End, diagnose_server
from doom_a3c.envs.processes.traces import clear, remove_orphans

ENDING_SECONDS = 0.5  # for a server that has closed its connection to end
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main(descriptor: int, root: str, begin: float) -> None:
    """Serves the trainer at the other end of the socket until the trainer ends.

    `root` is the folder of all servers, `begin` the start time of the trainer's first fork server, in seconds since 1970.
    """
    _wake_when_orphaned()
    wire = Wire(socket.socket(fileno=descriptor))
    servers: dict[int, int] = {}  # process ids by number
    while True:
        try:
            order, number, ending, preload = wire.receive()
            end = wire.receive_descriptor() if order == "start" else None
        except OSError:
            break
        folder = Path(root) / str(number)
        answer: int | End
        if end is not None:
            answer = servers[number] = _start_server(wire, end, folder, preload)
        else:
            answer = _reap(servers.pop(number, 0), folder, ENDING_SECONDS if ending else 0.0)
            with contextlib.suppress(OSError):  # other servers use it
                os.rmdir(root)  # now: Ray kills the children of its processes, including this one
        with contextlib.suppress(OSError):
            wire.send(answer)
    for number, pid in servers.items():
        _reap(pid, Path(root) / str(number))
    _clear_up(Path(root), begin)


def _start_server(wire: Wire, end: int, folder: Path, preload: str) -> int:
    """Forks a server with this end of a socket; returns its process id, or 0, with the end closed, if that fails."""
    with contextlib.suppress(Exception):  # the server imports it again and logs the error
        importlib.import_module(preload)
    try:
        clear(folder)  # the order may be repeated, after another fork server died
        folder.mkdir(parents=True)  # `root` too: the last server of a dead fork server removes it
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        try:
            os.setsid()
            wire.socket.close()  # or the trainer's end would stay open as long as the server
            _become_server(end, folder)
        except BaseException:
            traceback.print_exc()  # to the log
            sys.stderr.flush()
            (folder / FAILED).touch()
        finally:
            os.killpg(0, signal.SIGKILL)
    os.close(end)
    return max(pid, 0)


def _wake_when_orphaned() -> None:
    """Makes Linux send SIGCONT to this process when its parent ends: a stopped process would never end."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _become_server(end: int, folder: Path) -> None:
    _wake_when_orphaned()
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from doom_a3c.envs.processes.serving import (
        serve,  # late: the fork server does not need it, and errors belong in the server's log
    )

    serve(Wire(socket.socket(fileno=end)), folder)


def _reap(pid: int, folder: Path, seconds: float = 0.0) -> End:
    """Kills a server with its engines and removes their files and shared memory; returns how the server ended.

    It has `seconds` to end by itself: a process closes its connection a moment before its exit status is available.
    """
    end = UNKNOWN_END
    if pid:
        deadline = time.monotonic() + seconds
        while (
            ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        ) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        end = diagnose_server(folder, ended)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it may not lead a group yet
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    clear(folder)
    return end


def _clear_up(root: Path, begin: float) -> None:
    """Clears the folder of all servers, several times: an engine may be starting when the trainer dies."""
    for _ in range(3):
        clear(root)
        time.sleep(0.4)
    remove_orphans(begin)
