"""ViZDoom engine processes: started in a private folder, killed when they hang.

Every `DoomGame` is a separate process that ignores SIGTERM, outlives a killed parent, and answers or never answers;
its library has no time-out, crashes its caller when an engine dies in its first moments, and blocks its caller for good
when an engine dies at an unlucky one. So games belong in game servers, which may die of that. Here

- a launcher script starts the engine in its own folder (the engine writes into its working directory), and notes its pid,
  its arguments and what it prints;
- a watchdog thread kills an engine that has not answered for `ANSWER_SECONDS`, which wakes the waiting caller, or else
  reports it to the game server, which ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import vizdoom

from doom_a3c.envs.processes import client
from doom_a3c.envs.processes.client import make_private_folder
from doom_a3c.envs.processes.ends import ARGUMENTS, LAUNCHER, LOG, End, EngineError, diagnose_engine, find_instance
from doom_a3c.envs.processes.traces import remove_traces
from doom_a3c.settings.errors import UserError

ANSWER_SECONDS = 8.0  # a healthy engine answers in milliseconds; starting one takes a second on a busy machine
STUCK_SECONDS = 2.0  # after an engine's death its caller knows within milliseconds
# ViZDoom's start and close are not thread-safe: two at once crash the process now and then (seen in 2 of 8 runs).
_one_at_a_time = threading.Lock()
_DEATHS = (
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
)
Result = TypeVar("Result")


class DoomProcess:
    """One running game. Owns the process, its folder, and the fact of whether it has been found hanging."""

    def __init__(self, configure: Callable[[vizdoom.DoomGame], None]) -> None:
        """Starts an engine; `configure` sets the game up and may be called from any thread.

        Raises:
            EngineError: if it dies or hangs while starting.
            UserError: if there is no room for what it needs.
        """
        with _writing_to():
            self.folder = make_private_folder()
        self.busy_since: float | None = None
        self.hung = False
        with _one_at_a_time:
            self.game = vizdoom.DoomGame()
            configure(self.game)
            self.game.set_console_enabled(True)  # into the log, which tells of a level that the engine cannot play
            with _writing_to(self.folder):
                self._launch_from_own_folder()
            _watchdog().watched.add(self)
            try:
                self.ask(self.game.init)
                self._forget_launch()
                return
            except EngineError as fault:
                end = End("the engine did not answer") if self.hung else diagnose_engine(self.folder, fault.end.words)
                failure: Exception = EngineError(fault.kind, end)
            except vizdoom.FileDoesNotExistException as error:  # any longer: they have been looked at
                failure = UserError(str(error))
        self.close()
        raise failure

    def _forget_launch(self) -> None:
        """Removes the launcher and the log of the engine's start."""
        (self.folder / LAUNCHER).unlink(missing_ok=True)
        self._empty_log()

    def begin_episode(self, seed: int) -> None:
        """Starts the episode of that seed; raises as `ask` does."""
        self._empty_log()  # which grows by what the engine says of every episode
        self.game.set_seed(seed)
        self.ask(self.game.new_episode)

    def _empty_log(self) -> None:
        with contextlib.suppress(OSError):
            os.truncate(self.folder / LOG, 0)

    def _launch_from_own_folder(self) -> None:
        folder = shlex.quote(str(self.folder))
        engine = shlex.quote(self.game.get_vizdoom_path() or str(Path(vizdoom.__file__).parent / "vizdoom"))
        launcher = self.folder / LAUNCHER
        notes = f"exec >>{folder}/{LOG} 2>&1\nprintf '%s\\n' \"$@\" >{folder}/{ARGUMENTS}\necho $$ >{folder}/pid\n"
        launcher.write_text(f'#!/bin/sh\n{notes}cd {folder}\nexec {_WITH_PARENT}{engine} "$@"\n')
        launcher.chmod(0o700)
        self.game.set_vizdoom_path(str(launcher))
        self.game.set_doom_config_path(str(self.folder / "engine.ini"))

    def ask(self, call: Callable[[], Result]) -> Result:
        """Returns the result of a call that waits for the engine.

        Raises:
            EngineError: if the engine dies, or is killed because it hangs.
        """
        self.busy_since = time.monotonic()
        try:
            return call()
        except _DEATHS as error:
            told = str(error) if isinstance(error, vizdoom.ViZDoomErrorException) else ""
            raise EngineError("engine_hung" if self.hung else "engine_died", End(told)) from None
        finally:
            self.busy_since = None

    @property
    def pid(self) -> int | None:
        """The engine's process id, None before it has started."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "pid").read_text())
        return None

    @property
    def instance(self) -> str:
        """The id in the names of the running engine's shared memory, '' when there is none (any longer)."""
        with contextlib.suppress(OSError):
            return find_instance(Path(f"/proc/{self.pid}/cmdline").read_text().split("\0"))
        return ""

    def kill(self) -> None:
        """Kills the process at once; a caller waiting for its answer gets EngineError."""
        if self.pid is not None and self.instance:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and removes what it left; may be called twice, and on a dead engine."""
        if self.folder.exists():
            self.kill()  # nothing in there is worth waiting for, and a hung engine would never end by itself
            with _one_at_a_time, contextlib.suppress(EngineError):
                self.ask(self.game.close)
            remove_traces(self.folder)
        _watchdog().watched.discard(self)


def _with_parent() -> str:
    """Returns the beginning of a command that ends when its parent does, however that ends; '' where there is no way."""
    prefix = "setpriv --pdeathsig KILL "
    with contextlib.suppress(OSError):
        if subprocess.run([*prefix.split(), "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    return ""


_WITH_PARENT = _with_parent()  # when the fork server imports this, not in each of the servers that it forks


@contextlib.contextmanager
def _writing_to(folder: Path | None = None) -> Iterator[None]:
    """Turns an error of writing into what a user can do about it; it names `find_folder`, or else what the error does."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder or error.filename}: {error.strerror}; TMPDIR may name a folder with more room") from None


class _Watchdog:
    """Kills engines that do not answer. Owns a thread."""

    def __init__(self) -> None:
        self.watched: weakref.WeakSet[DoomProcess] = weakref.WeakSet()
        self._gone_since: weakref.WeakKeyDictionary[DoomProcess, float] = weakref.WeakKeyDictionary()
        threading.Thread(target=self._watch, name="engine-watchdog", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(0.25)
            with contextlib.suppress(RuntimeError):  # a process is being added just now: the next round sees it
                for process in list(self.watched):
                    self._look_at(process, time.monotonic())

    def _look_at(self, process: DoomProcess, now: float) -> None:
        busy_since = process.busy_since
        if busy_since is None:
            return
        if now - busy_since > ANSWER_SECONDS:
            process.hung = True
            process.kill()
        if process.instance or (process.pid is None and not process.hung):  # it lives, or is being launched
            self._gone_since.pop(process, None)
        elif now - max(busy_since, self._gone_since.setdefault(process, now)) > STUCK_SECONDS:
            client.report_stuck("engine_hung" if process.hung else "engine_died")


_watchdog_lock = threading.Lock()
_make_watchdog = functools.cache(_Watchdog)


def _watchdog() -> _Watchdog:
    with _watchdog_lock:
        return _make_watchdog()
