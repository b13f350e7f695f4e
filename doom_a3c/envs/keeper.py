"""The keeper: a small process that starts the game servers of a trainer, and buries them when they or it are gone.

It lives in a process session of its own, so no signal of a terminal reaches it, and so does every server. It imports what
servers need once and forks them, which takes milliseconds. Its one connection closes when the trainer is gone, however
it went; then it kills what is left and removes every trace.

A server is the leader of a process group that its engines belong to: killing the group leaves none of them, and as its own
child stays a zombie until it is waited for, the group's number cannot have become another's.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from doom_a3c.envs.wire import Wire

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
LAST_BYTES = 4096  # of a log, in which its last line is looked for


def main(descriptor: int, root: str) -> None:
    """Serves the trainer at the other end of the socket until that is gone. `root` is the folder of all servers."""
    _wake_when_orphaned()
    wire = Wire(socket.socket(fileno=descriptor))
    servers: dict[int, int] = {}  # process ids by number
    begin = time.time()
    while True:
        try:
            order, number, preload = wire.receive()
            end = wire.receive_descriptor() if order == "start" else None
        except OSError:
            break
        folder = Path(root) / str(number)
        answer: int | str
        if end is not None:
            answer = servers[number] = _started(wire, end, folder, preload)
        else:
            answer = _buried(servers.pop(number, 0), folder)
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(root)  # Ray kills its processes' children: a keeper without servers could not do so later
        with contextlib.suppress(OSError):
            wire.send(answer)
    for number, pid in servers.items():
        _buried(pid, Path(root) / str(number))
    _end(Path(root), begin)


def _started(wire: Wire, end: int, folder: Path, preload: str) -> int:
    """Forks a server with that end of a socket; returns its process id, or 0, and then its owner sees the end closed."""
    with contextlib.suppress(Exception):  # the server will import it again, and its log says what is wrong
        importlib.import_module(preload)
    try:
        clear(folder)  # an order that is given again, to another keeper
        folder.mkdir(parents=True)  # the last server of a keeper that has died removes the common folder too
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        try:
            os.setsid()
            wire.socket.close()  # what the trainer's end shows must not depend on servers
            _be_server(end, folder)
        except BaseException:
            traceback.print_exc()  # into the log
            sys.stderr.flush()
        finally:
            os.killpg(0, signal.SIGKILL)
    os.close(end)
    return max(pid, 0)


def _wake_when_orphaned() -> None:
    """Has Linux send SIGCONT to this process when its parent ends: a stopped one would not notice, nor ever end."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _be_server(end: int, folder: Path) -> None:
    _wake_when_orphaned()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from doom_a3c.envs.serving import serve  # not before: what goes wrong as it is imported must be in the log

    serve(Wire(socket.socket(fileno=end)), folder)


def _buried(pid: int, folder: Path) -> str:
    """Kills a server with its engines and removes what they leave; returns what is known of its end."""
    known = ""
    if pid:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # by itself, before it is killed below
        if ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            known = f"ended by {signal.Signals(ended.si_status).name}"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # one that has not come to lead a group yet
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if known == "ended by SIGBUS":
        known += ", for want of memory: is /dev/shm full?"
    known = ": ".join(filter(None, (known, last_line(folder))))
    clear(folder)
    return known


def last_line(folder: Path) -> str:
    """Returns the last line that was printed into the newest log under a folder that says anything."""
    logs = sorted(folder.rglob("log"), key=lambda path: path.stat().st_mtime, reverse=True) if folder.exists() else []
    for log in logs:
        lines = [line.strip() for line in log.read_bytes()[-LAST_BYTES:].decode(errors="replace").splitlines()]
        if any(lines):
            return [line for line in lines if line][-1]
    return ""


def clear(folder: Path) -> None:
    """Kills every process that prints into a folder, and removes its engines' shared memory and the folder itself."""
    for output in glob.glob("/proc/[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(output)).is_relative_to(folder):
                os.kill(int(output.split("/")[2]), signal.SIGKILL)
    remove_traces(folder)


def remove_traces(folder: Path) -> None:
    """Removes a folder, and the shared memory of the dead engines that have noted their arguments in it."""
    for arguments in folder.glob("**/arguments"):
        with contextlib.suppress(OSError):
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
    program = Path(__file__).with_name("start_keeper.py")
    return [sys.executable, str(program), str(descriptor), str(root), *sys.path]
