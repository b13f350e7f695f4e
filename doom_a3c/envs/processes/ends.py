"""Diagnoses how game servers and engines ended, and whether another one would end in the same way.

ViZDoom's library crashes its caller when an engine ends during its start, and the error is lost with it. Here the error
is read from the engine's log and from the message queue in shared memory, which both outlive the crash.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LAST_BYTES = 4096  # read from a log
MAX_WORDS = 300  # characters in a diagnosis: a level may come from anybody
LAUNCHER, ARGUMENTS, LOG, FAILED = "launch", "arguments", "log", "failed"  # files in the folders of engines and servers
# Signals of a process's own faults.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_CRASH_REPORT = "vizdoom-crash.log"  # written by a crashing engine
_ABORTED = re.compile(r"terminate called|what\(\):|malloc|free\(\)|corrupted|smashing")  # last words of the C++ runtime
_NO_ROOM = re.compile(r"^VIZ_\w+: Failed to (open|create|truncate|map)")
_READ_BY = {"G_ParseMapInfo": "MAPINFO", "LoadActors": "DECORATE", "Texman.Init": "TEXTURES", "S_InitData": "SNDINFO"}
FOR_WANT = ", out of shared memory: is /dev/shm full?"
_BY_SIGNAL = "Unexpected ViZDoom instance crash."  # the library's message if a signal ended the engine
_MESSAGE = re.compile(rb"\r([\t\n -~]{4,128})")  # in the engine's queue: an error code and the message


class End(NamedTuple):
    """Diagnosis of a process's end."""

    words: str = ""
    by_itself: bool = False  # it was not killed and did not hang, so another may end the same way
    of_level: bool = False  # the level is the probable cause


UNKNOWN_END = End()
MATCH_BROKEN = "match_broken"  # a kind of fault: another player of the match has failed


class EngineError(Exception):
    """An engine has ended and must be replaced. `kind` is the fault, such as 'engine_died', `end` how it ended."""

    def __init__(self, kind: str, end: End = UNKNOWN_END) -> None:
        super().__init__(kind, end)  # pickle passes these to __init__ in the other process
        self.kind, self.end = kind, end

    def __str__(self) -> str:
        return self.end.words or self.kind


def diagnose_server(folder: Path, ended: os.waitid_result | None) -> End:
    """Returns how the server of a folder ended; `ended` is the result of `os.waitid`, None if it was still running."""
    if ended is None:
        return End(read_last_line(folder))
    if ended.si_code == os.CLD_EXITED or (folder / FAILED).exists():
        return End(read_last_line(folder), by_itself=True)
    number = signal.Signals(ended.si_status)
    if number == signal.SIGSEGV and (newborn := _find_newborn(folder)):
        return diagnose_engine(newborn, _read_message(newborn))
    words = f"ended by {number.name}{FOR_WANT if number == signal.SIGBUS else ''}"
    words = ": ".join(filter(None, (words, read_last_line(folder))))
    return End(words, by_itself=number in _CRASHES)


def diagnose_engine(folder: Path, message: str) -> End:
    """Returns how an engine ended during its start; `message` is the library's error message."""
    arguments, log, report = _read_arguments(folder), _read_tail(folder / LOG), _read(folder / _CRASH_REPORT)[:LAST_BYTES]
    last = _to_line(log.strip().rpartition("\n")[2])
    if _NO_ROOM.search(last) or f"(signal {signal.SIGBUS:d})" in report:
        return End(f"the engine failed to start{FOR_WANT}", by_itself=True)
    crashed = bool(report or _ABORTED.search(last))
    if not arguments or (message == _BY_SIGNAL and not crashed):
        return End("the engine was killed as it started")
    file = Path(_find_argument(arguments, "-file") or _find_argument(arguments, "-iwad"))
    level = f"{_find_argument(arguments, '+map')} of {file.name}"
    words = _to_line(message if message != _BY_SIGNAL else "") or _to_line("".join(log.partition("Script error")[1:]))
    if not words:
        lump = _READ_BY.get(last.partition(":")[0])
        at = f" (its last line: {last}{f' It was reading {lump}' if lump else ''})" if last and not crashed else ""
        words = f"it gave no reason{at}; check the level in an editor"
    return End(f"{level} crashed the engine at its start: {words}", by_itself=True, of_level=True)


def read_last_line(folder: Path) -> str:
    """Returns the last line of a server's log."""
    return _to_line(_read_tail(folder / LOG).strip().rpartition("\n")[2])


def find_instance(arguments: Sequence[str]) -> str:
    """Returns the id in the names of an engine's shared memory, '' if the arguments are not an engine's."""
    return _find_argument(arguments, "+viz_instance_id")


def _find_newborn(folder: Path) -> Path | None:
    """Returns the folder of the newest engine that is still starting: the launcher is deleted afterwards."""
    launchers = sorted(folder.glob(f"*/{LAUNCHER}"), key=lambda path: path.stat().st_mtime)
    return launchers[-1].parent if launchers else None


def _read_message(engine: Path) -> str:
    """Returns the error left in an engine's message queue, '' if there is none."""
    with contextlib.suppress(OSError):
        queue = Path(f"/dev/shm/ViZDoomMQCtr{find_instance(_read_arguments(engine))}").read_bytes()
        if _BY_SIGNAL.encode() in queue:
            return _BY_SIGNAL
        if match := _MESSAGE.search(queue):
            return match[1].decode()
    return ""


def _read_arguments(engine: Path) -> list[str]:
    return _read(engine / ARGUMENTS).split("\n")[:-1]


def _find_argument(arguments: Sequence[str], name: str) -> str:
    with contextlib.suppress(ValueError, IndexError):
        return arguments[arguments.index(name) + 1]
    return ""


def _read_tail(log: Path) -> str:
    return _read(log)[-LAST_BYTES:]


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""


def _to_line(text: str) -> str:
    """Returns a text as one line of printable characters, safe to print on a terminal."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line[:MAX_WORDS]
