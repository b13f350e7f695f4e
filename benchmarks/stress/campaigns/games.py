"""Game faults in a run of basic or duel: engines, game servers and their keeper killed or stopped, newborn ones too."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from typing import NamedTuple

from benchmarks.common.processes import engines, family, kill, parent
from benchmarks.stress.campaigns.runs import Event, Results, make_folder
from benchmarks.stress.victims import KINDS, VictimRun, hurt


class Campaign(NamedTuple):
    """A run to break."""

    name: str
    flags: list[str]
    players: int = 1  # of a match, whose end is one fault


GAMES = Campaign("game faults in one run", ["--workers", "1", "--envs-per-worker", "8", "--game-processes", "2"])
MATCHES = Campaign("faults in matches", ["--scenario", "duel", "--workers", "1", "--envs-per-worker", "4"], 2)
UNIT = "faults that were not counted"
CYCLE = (
    *KINDS[:2] * 4,
    *KINDS[2:] * 2,
    "engine hangs",
    "engine stalls",
    "server stalls",
    "engine hangs",
    "server hangs",
    "keeper",
)
STALL_SECONDS = 2.0  # not a fault: the patience is 8 s for engines, 20 s for servers


def run_campaign(results: Results, campaign: Campaign, faults: int, seed: int) -> None:
    """Breaks a run until there are `faults` events; starts another if one does not survive."""
    while (done := len(results.of(campaign.name))) < faults:
        random.seed(f"{seed}-{done}")
        with make_folder() as folder:
            run = VictimRun(folder, campaign.flags)
            try:
                hurt_again_and_again(run, results, campaign, faults)
            finally:
                end(run)


def hurt_again_and_again(run: VictimRun, results: Results, campaign: Campaign, faults: int) -> None:
    """Breaks a run until its campaign has `faults` events or the run does not survive."""
    counted = 0
    run.wait_for(lambda: run.progress()["frames"])
    for kind in itertools.islice(itertools.cycle(CYCLE), len(results.of(campaign.name)), faults):
        time.sleep(random.uniform(0, 0.3))
        before, start = int(run.progress()["frames"]), time.monotonic()
        try:
            counted += hurt(run, kind) if kind in KINDS else stop(run, kind, campaign.players)
            seconds = wait_for_recovery(run, before, counted, start)
        except TimeoutError:
            alive = run.process.poll() is None
            why = "no progress, or fault not counted" if alive else f"exit status {run.process.returncode}"
            results.add(Event(campaign.name, kind, False, None, None, why))
            return
        counted = sum(run.progress()["faults"].values())  # a death may be two faults: its engine's and its server's
        results.add(Event(campaign.name, kind, True, None, seconds))


def wait_for_recovery(run: VictimRun, before: int, counted: int, start: float) -> float:
    """Waits until faults are counted and frames advance; returns the seconds since the fault.

    Raises:
        TimeoutError: if they never do, or frames go backwards.
    """
    frames = run.wait_for(lambda: run.frames_after(counted))
    if frames < before:
        raise TimeoutError
    run.wait_for(lambda: run.progress()["frames"] > frames + 2000)
    return time.monotonic() - start


def stop(run: VictimRun, kind: str, players_of_match: int) -> int:
    """Stops a victim for good or for a while, or kills the fork server and its servers; returns the number of faults."""
    trainer = run.process.pid
    if kind == "keeper":
        players = run.wait_for(lambda: {its for pid in engines(trainer) if (its := parent(pid))})  # not an idle evaluator's
        kill(parent(min(players)))
        run.wait_for(lambda: not players & family(trainer))
        for server in players:  # they outlive it as orphans, and another fork server has to clean up after them
            kill(server)
        return len(players) // players_of_match
    pairs = run.wait_for(lambda: [(pid, its) for pid in engines(trainer) if (its := parent(pid))])
    victim = random.choice(pairs)[kind.startswith("server")]  # a server without engines is idle, and may stop unnoticed
    kill(victim, signal.SIGSTOP)
    if kind.endswith("hangs"):
        return 1
    time.sleep(STALL_SECONDS)
    kill(victim, signal.SIGCONT)
    return 0


def end(run: VictimRun) -> None:
    """Ends a run and all it started, stopped processes too."""
    others = family(run.process.pid)
    run.process.kill()
    run.process.wait()
    for pid in others:
        if os.path.exists(f"/proc/{pid}"):
            kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 15
    while (left := [pid for pid in others if parent(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        kill(pid)
