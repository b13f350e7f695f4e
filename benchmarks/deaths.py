"""Kills engines, game servers, both, and newborn ones, again and again, while training runs.

    python -m benchmarks.deaths --kills 100

One run of train.py on basic is hit `--kills` times in a row, each time after recovering from the last kill, that is, after
another second's worth of frames. It has one worker, so frames advance only while all its games do. The table lists
recovery times by kind of victim; the line below says whether every death was counted. A newborn engine or server has just
replaced a dead one, and is killed within its first 200 ms.
"""

from __future__ import annotations

import itertools
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common.command import make_parser, run_command
from benchmarks.stress.campaigns.games import GAMES
from benchmarks.stress.victims import KINDS, VictimRun, hurt


def main() -> int:
    """Kills, then prints the table."""
    parser = make_parser("deaths", __doc__)
    parser.add_argument("--kills", type=int, default=100, help="number of kills (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="random seed for times and victims (default 0)")
    options, flags = parser.parse_known_args()
    random.seed(options.seed)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    deaths = 0
    with tempfile.TemporaryDirectory() as folder:
        run = VictimRun(Path(folder), flags or GAMES.flags)
        try:
            run.wait_for(lambda: run.progress()["frames"])
            for number, kind in zip(range(options.kills), itertools.cycle(KINDS), strict=False):
                time.sleep(random.uniform(0, 0.3))
                start = time.monotonic()
                deaths += hurt(run, kind)
                before = run.wait_for(lambda deaths=deaths: run.frames_after(deaths))  # type: ignore[misc]  # a default
                run.wait_for(lambda before=before: run.progress()["frames"] > before + 2000)  # type: ignore[misc]  # a default
                seconds[kind].append(time.monotonic() - start)
                print(f"{number + 1} of {options.kills}: {kind}, recovered in {seconds[kind][-1]:.1f} s", file=sys.stderr)
        except TimeoutError:
            print(f"the run did not survive death {deaths}")
        run.process.send_signal(signal.SIGINT)
        try:
            status = str(run.process.wait(60))
        except subprocess.TimeoutExpired:
            status = "none: it had to be killed"
        finally:
            run.process.kill()
        faults = run.progress()["faults"]
    print("| killed | times | s to recover, median | longest |\n|---|---|---|---|")
    for kind, values in seconds.items():
        if values:
            print(f"| {kind} | {len(values)} | {statistics.median(values):.1f} | {max(values):.1f} |")
    survived = sum(map(len, seconds.values())) == options.kills
    print(f"\n{deaths} deaths, {sum(faults.values())} faults counted: {faults}; exit status {status}")
    return 0 if survived else 1


if __name__ == "__main__":
    run_command("deaths", main)
