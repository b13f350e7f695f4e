"""What the processes of the cluster engine send each other: words, numbers and arrays, never an object of this package."""

from __future__ import annotations

from typing import Any, TypedDict

from doom_a3c.model import Snapshot, Vector

Settings = dict[str, Any]  # all that a server or a host is made from


class Push(TypedDict):
    """What a host has played, and what its workers have learned from it."""

    version: int  # the oldest weights that had a part in it, as a number of updates
    steps: int  # decisions played
    episodes: list[tuple[Any, ...]]  # the numbers of every finished `Episode`
    faults: list[str]  # the kinds of the engine faults met
    gradients: Vector | None  # transport `gradients`: their sum, None where none were finite
    not_finite: int  # transport `gradients`: how many were left out of the sum
    metrics: dict[str, float]  # the newest losses by TensorBoard tag
    rollout: dict[str, Any] | None  # transport `rollouts`: the arrays of a `Rollout` by field
    gifs: list[dict[str, Any]]  # films of finished episodes, one at most: the fields of a `Gif`, its data as uint8


class _Verdict(TypedDict):
    verdict: str  # the table at the top of server.py


class Answer(_Verdict, total=False):
    """What the server answers to a join or a push. All but the verdict is there where the host is to take it over."""

    generation: int  # `joined` only
    weights: Vector | None  # None where the host has them
    version: int  # of the weights
    frames: int  # played by the whole run


class ServerState(TypedDict):
    """Everything that a restarted server goes on from."""

    variables: Snapshot
    progress: dict[str, Any]  # `Progress.record`
    members: dict[str, tuple[int, int]]  # generation and newest sequence number of each host


class Status(TypedDict):
    """What the driver asks the server for, twice a second."""

    ready: bool
    over: bool
    error: str | None
    diverged: bool
    progress: dict[str, Any]  # `Progress.status`
    hosts: dict[str, dict[str, Any]]  # each one's `Tally`
    lags: list[int]  # staleness of the pushes since the last status
    gifs: list[dict[str, Any]]  # since the last status


def size(message: Any) -> int:
    """Returns the bytes of all arrays in a message."""
    if isinstance(message, dict):
        return sum(size(value) for value in message.values())
    if isinstance(message, list | tuple):
        return sum(size(value) for value in message)
    return int(getattr(message, "nbytes", 0))
