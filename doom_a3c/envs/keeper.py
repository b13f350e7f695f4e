"""The keeper: a small process that starts the game servers of a trainer, and buries them when they or it are gone.

It lives in a process session of its own, so no signal of a terminal reaches it, and so does every server. It imports what
servers need once and forks them, which takes milliseconds. Its one connection closes when the trainer is gone, however
it went; then it kills what is left and removes every trace.

A server is the leader of a process group that its engines belong to: killing the group leaves none of them, and as its own
child stays a zombie until it is waited for, the group's number cannot have become another's.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

from doom_a3c.envs.wire import Wire

LAST_WORDS = 4096  # bytes of a log that may be quoted


class Grave(NamedTuple):
    """What is known of a server that is gone."""

    status: int  # as os.waitpid gives it
    words: str  # the last lines that it and its engines have printed


def main(descriptor: int, root: str) -> None:
    """Serves the trainer at the other end of the socket until that is gone. `root` is the folder of all servers."""
    wire = Wire(socket.socket(fileno=descriptor))
    servers: dict[int, int] = {}  # process ids by number
    begin = time.time()
    try:
        while True:
            order, number, preload = wire.receive()
            if order == "start":
                servers[number] = _start(wire, Path(root) / str(number), preload)
                wire.send(servers[number])
            else:
                wire.send(_buried(servers.pop(number, 0), Path(root) / str(number)))
    except OSError:
        pass
    for number, pid in servers.items():
        _buried(pid, Path(root) / str(number))
    _end(Path(root), begin)


def _start(wire: Wire, folder: Path, preload: str) -> int:
    """Forks a server, whose end of a socket comes with the order; returns its process id."""
    (end,) = wire.receive_descriptors(1)
    with contextlib.suppress(Exception):  # the server will import it again, and say what is wrong
        importlib.import_module(preload)
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            wire.socket.close()  # what the trainer's end shows must not depend on servers
            _be_server(end, folder)
        finally:
            os.killpg(0, signal.SIGKILL)
    os.close(end)
    return pid


def _be_server(end: int, folder: Path) -> None:
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from doom_a3c.envs.server import serve

    serve(Wire(socket.socket(fileno=end)), folder)


def _buried(pid: int, folder: Path) -> Grave:
    status = 0
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # one that has not come to lead a group yet
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    grave = Grave(status, last_words(folder))
    clear(folder)
    return grave


def last_words(folder: Path) -> str:
    """Returns the last line that was printed into the newest log under a folder that says anything."""
    logs = sorted(folder.rglob("log"), key=lambda path: path.stat().st_mtime, reverse=True) if folder.exists() else []
    for log in logs:
        lines = [line.strip() for line in log.read_bytes()[-LAST_WORDS:].decode(errors="replace").splitlines()]
        if any(lines):
            return [line for line in lines if line][-1]
    return ""


def clear(folder: Path) -> None:
    """Kills every process that prints into a folder, and removes its engines' shared memory and the folder itself."""
    for output in glob.glob("/proc/[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(output)).is_relative_to(folder):
                os.kill(int(output.split("/")[2]), signal.SIGKILL)
    for arguments in folder.glob("**/arguments"):
        remove_shared_memory(instance_in(arguments.read_text().split()))
    shutil.rmtree(folder, ignore_errors=True)


def instance_in(arguments: list[str]) -> str:
    """Returns the id in the names of an engine's shared memory, '' where the arguments are no engine's."""
    with contextlib.suppress(ValueError, IndexError):
        return arguments[arguments.index("+viz_instance_id") + 1]
    return ""


def remove_shared_memory(instance: str) -> None:
    """Removes the shared memory of a dead engine."""
    for segment in glob.glob(f"/dev/shm/ViZDoom*{glob.escape(instance)}") if instance else ():
        with contextlib.suppress(OSError):
            os.unlink(segment)


def _end(root: Path, begin: float) -> None:
    """Clears the common folder, in several rounds: an engine may have been starting when the trainer died."""
    for _ in range(3):
        clear(root)
        time.sleep(0.4)
    _remove_orphans(begin)


def _remove_orphans(since: float) -> None:
    """Removes engines' shared memory that is newer than `since` and in no process.

    An engine that is killed before its launcher has noted its id leaves such. Another trainer's, just made, is younger
    than a second.
    """
    mapped = set()
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[-1] for line in Path(maps).read_text().splitlines() if "/dev/shm/ViZDoom" in line}
    for segment in glob.glob("/dev/shm/ViZDoom*"):
        with contextlib.suppress(OSError):
            if segment not in mapped and since - 1 < os.stat(segment).st_ctime < time.time() - 1:
                os.unlink(segment)


def command(descriptor: int, root: Path) -> list[str]:
    """Returns the command that runs a keeper with the modules that this process can import."""
    program = (
        "import sys; sys.path[:] = sys.argv[3:]; from doom_a3c.envs.keeper import main; main(int(sys.argv[1]), sys.argv[2])"
    )
    return [sys.executable, "-c", program, str(descriptor), str(root), *sys.path]
