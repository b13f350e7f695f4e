"""Mistakes of users, and the words that messages about them are made of."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence


class UserError(Exception):
    """A mistake of the user's: the command line prints it as one line and exits with status 2."""


class RunError(Exception):
    """What has ended a run and is no mistake of the user's: the command line prints it as one line, and exits with 1."""


def first_line(error: BaseException) -> str:
    """Returns what an error of somebody else's says, in a line that is not too long; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()[:200]


def require(condition: bool, message: str) -> None:
    """Raises UserError with the message unless the condition holds."""
    if not condition:
        raise UserError(message)


@contextlib.contextmanager
def about(what: str) -> Iterator[None]:
    """Puts before a user's mistake what it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from error


def listed(words: Sequence[str], most: int) -> str:
    """Returns 'a, b and 4 more': the first words, and how many there are besides."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ' (did you mean X?)' for the known word most like `word`, or '' where none is close."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f" (did you mean {names[close[0]]}?)" if close else ""
