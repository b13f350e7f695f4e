"""Trains on games, one after another, and writes the results: a table, curves and films.

    python -m benchmarks.learning                           # the whole plan, about twelve hours on two cores
    python -m benchmarks.learning basic pong --seeds 1      # a subset
    python -m benchmarks.learning --share 0.1               # a tenth of each game's frames, and the pages
    python -m benchmarks.learning --pages                   # only rewrite the pages from finished runs

A run is `train.py` with the game's own file, a seed and a number of frames: the plan's minutes, converted on every machine
at 700,000 frames per minute for Doom, 900,000 for Atari, 1,200,000 for cartpole and 100,000 for continuous actions. The
same command resumes an interrupted run; a finished one is a line of docs/results/learned.jsonl and is not repeated with
the same number of frames, unless its line and folder are removed, for instance after its settings changed. Its best
checkpoint then plays episodes unseen in training with both policies; the one the checkpoint names counts. The pages show
the longest run of each game and seed (the newest of equals): docs/results/learned.md, a curve per game in the folder
beside it, and films in docs/scenarios, shown by docs/scenarios.md.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import learned, results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.films import make_film, write_four_in_one
from benchmarks.common.learned import (
    FIRST_SEED,
    PLANS,
    Learned,
    film_path,
    find_best,
    read_learned,
    select_shown_trainings,
    training_folder,
)
from benchmarks.common.paths import PAGES, ROOT
from benchmarks.common.trainings import (
    INTERVALS,
    format_mean,
    play,
    play_episodes,
    read_commit,
    read_counters,
    read_policy,
    run,
)
from doom_a3c.record.metrics.figures import draw_runs, save_png
from doom_a3c.record.metrics.statistics import format_score

FILMS = ROOT / "docs" / "scenarios"
CURVES = PAGES / "learned"
POINTS = 200  # kept per curve


def learn(game: str, seed: int, frames: int, episodes: int, folder: Path) -> Learned:
    """Trains in a folder, from scratch or resuming, then plays episodes."""
    start, before = time.monotonic(), folder / "seconds.txt"
    folder.mkdir(parents=True, exist_ok=True)
    ended = folder / "ended"  # exists once training has ended by itself, after its last evaluation
    try:
        if not ended.exists():
            flags, budget = ["--scenario", game, "--seed", seed], frames
            if (folder / "models" / "last.ckpt").exists():  # cut off, perhaps in that evaluation: one more rollout
                flags, budget = ["--resume"], max(frames, read_counters(folder)["frames"] + 1)
            run(folder, "train.py", *flags, "--frames", budget)
            ended.touch()
    finally:
        with before.open("a") as file:
            file.write(f"{time.monotonic() - start:.1f}\n")
    best = folder / "models" / "best.ckpt"
    scores = play_episodes(best, folder, episodes, FIRST_SEED)
    filmed = play(best, folder, {"filmed": ("--episodes", 3, "--record-episodes", 3, "--random-episodes", 20)})["filmed"]
    progress = read_counters(folder)
    points = [(at, mean) for _, at, _, mean in progress["curve"] if mean is not None]
    return Learned(
        game=game,
        seed=seed,
        budget=frames,
        frames=progress["frames"],
        minutes=round(sum(map(float, before.read_text().split())) / 60, 1),
        commit=read_commit(),
        **scores,
        random=statistics.mean(filmed["random_scores"]) if filmed["random_scores"] else None,
        curve=points[:: -(-len(points) // POINTS) or 1],
        policy=read_policy(best),
    )


def write_pages(work: Path) -> None:
    """Writes the table, the curves, and the films of trainings on this machine."""
    found = select_shown_trainings()
    games = [game for game in PLANS if any(one.game == game for one in found)]
    for game in games:
        runs = [one for one in found if one.game == game]
        curves = [([at for at, _ in one.curve], [mean for _, mean in one.curve]) for one in runs if len(one.curve) > 1]
        if curves:
            save_png(draw_runs({game: {game: curves}}), CURVES / f"{game}.png")
        if (best := find_best(one for one in runs if film_path(work, one).exists())) is not None:
            FILMS.mkdir(exist_ok=True)
            (FILMS / f"{game}.webp").write_bytes(make_film(film_path(work, best)))
    subprocess.run([sys.executable, str(ROOT / "docs" / "site.py")], check=True)  # the page of scenarios shows them
    (PAGES / "learned.md").write_text("\n".join(list_table_lines(found)) + "\n")
    write_four_in_one(
        [FILMS / f"{game}.webp" for game in ("basic", "my_way_home", "health_gathering", "defend_the_center")],
        ROOT / "docs",
    )


def list_table_lines(found: Sequence[Learned]) -> Iterator[str]:
    """Yields the lines of the page."""
    yield "# What is learned in how long"
    yield ""
    yield "A row is `python train.py --scenario GAME --seed SEED --frames FRAMES`, then new episodes with each policy."
    yield ""
    columns = [
        "game",
        "seed",
        "frames, of plan",
        "minutes",
        "games",
        "greedy",
        "sampled",
        "policy",
        "random play",
        "target",
        "held",
        "commit",
    ]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for one in sorted(found, key=lambda one: (list(PLANS).index(one.game), one.seed)):
        plan = PLANS[one.game]
        frames = f"{_format_millions(one.frames)} of {_format_millions(plan.minutes * plan.rate)}"
        verdict = held = "-"
        if plan.target is not None:
            verdict = f"{plan.target:g}: {one.verdict(plan.target)}"
            held = format_lowest_share([mean for _, mean in one.curve], plan.target)
        scores = f"{len(one.greedy)} | {format_mean(one.greedy)} | {format_mean(one.sample)} | {one.policy or '-'} | "
        scores += format_score(one.random)
        yield f"| {one.game} | {one.seed} | {frames} | {one.minutes} | {scores} | {verdict} | {held} | {one.commit} |"
    yield ""
    yield (
        "`python -m benchmarks.learning` trains, plays and writes this page from learned.jsonl: the longest training of "
        "each game and seed, the newest of equals. Minutes are wall-clock time on a machine with other load: compare "
        "frames. The weights (`best.ckpt`) were chosen in evaluations during training, and *policy* is the one that was "
        "better there; the episodes of the table chose nothing. Where a page quotes one score of a row without naming its "
        f"policy, it is the higher of the two, and so a little too high. {INTERVALS}"
    )
    yield ""
    yield (
        "A target is met if the lower end of the interval of *policy* reaches it; where *policy* is unknown (-), both "
        "must. *Held* is the lowest mean of 100 training episodes after the target was first reached, as a share of the "
        "best before it; of negative scores, the best as a share of that mean. Rows were trained with the scenario file of "
        "their commit, which may differ from today's. "
        "[basic](../notes/doom.md#basic-the-best-there-is) cannot score more than 83, nor "
        "[predict_position](../notes/doom.md#predict_position-what-can-be-had) much more than 0.82."
    )


def _format_millions(frames: float) -> str:
    return f"{frames / 1e6:.{1 if frames >= 1e6 else 2}f}M"


def format_lowest_share(means: Sequence[float], target: float) -> str:
    """Returns the lowest ratio of a mean to the best before it, once the target was reached; '-' if it never was.

    Where the best is negative, the ratio is inverted: a mean of -200 after -100 is half as good.
    """
    since = list(itertools.dropwhile(lambda mean: mean < target, means))
    pairs = zip(since, itertools.accumulate(since, max), strict=True)
    shares = [1.0 if mean == best else mean / best if best > 0 else best / mean for mean, best in pairs]
    return f"{min(shares):.0%}" if shares else "-"


def main() -> int:
    """Runs the requested trainings; returns 0, or 1 if any failed."""
    parser = make_parser("learning", __doc__)
    parser.add_argument("games", nargs="*", metavar="GAME", help=f"games to train (default all): {', '.join(PLANS)}")
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds (default: the plan's)")
    parser.add_argument("--share", type=float, default=1.0, help="fraction of the plan's frames (default 1)")
    parser.add_argument("--episodes", type=int, default=50, help="episodes to play with each policy (default 50)")
    parser.add_argument("--work", type=Path, default=Path("learning"), help="folder of the trainings (default learning)")
    parser.add_argument("--pages", action="store_true", help="only rewrite the pages from finished trainings")
    options = parser.parse_args()
    if not 0 < options.share <= 1:
        parser.error(f"--share {options.share:g}: must be above 0 and at most 1")
    if unknown := set(options.games) - set(PLANS):
        parser.error(f"unknown game {', '.join(sorted(unknown))}; choose from {', '.join(PLANS)}")
    work, failed = options.work.resolve(), False
    for game in () if options.pages else options.games or PLANS:
        plan = PLANS[game]
        for seed in options.seeds or plan.seeds:
            frames = round(plan.minutes * plan.rate * options.share)
            if any((one.game, one.seed, one.budget) == (game, seed, frames) for one in read_learned()):
                print(f"{game}, seed {seed}: {frames:,} frames are done already", flush=True)
                continue
            print(f"{game}, seed {seed}: {frames:,} frames", flush=True)
            try:
                one = learn(game, seed, frames, options.episodes, training_folder(work, game, seed, frames))
            except subprocess.CalledProcessError as error:
                print(f"{game}, seed {seed} has failed: {error}", file=sys.stderr, flush=True)
                failed = True
                continue
            results.append_result(learned.LEARNED, one._asdict())
            print(f"greedy {format_mean(one.greedy)}, sampled {format_mean(one.sample)}, {one.minutes} minutes", flush=True)
            write_pages(work)
            print(f"added to {learned.LEARNED}, pages rewritten", flush=True)
    if options.pages:
        write_pages(work)
    return 1 if failed else 0


if __name__ == "__main__":
    run_command("learning", main, resumes=True)
