"""Kill -9 of train.py at random moments, each followed by --resume; everything announced must still be there."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.processes import engines, family, kill, left_over, until
from benchmarks.common.records import check_whole
from benchmarks.stress.campaigns.runs import (
    Announced,
    Count,
    Event,
    Results,
    Run,
    make_folder,
    read_count,
    read_record_if_any,
    start_run,
)

CAMPAIGN = "kill -9 of train.py"
UNIT = "s since the last checkpoint, or the start"
LIVES = 20  # kills per run; then another starts, as a run that has mastered its game announces no new best
DOOM_EVERY = 5  # every fifth run plays ViZDoom's basic, with engines and servers to clean up
LONGEST = 12.0  # seconds of training before a kill
ROUNDING = 0.006  # scores are printed with two decimals, above 10 with one
KINDS = ("start", "save", "evaluation", "any")
CARTPOLE = ["--scenario", "cartpole", "--envs-per-worker", "4", "--learning-rate-frames", "1000000000"]
DOOM = ["--scenario", "basic", "--envs-per-worker", "4", "--rollout-length", "8"]


class Promised(NamedTuple):
    """The results that a run's sessions have announced or saved so far."""

    best: Announced | None = None
    last: Count = Count()  # of the newest checkpoint


def run_campaign(results: Results, kills: int, seed: int) -> None:
    """Kills runs until there are `kills` events."""
    while (done := len(results.of(CAMPAIGN))) < kills:
        doom = done // LIVES % DOOM_EVERY == DOOM_EVERY - 1
        with make_folder() as folder:
            kill_one_run(results, folder, doom, min(LIVES, kills - done), random.Random(f"{seed}-{done}"))


def kill_one_run(results: Results, folder: Path, doom: bool, kills: int, chance: random.Random) -> None:
    """Kills one run again and again, resuming it each time; stops if it does not survive."""
    (folder / "models").mkdir()
    promised, fault, lost = Promised(), "", 0.0
    for number in range(kills + 1):
        kind = chance.choice(KINDS) if number < kills else "end"
        with start_run(folder, make_flags(folder, doom, chance)) as run:
            before = promised
            try:
                seconds = None if kind == "start" else wait_for_progress(run, before)
                if kind == "start":
                    time.sleep(chance.uniform(0, 6))  # it may be training already
                elif number < kills:
                    wait_for_instant(run, kind, chance)
                if number < kills:
                    promised, next_lost = kill_and_check(run, promised)
            except (TimeoutError, ValueError) as error:
                if number == 0:
                    raise RuntimeError(f"train.py does not start: {error}") from None
                results.add(Event(CAMPAIGN, fault, False, lost, None, str(error)))
                return
        if number:
            results.add(Event(CAMPAIGN, fault, True, lost, seconds))
        if number < kills:
            fault, lost = f"{'basic' if doom else 'cartpole'}, {kind}", next_lost


def make_flags(folder: Path, doom: bool, chance: random.Random) -> list[str]:
    """Returns the flags of a session: resumed if there is a checkpoint, with random saving intervals."""
    often = ["--checkpoint-every", str(chance.choice((0.2, 1, 4))), "--evaluate-every", str(chance.choice((0.2, 1)))]
    both = ["--workers", "1", "--evaluation-episodes", "2", "--frames", str(10**9), "--gif-every", "0", "--minutes", "20"]
    resume = ["--resume"] if (folder / "models" / "last.ckpt").exists() else DOOM if doom else CARTPOLE
    return [*resume, *often, *both]


def wait_for_progress(run: Run, promised: Promised) -> float:
    """Waits until a session has saved new progress; returns the seconds since its start.

    Raises:
        TimeoutError: if it never does.
        ValueError: if a checkpoint falls behind the promised one meanwhile.
    """

    def newer() -> bool:
        now = read_count(run.last)
        if behind := now.behind(promised.last):
            raise ValueError(f"last.ckpt went back: {behind}")
        return now.frames > max(0, promised.last.frames)

    run.wait_for(newer)
    return time.monotonic() - run.start


def wait_for_instant(run: Run, kind: str, chance: random.Random) -> None:
    """Waits for a moment of a kind, which may be a little early or late."""
    if kind == "save":
        run.wait_for(lambda: any(run.last.parent.glob(".saving-*")), 20)
        time.sleep(chance.uniform(0, 0.04))
    elif kind == "evaluation":
        known = len(run.announced())
        with contextlib.suppress(TimeoutError):  # there may be no better one
            run.wait_for(lambda: len(run.announced()) > known, 5)
        time.sleep(chance.choice((0.0, chance.uniform(0, 0.5))))
    else:
        time.sleep(chance.uniform(0, LONGEST))


def kill_and_check(run: Run, promised: Promised) -> tuple[Promised, float]:
    """Kills a session and checks its remains; returns the promises by now, and the seconds of play lost.

    Raises:
        ValueError: if anything is worse or older than promised, or left behind.
    """
    if run.process.poll() is not None:
        raise ValueError(f"train.py exited with status {run.process.returncode}: {run.last_words()}")
    started_others, instances = family(run.process.pid), engines(run.process.pid).values()
    seen = read_count(run.last)
    if behind := seen.behind(promised.last):
        raise ValueError(f"last.ckpt went back: {behind}")
    kill(run.process.pid)
    run.process.wait()
    if not until(lambda: not left_over(started_others, instances), 15):
        raise ValueError(f"left behind: {left_over(started_others, instances)}")
    bests = [*([promised.best] if promised.best else []), *run.announced()]
    now = Promised(bests[-1] if bests else None, seen)
    check(run, now, max((each.score for each in bests), default=None))
    saved = run.last.stat().st_mtime if run.last.exists() else None
    lost = time.monotonic() - run.start if saved is None else max(0.0, time.time() - saved)
    return now._replace(last=read_count(run.last)), min(lost, time.monotonic() - run.start)


def check(run: Run, promised: Promised, highest: float | None) -> None:
    """Raises ValueError if the checkpoints are worse or older than promised."""
    check_whole(run.last)
    check_whole(run.best)
    last, best = read_count(run.last), read_record_if_any(run.best)
    if behind := last.behind(promised.last):
        raise ValueError(f"last.ckpt went back: {behind}")
    if promised.best is None or highest is None:
        return
    if best is None:
        raise ValueError("best.ckpt is gone")
    if last.frames < 0:
        raise ValueError("a best evaluation was announced, but there is no last.ckpt to resume")
    rounding = ROUNDING if abs(highest) < 10 else 10 * ROUNDING
    if best["best_evaluation"] < highest - rounding:
        raise ValueError(f"best.ckpt scores {best['best_evaluation']}, {highest} had been announced")
    if best["progress"]["frames"] < promised.best.frames:
        raise ValueError(
            f"best.ckpt is of {best['progress']['frames']:,} frames, {promised.best.frames:,} had been announced"
        )
