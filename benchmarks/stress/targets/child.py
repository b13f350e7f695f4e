"""One process of the fuzzer: feeds inputs to a target, guided by the coverage they reach, and counts the outcomes.

The process may die, or be killed: its last input is in `current`, its progress in `counts.json`.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import atheris

from benchmarks.stress.targets.guards import Guard, find_outcome

KEPT = 3  # inputs per finding
LONGEST = 65_536  # bytes of an input
COUNT_EVERY = 1000  # inputs between updates of the written counts, and of the memory limit
HANG_SECONDS = 60  # for a call that no Python code interrupts


class Tally:
    """The outcomes of this process's inputs. Owns the files that record them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._start = folder, time.monotonic()
        self.counts: Counter[str] = Counter()
        self.findings: Counter[str] = Counter()
        (folder / "current").write_bytes(bytes(LONGEST + 8))
        with (folder / "current").open("r+b") as file:
            self._current = mmap.mmap(file.fileno(), 0)  # survives the process

    def begin(self, data: bytes) -> None:
        """Records the input about to be taken."""
        data = data[:LONGEST]
        self._current[: 8 + len(data)] = len(data).to_bytes(8, "little") + data

    def add(self, verdict: str, signature: str, detail: str, data: bytes) -> None:
        """Counts an input; keeps findings."""
        self.counts["inputs"] += 1
        self.counts[verdict] += 1
        if verdict != "finding":
            return
        self.findings[signature] += 1
        if self.findings[signature] <= KEPT:
            keep(self._folder, signature, detail, data)

    def write(self) -> None:
        """Writes the counts."""
        seconds = round(time.monotonic() - self._start, 1)
        part = self._folder / "counts.part"
        part.write_text(json.dumps({**self.counts, "seconds": seconds, "findings": self.findings}))
        part.replace(self._folder / "counts.json")


def keep(folder: Path, signature: str, detail: str, data: bytes) -> None:
    """Keeps an input that is a finding."""
    name = "".join(each if each.isalnum() else "-" for each in signature)[:80]
    for number in range(KEPT):
        path = folder / "findings" / f"{name}-{number}"
        if not path.exists():
            path.write_bytes(data)
            path.with_suffix(".txt").write_text(f"{signature}\n{detail}\n", errors="backslashreplace")
            return


def main(arguments: list[str]) -> None:
    """Runs inputs: `arguments` are target, number of inputs, seed, folder, and 'first' in a target's first process."""
    name, count, seed, folder = arguments[0], int(arguments[1]), int(arguments[2]), Path(arguments[3])
    from doom_a3c.run.imports import import_tensorflow

    import_tensorflow(1, False, "cpu")
    with atheris.instrument_imports(include=["doom_a3c"]):
        from benchmarks.stress.targets.commands import remember_shipped_files
        from benchmarks.stress.targets.mutations import Mutator
        from benchmarks.stress.targets.registry import TARGETS
    inside = folder / "inside"
    os.chdir(inside)
    remember_shipped_files()
    target = TARGETS[name](inside)
    guard, tally = Guard([inside, Path(os.environ["TMPDIR"])], named_by_user=target.named_by_user), Tally(folder)

    def take(data: bytes) -> None:
        tally.begin(data)
        tally.add(*find_outcome(guard, target.take, data), data)
        if tally.counts["inputs"] % COUNT_EVERY == 0:
            tally.write()
            guard.limit_memory()
        if tally.counts["inputs"] >= count:
            tally.write()
            os._exit(0)  # at once: libFuzzer would report a normal exit as a crash

    _learn_good_inputs(target, guard)
    if "first" in arguments:
        for data in target.once():
            take(data)

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        mutator = Mutator(seed, target.words)
        if mutator.chance(0.5):  # good inputs get far; the corpus fills with inputs refused early
            data = target.seeds[seed % len(target.seeds)]
        return target.mutate(mutator, data)[:size]

    for number, data in enumerate(target.seeds):
        (folder / "corpus" / f"seed-{number}").write_bytes(data)
    flags = [f"-seed={seed or random.randrange(1, 2**31)}", f"-max_len={LONGEST}", "-len_control=0", "-rss_limit_mb=0"]
    flags += [
        f"-timeout={HANG_SECONDS}",
        "-verbosity=0",
        "-reload=0",
        "-detect_leaks=0",
        f"-artifact_prefix={folder}/crash-",
    ]
    atheris.Setup(["fuzz", *flags, str(folder / "corpus")], take, custom_mutator=mutate)
    guard.know_modules()
    guard.limit_memory()
    atheris.Fuzz()


def _learn_good_inputs(target: Any, guard: Guard) -> None:
    """Runs the good inputs, which triggers late imports; raises ValueError unless all are accepted."""
    guard.know_modules()
    for data in target.seeds:
        target.take(data)  # unwatched
    results = [find_outcome(guard, target.take, data) for data in target.seeds]
    if any(result.verdict != "accepted" for result in results):
        raise ValueError(f"the target does not accept its good inputs: {results}")
    guard.limit_memory()


if __name__ == "__main__":
    main(sys.argv[1:])
