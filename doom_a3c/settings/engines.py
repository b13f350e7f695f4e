"""Settings of single engines."""

from __future__ import annotations

from dataclasses import dataclass

from doom_a3c.settings.fields import setting
from doom_a3c.settings.setting import CLUSTER, GRADIENTS, OF_CLUSTER, OF_QUEUE, QUEUE, WAITING


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """Settings of --engine queue."""

    predictors: int = setting(
        1, "Threads that run the network for the games", unit="threads", low=1, high=64, goes_with=QUEUE, section=OF_QUEUE
    )
    trainers: int = setting(
        1, "Threads that learn from rollouts", unit="threads", low=1, high=64, goes_with=QUEUE, section=OF_QUEUE
    )
    min_batch: int = setting(
        1,
        "Steps that a trainer waits for before an update",
        unit="steps",
        low=1,
        high=2**20,
        goes_with=WAITING,
        section=OF_QUEUE,
    )
    max_batch: int = setting(
        1024,
        "Maximum steps per update, unless a single rollout has more",
        unit="steps",
        low=1,
        goes_with=WAITING,
        section=OF_QUEUE,
    )
    queue_size: int = setting(
        4,
        "Rollouts that may wait for a trainer before the games pause",
        unit="rollouts",
        low=1,
        high=4096,
        goes_with=WAITING,
        section=OF_QUEUE,
    )


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Settings of --engine cluster."""

    address: str | None = setting(
        None,
        "MACHINE:PORT of a Ray cluster; unset starts one on this machine and ends it afterwards",
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    hosts: int = setting(
        1,
        "Host processes per machine, each with its own workers",
        unit="hosts",
        low=1,
        high=256,
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    transport: str = setting(
        "gradients",
        "Hosts send gradients (A3C), or rollouts, from which the server learns with V-trace",
        choices=("gradients", "rollouts"),
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    push_rollouts: int = setting(
        1,
        "Rollouts whose gradients a host sums before it sends them",
        unit="rollouts",
        low=1,
        high=4096,
        goes_with=GRADIENTS,
        section=OF_CLUSTER,
    )
    max_policy_lag: int = setting(
        100,
        "Largest policy lag of a push that is still learned from: updates since its oldest weights",
        unit="updates",
        low=0,
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
