"""A run's league: earlier weights of the agents in a match, with ratings, to play against."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.record.files import write_table
from doom_a3c.run.checkpoints.checkpoint import SAVING, load, save
from doom_a3c.run.checkpoints.run_record import RunRecord
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride

SIZE = 20  # members
WIN = 400.0  # rating points for a won match, see `rate`
FOLDER, TABLE = "league", "league.csv"


class Member(NamedTuple):
    """Frozen weights."""

    frames: int  # of training behind them
    rating: float
    weights: Mapping[str, NDArray[Any]]  # by name


def rate(opponent: float, outcome: float) -> float:
    """Returns the performance in a match against an opponent with this rating; the mean over matches is a rating.

    This is the "algorithm of 400", a linear Elo performance: the opponent's rating, plus 400 for a win (`outcome` 1), less
    400 for a loss (-1).
    """
    return opponent + WIN * outcome


def _find_weakest(members: Sequence[Member]) -> Member:
    return min(members, key=lambda one: one.rating)


def _leave_out(members: Sequence[Member], *lost: Member) -> list[Member]:
    return [one for one in members if not any(one is other for other in lost)]  # arrays have no == of one value


class League:
    """The members of a league. Owns their files, in `folder`, one a member. Any thread may use it."""

    def __init__(self, folder: Path, members: Iterable[Member] = (), *, fixed: bool = False) -> None:
        """A `fixed` one takes no new members."""
        self.folder, self._fixed, self._lock = folder, fixed, threading.Lock()
        self._members = list(members)

    @classmethod
    def read(cls, folder: Path, network: ACNetwork, override: GameOverride = NO_OVERRIDE) -> League:
        """Reads the strongest members that an earlier session has left in a folder, and removes unfinished files.

        Leaves out files that are damaged, or whose weights are not finite or do not fit the `network`. `override` is what
        the run's checkpoints need to be loaded.
        """
        for unfinished in folder.glob(f"{SAVING}*"):  # of a session that was killed while saving
            with contextlib.suppress(OSError):
                unfinished.unlink()
        members: list[Member] = []
        for path in sorted(folder.glob("*.ckpt")):
            try:
                checkpoint = load(path, override)
                checkpoint.check_finite(path)
                network.load(checkpoint.variables)
            except (UserError, KeyError, ValueError):
                continue
            record = checkpoint.record
            members.append(Member(record.counters.frames, record.best.score or 0.0, checkpoint.variables))
            if len(members) > SIZE:
                members = _leave_out(members, _find_weakest(members))
        return cls(folder, members)

    @property
    def members(self) -> list[Member]:
        """The members, oldest first."""
        with self._lock:
            return list(self._members)

    def add(self, record: RunRecord, rating: float, weights: Mapping[str, NDArray[Any]]) -> None:
        """Adds weights with their rating; a full league loses its weakest member.

        Raises:
            OSError: if a file cannot be written; the member plays in this session all the same.
        """
        if self._fixed:
            return
        member = Member(record.counters.frames, rating, weights)
        with self._lock:
            others = [one for one in self._members if one.frames != member.frames]
            lost = [_find_weakest(others)] if len(others) >= SIZE else []
            self._members = [*_leave_out(others, *lost), member]
            self.folder.mkdir(parents=True, exist_ok=True)
            save(self._find_path(member), weights, record._replace(best=record.best._replace(score=rating)))
            for one in lost:
                self._find_path(one).unlink(missing_ok=True)
            rows = [(one.frames, f"{one.rating:.0f}") for one in self._members]
            write_table(self.folder.parent / TABLE, ["frames", "rating"], rows)

    def _find_path(self, member: Member) -> Path:
        return self.folder / f"frames-{member.frames:012}.ckpt"

    def draw(self, random: np.random.Generator) -> Member:
        """Draws a member in proportion to its expected share of wins against the newest one.

        That share is Elo's, 1 / (1 + 10^((newest - its) / 400)).
        """
        members = self.members
        ratings = np.array([member.rating for member in members])
        odds = 1 / (1 + 10 ** np.clip((ratings[-1] - ratings) / WIN, -4, 4))
        return members[random.choice(len(members), p=odds / odds.sum())]

    def find_strong(self, place: int) -> Member:
        """Returns the member with the `place`-th highest rating, from 0; a small league starts over at its end."""
        ranked = sorted(self.members, key=lambda one: one.rating, reverse=True)
        return ranked[place % len(ranked)]
