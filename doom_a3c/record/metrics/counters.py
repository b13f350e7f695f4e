"""The counters of a run as data: a snapshot, the points of its curves, and their checks when they come from a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments
from doom_a3c.settings.fields import parse_finite, parse_int

WINDOW = 100  # episodes in the running mean
MAX_SCORE = 1e100  # a mean of larger ones may overflow
MAX_POINTS = 4000  # of the score curve
KIND = re.compile(r"[a-z][a-z0-9_]{0,39}")  # of a fault
MAX_NUMBERS, MAX_MEAN = 2**53, 1e20  # limits of reward statistics
MAX_KINDS = 100  # of faults; further kinds are counted as "other"


class Point(NamedTuple):
    """One episode on the score curve."""

    episode: int
    frames: int
    score: float
    mean: float | None  # of the last 100 episodes, None before there are 100 and for an episode that enters no mean


class EvaluationPoint(NamedTuple):
    """One evaluation of a run: means and standard deviations of its scores, by policy."""

    frames: int
    greedy: float
    greedy_std: float
    sampled: float
    sampled_std: float

    @property
    def score(self) -> float:
        """The score that chooses the best: the mean of the better policy, biased upwards by taking the higher of two."""
        return max(self.greedy, self.sampled)


class Counters(NamedTuple):
    """A snapshot of all counters of a run."""

    frames: int
    steps: int
    updates: int
    episodes: int
    faults: Mapping[str, int]  # survived so far, by kind
    scores: Sequence[float]  # of the newest episodes, 100 at most
    curve: Sequence[Point]
    stride: int  # episodes between points of the curve
    reward_sums: RunningMoments = NO_MOMENTS  # see RolloutStats
    halvings: int = 0  # of the learning rate, one for each roll-back while learning this game
    lengths: Sequence[int] = ()  # steps of the newest episodes, 100 at most
    counted: int = 0  # episodes that have entered means; the other finished ones are on the curve without a mean

    @property
    def mean_score(self) -> float | None:
        """Mean score of the last 100 episodes, None before there are 100."""
        return compute_mean(self.scores)


def compute_mean(scores: Sequence[float]) -> float | None:
    """Returns the mean of the last 100 scores, None if there are fewer."""
    return sum(scores) / WINDOW if len(scores) == WINDOW else None


def to_plain(counters: Counters) -> dict[str, Any]:
    """Returns counters as plain data, for JSON and for messages."""
    return {
        **counters._asdict(),
        "curve": [list(point) for point in counters.curve],
        "reward_sums": list(counters.reward_sums),
    }


def from_plain(data: Mapping[str, Any]) -> Counters:
    """Returns the counters of `to_plain`; raises KeyError, TypeError or ValueError for any other data."""
    lengths = data.get("lengths", ())  # older checkpoints have none
    if max(len(data["scores"]), len(lengths)) > WINDOW or len(data["curve"]) > MAX_POINTS:
        raise ValueError("there are too many scores")
    numbers = {name: parse_int(data[name], name) for name in ("frames", "steps", "updates", "episodes")}
    return Counters(
        **numbers,
        faults=_parse_faults(data["faults"]),
        scores=[_parse_score(score) for score in data["scores"]],
        curve=[_parse_point(*point) for point in data["curve"]],
        stride=parse_int(data["stride"], "stride", low=1),
        reward_sums=parse_moments(data["reward_sums"], numbers["steps"]),
        halvings=parse_int(data["halvings"], "halvings"),
        lengths=[parse_int(length, "a length") for length in lengths],
        counted=parse_int(data.get("counted", numbers["episodes"]), "counted"),
    )


def parse_moments(numbers: Iterable[object], most: int = MAX_NUMBERS) -> RunningMoments:
    """Returns the moments of at most `most` numbers from plain data; raises TypeError or ValueError if they are invalid.

    The limits keep the moments finite, however large the later rewards are.
    """
    size, mean, m2 = numbers
    moments = RunningMoments(
        parse_int(size, "a count", high=most), parse_finite(mean, "a mean"), parse_finite(m2, "a spread")
    )
    if not (abs(moments.mean) <= MAX_MEAN and 0 <= moments.m2 <= MAX_SCORE):
        raise ValueError(f"a spread is {m2}, around {mean}")
    return moments


def _parse_score(value: object) -> float:
    score = parse_finite(value, "a score")
    if abs(score) > MAX_SCORE:
        raise ValueError(f"a score is {score}")
    return score


def _parse_faults(counts: Mapping[str, object]) -> dict[str, int]:
    if len(counts) > MAX_KINDS + 1 or not all(KIND.fullmatch(kind) for kind in counts):
        raise ValueError("unknown kinds of faults")
    return {kind: parse_int(count, "faults") for kind, count in counts.items()}


def parse_evaluation(frames: object, *numbers: object) -> EvaluationPoint:
    """Returns an evaluation from its numbers; raises TypeError or ValueError if they are invalid."""
    point = EvaluationPoint(parse_int(frames, "frames"), *map(_parse_score, numbers))
    if point.greedy_std < 0 or point.sampled_std < 0:
        raise ValueError("a standard deviation is below 0")
    return point


def _parse_point(episode: object, frames: object, score: object, mean: object) -> Point:
    known = None if mean is None else _parse_score(mean)
    return Point(parse_int(episode, "episode"), parse_int(frames, "frames"), _parse_score(score), known)
