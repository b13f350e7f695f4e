"""The messages between processes of the cluster engine: words, numbers and arrays, never an object of this package.

The table at the top of `server` explains the verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from doom_a3c.agent.model import Snapshot, Vector  # with TensorFlow, which a process of the cluster sets up first

Settings = dict[str, Any]  # of a run, as plain data
Verdict = Literal["joined", "applied", "duplicate", "stale", "refused", "full", "wait", "fenced", "done"]
MAX_GIF_BYTES = 32 * 2**20  # of a recording that travels


class GifMessage(TypedDict):
    """A recorded episode: the fields of a `Gif`, its bytes as an array, which Ray need not copy."""

    data: NDArray[np.uint8]
    height: int
    width: int
    score: float
    episode: int
    worker: int


class Push(TypedDict):
    """Steps that a host has played, and gradients of them or the rollout itself."""

    version: int  # the oldest weights that had a part in it, as a number of updates
    steps: int  # played
    frames: int  # played
    episodes: list[tuple[Any, ...]]  # the numbers of every finished `Episode`
    faults: list[str]  # the kinds of the faults met
    reward_sums: list[float]  # the `RunningMoments` of `RolloutStats`
    gradients: Vector | None  # transport `gradients`: their sum, None where none were finite
    not_finite: int  # transport `gradients`: how many were left out of the sum
    metrics: dict[str, float]  # the `LearnerMetrics` of the newest update; empty without gradients
    push_seconds: float  # from sending the last push until its answer came
    rollout: dict[str, Any] | None  # transport `rollouts`: the arrays of a `Rollout` by field
    gifs: list[GifMessage]  # one at most


class _Judged(TypedDict):
    verdict: Verdict


class Answer(_Judged, total=False):
    """The server's answer to a join or a push; the verdict alone where the host has nothing to take over."""

    reason: str  # why the push was refused, where it was
    weights: Vector | None  # None where the host has them
    version: int  # of the weights
    frames: int  # played by the whole run
    reward_sums: list[float]  # the `RunningMoments` of the whole run


class ServerState(TypedDict):
    """Everything that a restarted server resumes from."""

    variables: Snapshot
    counters: dict[str, Any]  # of `Progress`, plain
    members: dict[str, tuple[int, int, int]]  # of each host: generation, newest sequence number, pushes refused


class ServerStatus(TypedDict):
    """The state of the run that the driver polls twice a second."""

    ready: bool
    over: bool
    error: str | None
    diverged: bool
    counters: dict[str, Any]  # of `Progress`, plain, without the curve
    entropy: float  # of the newest update
    lag: int  # of the newest update
    hosts: dict[str, dict[str, Any]]  # each one's `Tally`
    lags: list[int]  # policy lags of the pushes since the last status
    gifs: list[GifMessage]  # since the last status
    refusals: list[str]  # pushes refused since the last status, and why


class Server(Protocol):
    """The parameter server as hosts and driver see it. Every method of a remote one may raise UnreachableError."""

    def start(self, state: ServerState, hosts: dict[str, int]) -> None:
        """Enrolls hosts, and begins with a state unless the server has begun before."""

    def enroll(self, hosts: dict[str, int]) -> None:
        """Registers the generation of each host; processes of older ones are fenced off from now on."""

    def join(self, host: str, generation: int) -> Answer:
        """Returns the weights that a host begins with."""

    def push(self, host: str, generation: int, sequence: int, push: Push, known_version: int) -> Answer:
        """Counts and learns from what a host has played; returns the weights unless they are those of `known_version`."""

    def add_fault(self, kind: str) -> None:
        """Counts a fault that the run has survived."""

    def status(self) -> ServerStatus:
        """Returns what the driver shows; lags, gifs and refusals only once."""

    def state(self) -> ServerState | None:
        """Returns everything that a restarted server resumes from, None before the start."""

    def stop(self) -> None:
        """Answers `done` from now on; returns when the update under way is complete."""


class UnreachableError(Exception):
    """No answer has come; the call may or may not have reached the server."""


def size(message: Any) -> int:
    """Returns the bytes of all arrays in a message."""
    if isinstance(message, dict):
        return sum(size(value) for value in message.values())
    if isinstance(message, list | tuple):
        return sum(size(value) for value in message)
    return int(getattr(message, "nbytes", 0))
