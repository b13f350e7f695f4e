"""The loop that runs in a game server: it answers calls of one object's methods."""

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

CLOSE_SECONDS = 3  # for games whose owner is gone


def serve(wire: Wire, folder: Path) -> None:
    """Makes the object that the first message is the factory of, and answers calls of its methods while there is an owner.

    An engine that cannot be got rid of otherwise takes this process with it: it blocks the only thread that plays.
    """
    fork_server = os.getppid()
    client.become_server(folder, lambda kind: _die(wire, kind))
    thing: Any = None

    def answer(message: Any) -> tuple[str, Any]:
        nonlocal thing
        try:
            if thing is None:
                thing = cloudpickle.loads(message)(wire)
                return "returned", None
            method, arguments = message
            return "returned", getattr(thing, method)(*arguments)
        except UserError as error:
            return "mistake", (error, traceback.format_exc())
        except EngineError as error:
            return "gone", (error.kind, error.end)
        except Exception:
            return "raised", traceback.format_exc()

    try:
        while True:
            reply = answer(wire.receive())
            try:
                wire.send(reply)
            except (TypeError, AttributeError, ValueError, pickle.PicklingError):  # nothing of it has been sent
                wire.send(("raised", traceback.format_exc()))
    except OSError:  # the owner is gone
        signal.alarm(CLOSE_SECONDS)
        with contextlib.suppress(Exception):
            thing.close()
        if os.getppid() != fork_server:  # nobody is left to tidy up
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def _die(wire: Wire, kind: str) -> None:
    with contextlib.suppress(OSError):
        wire.send(("gone", (kind, UNKNOWN_END)), CLOSE_SECONDS)
    os.killpg(0, signal.SIGKILL)
