"""The loop of a game server: it answers calls of one object's methods."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

from doom_a3c.envs.processes import client
from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.ends import UNKNOWN_END, EngineError
from doom_a3c.settings.errors import UserError

CLOSE_SECONDS = 3  # for closing the games after the owner has ended


def serve(wire: Wire, folder: Path) -> None:
    """Makes an object with the factory in the first message, and answers calls of its methods until the owner ends.

    If a dead engine blocks the only thread, the whole process ends with it.
    """
    fork_server = os.getppid()
    client.become_server(folder, lambda kind: _die(wire, kind))
    target: Any = None

    def answer(message: Any) -> tuple[str, Any]:
        nonlocal target
        try:
            if target is None:
                target = cloudpickle.loads(message)(wire)
                return "returned", None
            method, arguments = message
            return "returned", getattr(target, method)(*arguments)
        except (UserError, ModuleNotFoundError) as error:  # the command line reports these in one line
            return "mistake", (error, traceback.format_exc())
        except EngineError as error:
            return "ended", (error.kind, error.end)
        except Exception:
            return "raised", traceback.format_exc()

    try:
        while True:
            reply = answer(wire.receive())
            try:
                wire.send(reply)
            except (TypeError, AttributeError, ValueError, pickle.PicklingError):  # raised before anything was sent
                wire.send(("raised", traceback.format_exc()))
    except OSError:  # the owner has ended
        signal.alarm(CLOSE_SECONDS)
        with contextlib.suppress(Exception):
            target.close()
        if os.getppid() != fork_server:  # the fork server is dead, too
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def _die(wire: Wire, kind: str) -> None:
    with contextlib.suppress(OSError):
        wire.send(("ended", (kind, UNKNOWN_END)), CLOSE_SECONDS)
    os.killpg(0, signal.SIGKILL)
