"""A run's league: earlier weights of the agents in a match, with ratings, to play against."""

from __future__ import annotations

import contextlib
import csv
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.record.files import write_table
from doom_a3c.run.checkpoints.checkpoint import SAVING, load, save
from doom_a3c.run.checkpoints.run_record import RunRecord
from doom_a3c.settings.errors import UserError, first_line
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride

SIZE = 20  # members
WIN = 400.0  # rating points for a won match, see `rate`
RECENT = 10  # matches over which a member's share of wins is averaged
LEAST = 0.05  # odds of a member that never wins
FOLDER, TABLE = "league", "league.csv"


class Member(NamedTuple):
    """Frozen weights."""

    frames: int  # of training behind them
    rating: float | None  # None if they were not evaluated
    weights: Mapping[str, NDArray[Any]]  # by name


def find_outcome(frags: float, rivals: Sequence[float]) -> float:
    """Returns 1 for a match that was won, 0.5 for a draw or unknown rivals, 0 for one that was lost."""
    return float(0.5 + 0.5 * np.sign(frags - max(rivals, default=frags)))


def rate(frags: float, rivals: Sequence[float], ratings: NDArray[np.float64]) -> float:
    """Returns the performance in a match against rivals with these `ratings`; the mean over matches is a rating.

    This is the "algorithm of 400", a linear Elo performance: a rival's rating, plus 400 for more frags than it has, less
    400 for fewer; the mean over the rivals. So equal players have equal ratings, however many play a match.

    Args:
        frags: of the player.
        rivals: frags of the others; empty if unknown, which counts as drawn. Those without a rating, bots, come last.
        ratings: of the others that are agents.
    """
    outcomes = [find_outcome(frags, [one]) for one in rivals[: len(ratings)]] or [0.5]
    return float(np.mean(ratings) + WIN * (2 * np.mean(outcomes) - 1))


def _leave_out(members: Sequence[Member], *lost: Member) -> list[Member]:
    return [one for one in members if not any(one is other for other in lost)]  # `in` would compare arrays


def _read_ratings(path: Path) -> dict[int, float | None]:
    """Returns the ratings in an earlier session's table, by frames; ends at the first row that cannot be read."""
    ratings: dict[int, float | None] = {}
    with contextlib.suppress(OSError, ValueError), path.open() as file:
        for frames, rating in list(csv.reader(file))[1:]:
            ratings[int(frames)] = float(rating) if rating else None
    return ratings


class League:
    """The members of a league. Owns their files in `folder`, one per member, and their shares of wins in this session.

    Any thread may use it.
    """

    def __init__(self, folder: Path, members: Iterable[Member] = (), *, fixed: bool = False) -> None:
        """A `fixed` one takes no new members."""
        self.folder, self._fixed, self._lock = folder, fixed, threading.Lock()
        self._members = list(members)
        self._ratings: dict[int, float | None] = {}  # also of members that were dropped, by their frames
        self._wins: dict[int, float] = {}  # share of recent matches against the newest weights, by the member's frames

    @classmethod
    def read(
        cls,
        folder: Path,
        network: ACNetwork,
        override: GameOverride = NO_OVERRIDE,
        warn: Callable[[str], None] = lambda line: None,
    ) -> League:
        """Reads the strongest members that an earlier session has left in a folder, and removes unfinished files.

        Leaves out files that are damaged, or whose weights are not finite or do not fit the `network`, with a warning.
        `override` is what the run's checkpoints need to be loaded.
        """
        for unfinished in folder.glob(f"{SAVING}*"):  # of a session that was killed while saving
            with contextlib.suppress(OSError):
                unfinished.unlink()
        league = cls(folder)
        league._ratings = _read_ratings(folder.parent / TABLE)
        for path in sorted(folder.glob("*.ckpt")):
            try:
                checkpoint = load(path, override)
                checkpoint.check_finite(path)
                network.load(checkpoint.variables)
            except (UserError, KeyError, ValueError) as error:
                warn(f"warning: {path} is left out of the league: {first_line(error)}")
                continue
            record = checkpoint.record
            league._members.append(Member(record.counters.frames, record.best.score, checkpoint.variables))
            if len(league._members) > SIZE:
                league._members = _leave_out(league._members, league._find_weakest(league._members))
        if league._ratings and not league._members:
            warn(f"warning: {folder} has lost its members: the league begins again with the newest weights")
        return league

    @property
    def last_rating(self) -> float:
        """The newest rating of any present or past member, 0 if there is none."""
        rated = [rating for rating in self._ratings.values() if rating is not None]
        return rated[-1] if rated else 0.0

    def _find_weakest(self, members: Sequence[Member]) -> Member:
        """Returns the member that wins least; of equals, that with the lowest rating."""
        return min(members, key=lambda one: (self._get_wins(one), -np.inf if one.rating is None else one.rating))

    def _get_wins(self, member: Member) -> float:
        return self._wins.get(member.frames, 0.5)

    @property
    def members(self) -> list[Member]:
        """The members, in the order in which they joined."""
        with self._lock:
            return list(self._members)

    def is_due(self, frames: int, budget: int) -> bool:
        """Returns whether a member should join: 1/20 of a run's `budget` has passed since the newest one."""
        newest = max((one.frames for one in self.members), default=0)  # an evaluated one joins late
        return not self._fixed and (frames - newest) * SIZE >= budget

    def add(self, record: RunRecord, rating: float | None, weights: Mapping[str, NDArray[Any]]) -> None:
        """Adds weights with their rating; a full league loses its weakest member.

        Raises:
            OSError: if a file cannot be written; the member still plays in this session.
        """
        if self._fixed:
            return
        member = Member(record.counters.frames, rating, weights)
        with self._lock:
            others = [one for one in self._members if one.frames != member.frames]
            lost = [self._find_weakest(others)] if len(others) >= SIZE else []
            self._members = [*_leave_out(others, *lost), member]
            self.folder.mkdir(parents=True, exist_ok=True)
            save(self._find_path(member), weights, record._replace(best=record.best._replace(score=rating)))
            for one in lost:
                self._find_path(one).unlink(missing_ok=True)
            self._ratings.pop(member.frames, None)
            self._ratings |= {one.frames: one.rating for one in self._members}
            rows = [(at, "" if rating is None else f"{rating:.0f}") for at, rating in self._ratings.items()]
            write_table(self.folder.parent / TABLE, ["frames", "rating"], rows)

    def _find_path(self, member: Member) -> Path:
        return self.folder / f"frames-{member.frames:012}.ckpt"

    def note(self, member: Member, outcome: float) -> None:
        """Counts a member's match against the newest weights; `outcome` is 1 if it has won, 0.5 if drawn, 0 if lost."""
        with self._lock:
            wins = self._get_wins(member)
            self._wins[member.frames] = wins + (outcome - wins) / RECENT

    def draw(self, random: np.random.Generator) -> Member:
        """Draws a member in proportion to its share of wins in recent matches against the newest weights.

        This is prioritized fictitious self-play (Vinyals et al. 2019, doi:10.1038/s41586-019-1724-z, methods).
        """
        with self._lock:
            members = list(self._members)
            odds = np.array([LEAST + self._get_wins(member) for member in members])
        return members[random.choice(len(members), p=odds / odds.sum())]

    def find_strong(self, place: int) -> Member:
        """Returns the member with the `place`-th highest rating, from 0; after the last one it starts over."""
        members = self.members
        rated = [one for one in members if one.rating is not None] or members
        ranked = sorted(rated, key=lambda one: one.rating or 0.0, reverse=True)
        return ranked[place % len(ranked)]
