"""The flag parser and the exit handling of every benchmark command."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from benchmarks.common.results import DamagedError
from benchmarks.common.supervised import terminate
from doom_a3c.settings.errors import UserError


def make_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Returns the parser of a command, described by the first line of its module's docstring."""
    return argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").splitlines()[0])


def run_command(name: str, main: Callable[[], int | None], *, resumes: bool = False) -> NoReturn:
    """Runs a command and exits: 2 with one line for a user's mistake, 130 after Ctrl-C or SIGTERM, else its status.

    Args:
        name: of the command, in its messages.
        main: returns its status; None is 0.
        resumes: whether the command continues where it was interrupted.
    """
    signal.signal(signal.SIGTERM, terminate)
    try:
        sys.exit(main())
    except (DamagedError, UserError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    except subprocess.CalledProcessError as error:  # it has printed why
        print(f"{name}: {Path(error.cmd[1]).name} ended with status {error.returncode}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{name}: interrupted{'; rerun the command to resume' if resumes else ''}", file=sys.stderr)
        sys.exit(130)
