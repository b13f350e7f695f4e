"""The hosts of a run, as known to its parameter server: which process may push under each name, and its last push."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from doom_a3c.engines.cluster.messages import Verdict, is_count

MAX_REFUSED = 3  # refused pushes of a host, after which it is fenced off
Numbers = tuple[int, int, int]  # generation, newest sequence number, refused pushes


@dataclasses.dataclass
class Member:
    """The process that may push under a host's name."""

    generation: int
    sequence: int = 0  # number of its newest push
    refused: int = 0  # consecutive refused pushes


class Members:
    """The current process under each name. The driver numbers the processes of a run with increasing generations."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def __getitem__(self, host: str) -> Member:
        return self._members[host]

    def enroll(self, hosts: Mapping[str, int]) -> None:
        """Registers the generation of each host; ignores late calls with generations older than the known ones."""
        for host, generation in hosts.items():
            if host not in self._members or generation > self._members[host].generation:
                self._members[host] = Member(generation)

    def restore(self, numbers: Mapping[str, Numbers]) -> None:
        """Restores the numbers from an earlier server, for processes that still have the same generation."""
        for host, known in numbers.items():
            if host in self._members and self._members[host].generation == known[0]:
                self._members[host] = Member(*known)

    def to_plain(self) -> dict[str, Numbers]:
        """Returns the numbers of all hosts, for `restore`."""
        return {host: (one.generation, one.sequence, one.refused) for host, one in self._members.items()}

    def check_push(self, host: object, generation: object) -> Verdict | None:
        """Returns the verdict on a process that must not push now, None if it may push."""
        if not (isinstance(host, str) and isinstance(generation, int) and is_count(generation)):
            return "fenced"
        member = self._members.get(host)
        if member is None or generation > member.generation:
            return "wait"
        return "fenced" if generation < member.generation or member.refused >= MAX_REFUSED else None
