"""The fork server: a small process that starts the game servers of a trainer, and buries them when they or it are gone.

It lives in a process session of its own, so no signal of a terminal reaches it, and so does every server. It imports what
servers need once and forks them, which takes milliseconds. Its one connection closes when the trainer is gone, however
it went; then it kills what is left and removes every trace.

A server is the leader of a process group that its engines belong to: killing the group leaves none of them, and as its own
child stays a zombie until it is waited for, the group's number cannot have become another's.
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

ENDING_SECONDS = 0.5  # for a server that has closed its connection
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main(descriptor: int, root: str, begin: float) -> None:
    """Serves the trainer at the other end of the socket until that is gone.

    `root` is the folder of all servers, `begin` the time when its first fork server was started.
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
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(root)  # Ray kills its processes' children: a fork server without servers could not do so later
        with contextlib.suppress(OSError):
            wire.send(answer)
    for number, pid in servers.items():
        _reap(pid, Path(root) / str(number))
    _clear_up(Path(root), begin)


def _start_server(wire: Wire, end: int, folder: Path, preload: str) -> int:
    """Forks a server with that end of a socket; returns its process id, or 0, and then its owner sees the end closed."""
    with contextlib.suppress(Exception):  # the server will import it again, and its log says what is wrong
        importlib.import_module(preload)
    try:
        clear(folder)  # an order that is given again, to another fork server
        folder.mkdir(parents=True)  # the last server of a fork server that has died removes the common folder too
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        try:
            os.setsid()
            wire.socket.close()  # what the trainer's end shows must not depend on servers
            _become_server(end, folder)
        except BaseException:
            traceback.print_exc()  # into the log
            sys.stderr.flush()
            (folder / FAILED).touch()
        finally:
            os.killpg(0, signal.SIGKILL)
    os.close(end)
    return max(pid, 0)


def _wake_when_orphaned() -> None:
    """Has Linux send SIGCONT to this process when its parent ends: a stopped one would not notice, nor ever end."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _become_server(end: int, folder: Path) -> None:
    _wake_when_orphaned()
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from doom_a3c.envs.processes.serving import serve  # the fork server does without; what fails goes into the log

    serve(Wire(socket.socket(fileno=end)), folder)


def _reap(pid: int, folder: Path, seconds: float = 0.0) -> End:
    """Kills a server with its engines and removes what they leave; returns how it ended, as far as is known.

    It has so many seconds to end by itself: a process closes its connection a moment before it can be seen to have ended.
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
        with contextlib.suppress(ProcessLookupError):  # one that has not come to lead a group yet
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    clear(folder)
    return end


def _clear_up(root: Path, begin: float) -> None:
    """Clears the common folder, in several rounds: an engine may have been starting when the trainer died."""
    for _ in range(3):
        clear(root)
        time.sleep(0.4)
    remove_orphans(begin)
