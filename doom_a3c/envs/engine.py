"""ViZDoom engine processes: started in a private folder, killed when they hang, reaped when the trainer dies.

Every `DoomGame` is a separate process that ignores SIGTERM, outlives a killed parent, and answers or never answers;
its library has no time-out. Three things keep that in hand:

- a launcher script starts the engine in its own folder (the engine writes into its working directory), and notes
  its pid and arguments;
- a watchdog thread kills an engine that has not answered for `ANSWER_SECONDS`, which wakes the waiting caller;
- a reaper process waits on a pipe that closes when the trainer is gone, however it went, and then kills every engine
  whose pid is noted and removes its shared memory and folders.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import vizdoom

ANSWER_SECONDS = 10.0  # a healthy engine answers in milliseconds; starting one takes a second on a busy machine
# ViZDoom's start and close are not thread-safe: two at once crash the process now and then (seen in 2 of 8 runs).
_one_at_a_time = threading.Lock()
_DEATHS = (
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
)
Answer = TypeVar("Answer")


class EngineError(Exception):
    """The engine process is gone; `kind` is 'engine_died' or 'engine_hung'. Build a new one."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Engine:
    """One running game. Owns the process, its folder, and the fact of whether it has been found hanging."""

    def __init__(self, configure: Callable[[vizdoom.DoomGame], None]) -> None:
        """Starts an engine; `configure` sets the game up and may be called from any thread.

        Raises:
            EngineError: if it dies or hangs while starting.
        """
        self.folder = _supervisor().new_folder()
        self.busy_since: float | None = None
        self.hung = False
        with _one_at_a_time:
            self.game = vizdoom.DoomGame()
            configure(self.game)
            self._launch_from_own_folder()
            _supervisor().watched.add(self)
            try:
                self.ask(self.game.init)
                return
            except EngineError as fault:
                failure = fault
        self.close()
        raise failure

    def _launch_from_own_folder(self) -> None:
        folder = shlex.quote(str(self.folder))
        engine = shlex.quote(self.game.get_vizdoom_path() or str(Path(vizdoom.__file__).parent / "vizdoom"))
        launcher = self.folder / "launch"
        notes = f'echo "$*" >{folder}/arguments\necho $$ >{folder}/pid\n'
        launcher.write_text(f'#!/bin/sh\n{notes}cd {folder}\nexec {engine} "$@"\n')
        launcher.chmod(0o700)
        self.game.set_vizdoom_path(str(launcher))
        self.game.set_doom_config_path(str(self.folder / "engine.ini"))

    def ask(self, call: Callable[[], Answer]) -> Answer:
        """Returns the result of a call that waits for the engine.

        Raises:
            EngineError: if the engine dies, or is killed because it hangs.
        """
        self.busy_since = time.monotonic()
        try:
            return call()
        except _DEATHS:
            raise EngineError("engine_hung" if self.hung else "engine_died") from None
        finally:
            self.busy_since = None

    @property
    def pid(self) -> int | None:
        """The engine's process id, None before it has started."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "pid").read_text())
        return None

    def kill(self) -> None:
        """Kills the process at once; a caller waiting for its answer gets EngineError."""
        pid = self.pid
        if pid is not None and _instance(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and removes what it left; may be called twice, and on a dead engine."""
        if self.folder.exists():
            pid = self.pid
            instance = _instance(pid) if pid is not None else ""
            self.kill()  # nothing in there is worth waiting for, and a hung engine would never end by itself
            with _one_at_a_time, contextlib.suppress(EngineError):
                self.ask(self.game.close)
            _remove_shared_memory(instance)
            shutil.rmtree(self.folder, ignore_errors=True)
        _supervisor().watched.discard(self)


def _instance(pid: int) -> str:
    """Returns the id in the names of an engine's shared memory, '' if the pid is no (longer an) engine."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return arguments[arguments.index("+viz_instance_id") + 1]
    return ""


def _remove_shared_memory(instance: str) -> None:
    for segment in Path("/dev/shm").glob(f"ViZDoom*{instance}") if instance else ():
        segment.unlink(missing_ok=True)


# Run by a bare interpreter: it must start fast and need nothing of the trainer's. Several rounds, for an engine that
# was being launched in the moment of the trainer's death.
_REAPER = r"""
import glob, os, re, shutil, signal, sys, time
root = sys.argv[1]
sys.stdin.buffer.read()
for _ in range(4):
    for path in glob.glob(root + "/*/pid"):
        try:
            pid = int(open(path).read())
            instance = re.search(r"viz_instance_id (\w+)", open(path[:-3] + "arguments").read()).group(1)
        except (OSError, ValueError, AttributeError):
            continue  # not written yet, or half removed
        try:
            if instance in open("/proc/%d/cmdline" % pid).read():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended by itself, and left its shared memory
        for segment in glob.glob("/dev/shm/ViZDoom*" + glob.escape(instance)):
            try: os.unlink(segment)
            except OSError: pass
    time.sleep(0.5)
shutil.rmtree(root, ignore_errors=True)
"""


class _Supervisor:
    """Owns the engines' common folder, the reaper process and the watchdog thread of this process."""

    def __init__(self) -> None:
        self.watched: weakref.WeakSet[Engine] = weakref.WeakSet()
        self._root = Path(tempfile.mkdtemp(prefix="doom_a3c-"))
        # A session of its own keeps Ctrl-C and the terminal's end away from the reaper; only the pipe ends it.
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _REAPER, str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="engine-watchdog", daemon=True).start()

    def new_folder(self) -> Path:
        """Returns a new folder for an engine."""
        return Path(tempfile.mkdtemp(dir=self._root))

    def _watch(self) -> None:
        while True:
            time.sleep(0.5)
            now = time.monotonic()
            for engine in list(self.watched):
                busy_since = engine.busy_since
                if busy_since is not None and now - busy_since > ANSWER_SECONDS:
                    engine.hung = True
                    engine.kill()


_supervisor_lock = threading.Lock()
_make_supervisor = functools.cache(_Supervisor)


def _supervisor() -> _Supervisor:
    with _supervisor_lock:
        return _make_supervisor()


def kill_all() -> None:
    """Kills every engine of this process, so that all threads waiting for one go on: the way out of a stuck stop."""
    for engine in list(_supervisor().watched):
        engine.kill()
