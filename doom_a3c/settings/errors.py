"""Errors that the command line prints as one line, and helpers for their messages."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence


class UserError(Exception):
    """A user's mistake; the command line prints it as one line and exits with status 2."""


class RunError(Exception):
    """A failure of a run that is not a user's mistake; the command line prints it as one line and exits with status 1."""


def first_line(error: BaseException) -> str:
    """Returns the first line of another library's error message, shortened; the error's type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()[:200]


def require(condition: bool, message: str) -> None:
    """Raises UserError with the message unless the condition holds."""
    if not condition:
        raise UserError(message)


@contextlib.contextmanager
def error_context(subject: str) -> Iterator[None]:
    """Prefixes UserErrors raised inside the block with their `subject`."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{subject}: {error}") from error


def shorten_list(words: Sequence[str], most: int) -> str:
    """Returns the first `most` words and the number of the others, such as 'a, b and 4 more'."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def suggest(word: str, known: Iterable[str]) -> str:
    """Returns ' (did you mean X?)' for the known word closest to `word`, '' if none is close."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f" (did you mean {names[close[0]]}?)" if close else ""
