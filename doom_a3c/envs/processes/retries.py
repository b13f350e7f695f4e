"""Attempts to start games, until one succeeds or there is no hope."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from doom_a3c.envs.processes.client import ProcessError
from doom_a3c.settings.errors import UserError

GIVE_UP_SECONDS = 120.0
# Seconds before each attempt to start a replacement: load on the machine, or its out-of-memory killer, may calm down.
PAUSES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0)

Result = TypeVar("Result")


class GamesError(UserError):
    """Games do not start; the message has the reason, if it is known."""


def with_retries(
    attempt: Callable[[], Result],
    failures: list[ProcessError],
    wait: Callable[[float], object] = time.sleep,
    pauses: Sequence[float] | None = None,
) -> Result:
    """Returns the result of the first attempt in which no process dies; the errors of earlier attempts join `failures`.

    Raises:
        GamesError: if two processes in a row end by themselves in the same way, or no attempt succeeds in two minutes.
    """
    begin, announced = time.monotonic(), False
    for pause in PAUSES if pauses is None else pauses:
        if time.monotonic() - begin > GIVE_UP_SECONDS:
            break
        wait(pause)
        if failures and not announced:
            announced = True
            _announce_retries(failures[-1])
        try:
            return attempt()
        except ProcessError as error:
            failures.append(error)
            if _ended_alike(failures[-2:]):
                break
    telling = [str(error) for error in failures if error.end.words]
    words = telling[-1] if telling else f"{failures[-1].kind}, {len(failures)} times in a row"
    raise GamesError(f"the games do not start: {words}")


def _announce_retries(failure: ProcessError) -> None:
    """Prints a warning with the failure and the time limit: a hung engine would otherwise be minutes of silence."""
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + GIVE_UP_SECONDS))
    print(f"warning: a game does not start ({failure}); trying again until {until}", file=sys.stderr, flush=True)


def _ended_alike(failures: Sequence[ProcessError]) -> bool:
    """Returns whether two processes ended by themselves in the same way, so that another would, too."""
    ways = [re.sub("[0-9]+", "", error.end.words) for error in failures if error.end.by_itself]  # without process ids
    return len(ways) == 2 and ways[0] == ways[1]
