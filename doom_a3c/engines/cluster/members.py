"""The hosts of a run as its parameter server knows them: which process of each may push, and what has come from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from doom_a3c.engines.cluster.messages import Verdict
from doom_a3c.engines.cluster.validation import is_count

MAX_REFUSED = 3  # pushes of a host, until it is fenced off
Numbers = tuple[int, int, int]  # generation, newest sequence number, pushes refused


@dataclasses.dataclass
class Member:
    """A host whose pushes count."""

    generation: int  # of the one process that plays under its name
    sequence: int = 0  # of its newest push
    refused: int = 0  # pushes


class Members:
    """Who plays under each name. The driver says so; a number that it gives a process is larger than all before."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def __getitem__(self, host: str) -> Member:
        return self._members[host]

    def enroll(self, hosts: Mapping[str, int]) -> None:
        """Takes in the generation of each host; what is older than known ones has been overtaken by a later word."""
        for host, generation in hosts.items():
            if host not in self._members or generation > self._members[host].generation:
                self._members[host] = Member(generation)

    def restore(self, numbers: Mapping[str, Numbers]) -> None:
        """Takes in what another server knew of the processes that still play."""
        for host, known in numbers.items():
            if host in self._members and self._members[host].generation == known[0]:
                self._members[host] = Member(*known)

    def numbers(self) -> dict[str, Numbers]:
        """Returns what is known of all hosts, for `restore`."""
        return {host: (one.generation, one.sequence, one.refused) for host, one in self._members.items()}

    def barred(self, host: object, generation: object) -> Verdict | None:
        """Returns what those are told whose pushes do not count now, None where this process's do."""
        if not (isinstance(host, str) and isinstance(generation, int) and is_count(generation)):
            return "fenced"
        member = self._members.get(host)
        if member is None or generation > member.generation:
            return "wait"
        return "fenced" if generation < member.generation or member.refused >= MAX_REFUSED else None
