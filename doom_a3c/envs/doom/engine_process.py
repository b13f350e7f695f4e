"""ViZDoom engine processes: each runs in a private folder, and a watchdog kills it if it hangs.

Every `DoomGame` is a separate process that ignores SIGTERM and outlives a killed parent. Its library has no time-out. It
crashes its caller if an engine dies while starting, and may block its caller for good if an engine dies later. Therefore
games run in game servers, which can be replaced. In this module

- a launcher script starts the engine in its own folder (the engine writes into its working directory), and saves its pid,
  its arguments and its output there;
- a watchdog thread kills an engine that has not answered for `ANSWER_SECONDS`. This wakes the waiting caller; if it does
  not, the game server ends.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import vizdoom

from doom_a3c.envs.processes import client
from doom_a3c.envs.processes.client import make_private_folder
from doom_a3c.envs.processes.ends import ARGUMENTS, LAUNCHER, LOG, End, EngineError, diagnose_engine, find_instance
from doom_a3c.envs.processes.traces import remove_traces
from doom_a3c.settings.errors import UserError

ANSWER_SECONDS = 8.0  # a healthy engine answers in milliseconds; starting one takes a second on a busy machine
STUCK_SECONDS = 2.0  # after an engine's death; its caller normally notices within milliseconds
# ViZDoom's start and close are not thread-safe: two at once sometimes crash the process (in 2 of 8 runs).
_one_at_a_time = threading.Lock()
_DEATHS = (
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
)
NO_FILES: Mapping[str, str] = MappingProxyType({})
Result = TypeVar("Result")


class DoomProcess:
    """One running game. Owns the process and its folder, and knows whether it was killed because it hung."""

    def __init__(
        self,
        configure: Callable[[vizdoom.DoomGame], None],
        files: Mapping[str, str] = NO_FILES,
        is_abandoned: Callable[[], bool] | None = None,
    ) -> None:
        """Starts an engine; `configure` sets the game up. The engine's folder gets the texts of `files`, by name.

        The watchdog calls `is_abandoned` while the engine is busy, and kills the engine if the call returns True.

        Raises:
            EngineError: if the engine dies or hangs while starting.
            UserError: if a file is missing, or a disk is full.
        """
        with _explain_write_errors():
            self.folder = make_private_folder()
        self.busy_since: float | None = None
        self.hung = False
        self.is_abandoned = is_abandoned or (lambda: False)
        with _one_at_a_time:
            self.game = vizdoom.DoomGame()
            configure(self.game)
            self.game.set_console_enabled(True)  # the log then has the engine's errors about the level
            with _explain_write_errors(self.folder):
                self._install_launcher()
                for name, text in files.items():
                    (self.folder / name).write_text(text)
            _get_watchdog().watched.add(self)
            try:
                self.ask(self.game.init)
                self._forget_launch()
                return
            except EngineError as fault:
                end = End("the engine did not answer") if self.hung else diagnose_engine(self.folder, fault.end.words)
                failure: Exception = EngineError(fault.kind, end)
            except vizdoom.FileDoesNotExistException as error:  # deleted since they were checked
                failure = UserError(str(error))
        self.close()
        raise failure

    def _forget_launch(self) -> None:
        """Removes the launcher, and empties the log of the engine's start."""
        (self.folder / LAUNCHER).unlink(missing_ok=True)
        self._empty_log()

    def begin_episode(self, seed: int) -> None:
        """Starts the episode with this seed; raises as `ask` does."""
        self._empty_log()  # otherwise it grows with every episode
        self.game.set_seed(seed)
        self.ask(self.game.new_episode)

    def _empty_log(self) -> None:
        with contextlib.suppress(OSError):
            os.truncate(self.folder / LOG, 0)

    def _install_launcher(self) -> None:
        """Makes ViZDoom start the engine by a launcher script in the engine's own folder."""
        folder = shlex.quote(str(self.folder))
        engine = shlex.quote(self.game.get_vizdoom_path() or str(Path(vizdoom.__file__).parent / "vizdoom"))
        launcher = self.folder / LAUNCHER
        notes = f"exec >>{folder}/{LOG} 2>&1\nprintf '%s\\n' \"$@\" >{folder}/{ARGUMENTS}\necho $$ >{folder}/pid\n"
        launcher.write_text(f'#!/bin/sh\n{notes}cd {folder}\nexec {_PDEATHSIG_COMMAND}{engine} "$@"\n')
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
            message = str(error) if isinstance(error, vizdoom.ViZDoomErrorException) else ""
            raise EngineError("engine_hung" if self.hung else "engine_died", End(message)) from None
        finally:
            self.busy_since = None

    @property
    def pid(self) -> int | None:
        """Process id of the engine; None before it has started."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "pid").read_text())
        return None

    @property
    def instance(self) -> str:
        """The id in the names of the engine's shared memory; '' if the engine is not running."""
        with contextlib.suppress(OSError):
            return find_instance(Path(f"/proc/{self.pid}/cmdline").read_text().split("\0"))
        return ""

    def kill(self) -> None:
        """Kills the engine at once; a caller that waits for its answer gets EngineError."""
        if self.pid is not None and self.instance:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the engine and removes its folder and shared memory; may be called twice, and on a dead engine."""
        if self.folder.exists():
            self.kill()  # a regular exit saves nothing of use, and a hung engine would never exit
            with _one_at_a_time, contextlib.suppress(EngineError):
                self.ask(self.game.close)
            remove_traces(self.folder)
        _get_watchdog().watched.discard(self)


def _find_pdeathsig_command() -> str:
    """Returns a prefix for a command that makes it end with its parent, even a killed one; '' if there is none here."""
    prefix = "setpriv --pdeathsig KILL "
    with contextlib.suppress(OSError):
        if subprocess.run([*prefix.split(), "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    return ""


_PDEATHSIG_COMMAND = _find_pdeathsig_command()  # runs once, in the fork server, instead of in each game server


@contextlib.contextmanager
def _explain_write_errors(folder: Path | None = None) -> Iterator[None]:
    """Turns an OSError into a UserError with a cure; it names `folder`, or else the file of the error."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder or error.filename}: {error.strerror}; TMPDIR may name a folder with more room") from None


class _Watchdog:
    """Kills engines that do not answer. Owns a thread."""

    def __init__(self) -> None:
        self.watched: weakref.WeakSet[DoomProcess] = weakref.WeakSet()
        self._dead_since: weakref.WeakKeyDictionary[DoomProcess, float] = weakref.WeakKeyDictionary()
        threading.Thread(target=self._watch, name="engine-watchdog", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(0.25)
            with contextlib.suppress(RuntimeError):  # another thread adds a process; the next round includes it
                for process in list(self.watched):
                    self._check(process, time.monotonic())

    def _check(self, process: DoomProcess, now: float) -> None:
        busy_since = process.busy_since
        if busy_since is None:
            return
        if now - busy_since > ANSWER_SECONDS:
            process.hung = True
        if process.hung or process.is_abandoned():
            process.kill()
        if process.instance or (process.pid is None and not process.hung):  # it is alive, or starting
            self._dead_since.pop(process, None)
        elif now - max(busy_since, self._dead_since.setdefault(process, now)) > STUCK_SECONDS:
            client.report_stuck("engine_hung" if process.hung else "engine_died")


_watchdog_lock = threading.Lock()
_make_watchdog = functools.cache(_Watchdog)


def _get_watchdog() -> _Watchdog:
    with _watchdog_lock:
        return _make_watchdog()
