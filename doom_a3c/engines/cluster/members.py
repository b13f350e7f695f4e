"""The hosts of a run as its parameter server knows them: the process of each that may push, and its newest push."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from doom_a3c.engines.cluster.messages import Verdict
from doom_a3c.engines.cluster.validation import is_count

MAX_REFUSED = 3  # pushes of a host, until it is fenced off
Numbers = tuple[int, int, int]  # generation, newest sequence number, pushes refused


@dataclasses.dataclass
class Member:
    """The process of a host that may push."""

    generation: int  # of the one process that plays under its name
    sequence: int = 0  # of its newest push
    refused: int = 0  # pushes


class Members:
    """The process that plays under each name. The driver numbers processes; each number is larger than all before."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def __getitem__(self, host: str) -> Member:
        return self._members[host]

    def enroll(self, hosts: Mapping[str, int]) -> None:
        """Registers the generation of each host; older ones than known arrive late and change nothing."""
        for host, generation in hosts.items():
            if host not in self._members or generation > self._members[host].generation:
                self._members[host] = Member(generation)

    def restore(self, numbers: Mapping[str, Numbers]) -> None:
        """Takes over the numbers that another server had for the processes that still play."""
        for host, known in numbers.items():
            if host in self._members and self._members[host].generation == known[0]:
                self._members[host] = Member(*known)

    def to_plain(self) -> dict[str, Numbers]:
        """Returns the numbers of all hosts, for `restore`."""
        return {host: (one.generation, one.sequence, one.refused) for host, one in self._members.items()}

    def check_push(self, host: object, generation: object) -> Verdict | None:
        """Returns the verdict on pushes of a process that may not push now, None for one that may."""
        if not (isinstance(host, str) and isinstance(generation, int) and is_count(generation)):
            return "fenced"
        member = self._members.get(host)
        if member is None or generation > member.generation:
            return "wait"
        return "fenced" if generation < member.generation or member.refused >= MAX_REFUSED else None
