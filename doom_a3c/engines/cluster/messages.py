"""The messages between processes of the cluster engine: text, numbers and arrays, never objects of this package.

The table at the top of `server` explains the verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from doom_a3c.agent.model import Snapshot, Vector  # these import TensorFlow, which each process sets up first

Settings = dict[str, Any]  # of a run, as plain data
Verdict = Literal["joined", "applied", "duplicate", "stale", "refused", "full", "wait", "fenced", "done"]
MAX_GIF_BYTES = 32 * 2**20  # of a recording that is sent
MAX_COUNT = 2**53 - 1  # floats and JSON keep counts up to here exactly


class GifMessage(TypedDict):
    """A recorded episode: the fields of a `Gif`, with its bytes as an array, which Ray does not copy."""

    data: NDArray[np.uint8]
    height: int
    width: int
    score: float
    episode: int
    worker: int


class Push(TypedDict):
    """Steps played by a host, with their gradients or the rollout itself."""

    version: int  # of the oldest weights behind it
    steps: int
    frames: int
    episodes: list[tuple[float, int, float, int, float]]  # the fields of each finished `Episode`
    faults: list[str]  # the kind of each
    reward_sums: list[float]  # the `RunningMoments` of `RolloutStats`
    gradients: Vector | None  # transport `gradients`: their sum; None if none were finite
    not_finite: int  # transport `gradients`: number of gradients left out of the sum
    metrics: dict[str, float]  # the `LearnerMetrics` of the newest update; empty without gradients
    push_seconds: float  # from the last push to its answer
    rollout: dict[str, Any] | None  # transport `rollouts`: the arrays of a `Rollout` by field
    gifs: list[GifMessage]  # at most one


class _Judged(TypedDict):
    verdict: Verdict


class Answer(_Judged, total=False):
    """The server's answer to a join or a push; only the verdict if there is nothing for the host to update."""

    reason: str  # why a push was refused
    weights: Vector | None  # None if the host has them already
    version: int  # of the weights
    frames: int  # of the whole run
    reward_sums: list[float]  # the `RunningMoments` of the whole run


class ServerState(TypedDict):
    """The complete state from which a restarted server resumes."""

    variables: Snapshot
    counters: dict[str, Any]  # of `Progress`, plain
    members: dict[str, tuple[int, int, int]]  # by host: generation, newest sequence number, refused pushes


class ServerStatus(TypedDict):
    """The status of the run; the driver polls it twice a second."""

    ready: bool
    over: bool
    error: str | None
    diverged: bool
    counters: dict[str, Any]  # of `Progress`, plain, without the curve
    entropy: float  # of the newest update
    lag: int  # of the newest update
    hosts: dict[str, dict[str, Any]]  # the `Tally` of each
    lags: list[int]  # policy lags of the pushes since the last status
    gifs: list[GifMessage]  # since the last status
    refusals: list[str]  # messages about refused pushes since the last status


class Server(Protocol):
    """The parameter server's interface for hosts and driver. Every method of a remote one may raise UnreachableError."""

    def start(self, state: ServerState, hosts: dict[str, int]) -> None:
        """Enrolls hosts, and starts from a state unless the server has started already."""

    def enroll(self, hosts: dict[str, int]) -> None:
        """Registers the generation of each host; fences off processes of older generations."""

    def join(self, host: str, generation: int) -> Answer:
        """Returns the current weights to a new host."""

    def push(self, host: str, generation: int, sequence: int, push: Push, known_version: int) -> Answer:
        """Counts a push and learns from it; returns the weights unless their version is `known_version`."""

    def add_fault(self, kind: str) -> None:
        """Counts a fault survived by the run."""

    def status(self) -> ServerStatus:
        """Returns the status for the driver; each lag, gif and refusal only once."""

    def state(self) -> ServerState | None:
        """Returns the complete state for a restart, None before the start."""

    def stop(self) -> None:
        """Answers `done` from now on; returns once the current update is complete."""


class UnreachableError(Exception):
    """No answer arrived; the call may or may not have reached the server."""


def is_count(value: object) -> bool:
    """Returns whether `value` is an integer in the range of the counters."""
    return type(value) is int and 0 <= value <= MAX_COUNT


def count_bytes(message: object) -> int:
    """Returns the total bytes of all arrays in a message."""
    if isinstance(message, dict):
        return sum(count_bytes(value) for value in message.values())
    if isinstance(message, list | tuple):
        return sum(count_bytes(value) for value in message)
    return int(getattr(message, "nbytes", 0))
