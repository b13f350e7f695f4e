"""Ablates the algorithm: trains the same games with one part removed, changed or added, over several seeds.

    python -m benchmarks.ablations                        # all variants of all games
    python -m benchmarks.ablations cartpole --seeds 1     # a subset
    python -m benchmarks.ablations --page                 # only rewrite the page from finished runs

Each variant runs `train.py` with the game's scenario file, or one based on it, and some flags. It records the mean score
of the last 100 training episodes, and the frames at which that mean first reached a threshold. A finished run is a line of
docs/results/ablations.jsonl and is not repeated; the page is docs/results/ablations.md.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import PAGES
from benchmarks.common.trainings import measure_missing, read_commit, read_counters, run
from doom_a3c.record.metrics.statistics import format_score, mean_interval
from doom_a3c.settings.catalog import find

MEASURED = PAGES / "ablations.jsonl"


class Game(NamedTuple):
    """A game's training budget and the score that it must reach."""

    frames: int
    threshold: float


class Variant(NamedTuple):
    """Changes to a game's training: train.py flags, a learning rate multiplier, and scenario overrides."""

    flags: Sequence[object] = ()
    times: int = 1
    overrides: str = ""  # TOML for a scenario file based on the game's own


GAMES = {
    "cartpole": Game(600_000, 475),
    "basic": Game(600_000, 75),
    "defend_the_center": Game(500_000, 10),
    "defend_the_line": Game(500_000, 15),
    "health_gathering": Game(500_000, 1000),
    "health_gathering_supreme": Game(500_000, 600),
    "deadly_corridor": Game(500_000, 300),
    "deathmatch": Game(500_000, 8),
    "take_cover": Game(500_000, 600),
    "my_way_home": Game(800_000, 0.5),
    "predict_position": Game(1_000_000, 0.3),
}
PARTS = ["cartpole", "basic", "defend_the_center"]  # one of each kind: a variant's games, unless ONLY lists others
AS_IT_IS = "as it is"  # the baseline
VARIANTS = {
    AS_IT_IS: Variant(),
    "one pass, one minibatch (A3C)": Variant(("--epochs", 1, "--minibatches", 1)),
    "one minibatch": Variant(("--minibatches", 1)),
    "sequences of four steps": Variant(("--rollout-length", 32, "--sequence-length", 4)),
    "sequences of eight steps": Variant(("--sequence-length", 8)),
    "two passes": Variant(("--epochs", 2)),
    "no KL target": Variant(("--target-kl", 0)),
    "no KL cost towards uniform": Variant(("--uniform-cost", 0)),
    "normalized rewards": Variant(("--normalize-rewards",)),
    "no LSTM, single steps dealt out": Variant(overrides='[network]\ncore = "none"\n'),
    "an LSTM of 64 cells": Variant(overrides="[network]\ncore_size = 64\n"),
    "no shaping": Variant(("--shaping", "AMMO2=0,0")),
    "variables beside the picture, no layers of theirs": Variant(overrides="[network]\nvariable_hidden = []\n"),
    "four frames at once": Variant(overrides="[observation]\nstack = 4\n"),
    "from the model of basic": Variant(("--from", "basic")),
    "ten times the step size": Variant(times=10),
    "the same, no KL target": Variant(("--target-kl", 0), 10),
    "the same, no guard either": Variant(("--target-kl", 0, "--rollback-drop", 0), 10),
}
ONLY = {  # exceptions: variants irrelevant to some of PARTS, or relevant to all games
    AS_IT_IS: list(GAMES),
    "normalized rewards": list(GAMES),
    "no shaping": ["defend_the_center"],
    "no KL cost towards uniform": ["basic", "defend_the_center"],
    "no LSTM, single steps dealt out": ["basic", "defend_the_center"],
    "an LSTM of 64 cells": ["basic", "defend_the_center"],
    "variables beside the picture, no layers of theirs": ["defend_the_center"],
    "four frames at once": ["basic", "defend_the_center"],
    "from the model of basic": ["defend_the_center"],
    "one minibatch": ["defend_the_center"],
    "sequences of four steps": ["basic", "defend_the_center"],
    "sequences of eight steps": ["defend_the_center"],
}


class Measured(NamedTuple):
    """A finished training: a line of the results file."""

    game: str
    variant: str
    seed: int
    frames: int
    mean: float  # of the last 100 training episodes
    learned_at: int | None  # frames at which that mean reached the threshold
    faults: int  # rollbacks by the collapse guard
    commit: str


def make_flags(game: str, variant: str, seed: int, folder: Path) -> Sequence[object]:
    """Returns a variant's flags for train.py; writes the scenario file, if they need one, into a folder."""
    flags, times, overrides = VARIANTS[variant]
    step_size = () if times == 1 else ("--learning-rate", times * find(game).training["learning_rate"])
    scenario = game
    if overrides:
        scenario = str(folder / "variant.toml")
        Path(scenario).write_text(f'base = "{game}"\n{overrides}')
    quiet = ("--evaluate-every", 0, "--evaluation-episodes", 1, "--gif-every", 0, "--quiet")
    return "--scenario", scenario, "--seed", seed, "--frames", GAMES[game].frames, *quiet, *flags, *step_size


def measure(game: str, variant: str, seed: int) -> Measured:
    """Trains a variant."""
    threshold = GAMES[game].threshold
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder, "train.py", *make_flags(game, variant, seed, folder))
        progress = read_counters(folder)
    curve = [(at, mean) for _, at, _, mean in progress["curve"] if mean is not None]
    return Measured(
        game,
        variant,
        seed,
        progress["frames"],
        statistics.fmean(progress["scores"]),
        next((at for at, mean in curve if mean >= threshold), None),
        progress["faults"].get("score_collapsed", 0),
        read_commit(),
    )


def read_measured() -> list[Measured]:
    """Returns all finished trainings."""
    return [Measured(**line) for line in results.read_results(MEASURED)]


def list_page_lines(found: Sequence[Measured]) -> Iterator[str]:
    """Yields the lines of the page."""
    yield "# What each part is worth"
    for game, (frames, threshold) in GAMES.items():
        if ones := [one for one in found if one.game == game and one.variant in VARIANTS]:
            yield ""
            yield f"## {game}, {frames:,} frames"
            yield ""
            yield from list_table_rows(ones, threshold)
    yield ""
    yield (
        "`python -m benchmarks.ablations` trains each variant with the game's own file, or one based on it, and some "
        "flags. Scores are the mean of the last 100 training episodes. *Over seeds* is their mean (several runs of a seed "
        "averaged first) with its 95% interval (Student's t), which is wide for two seeds. Finished runs are lines of "
        "ablations.jsonl."
    )


def list_table_rows(found: Sequence[Measured], threshold: float) -> Iterator[str]:
    """Yields the lines of a table: one per variant, in order of `VARIANTS`."""
    reaching = f"frames until {threshold:g}, by seed"
    yield f"| variant | mean score at the end, by seed | over seeds | {reaching} | roll-backs | commit |"
    yield "|---|---|---|---|---|---|"
    for variant in VARIANTS:
        ones = sorted((one for one in found if one.variant == variant), key=lambda one: one.seed)
        if ones:
            by_seed = [list(runs) for _, runs in itertools.groupby(ones, key=lambda one: one.seed)]
            means = ", ".join(" and ".join(format_score(one.mean) for one in runs) for runs in by_seed)
            reached = ", ".join(" and ".join(format_reached(one) for one in runs) for runs in by_seed)
            over = format_over_seeds([statistics.fmean(one.mean for one in runs) for runs in by_seed])
            commits = ", ".join(sorted({one.commit for one in ones}))
            yield f"| {variant} | {means} | {over} | {reached} | {sum(one.faults for one in ones)} | {commits} |"


def format_reached(one: Measured) -> str:
    """Returns the frames at which the threshold was reached."""
    return "-" if one.learned_at is None else f"{one.learned_at:,}"


def format_over_seeds(means: Sequence[float]) -> str:
    """Returns the mean over seeds and half the width of its 95% interval."""
    if len(means) < 2:
        return "-"
    mean, interval = statistics.fmean(means), mean_interval(means)
    spread = ", all equal" if interval is None else f" +- {format_score(interval.high - mean)}"
    return f"{format_score(mean)}{spread}"


def main() -> int:
    """Runs the requested trainings; returns 0, or 1 if any failed."""
    parser = make_parser("ablations", __doc__)
    parser.add_argument("games", nargs="*", metavar="GAME", help=f"games to train (default all): {', '.join(GAMES)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="seeds (default 1 2)")
    parser.add_argument(
        "--variants", nargs="+", metavar="VARIANT", choices=VARIANTS, default=VARIANTS, help="variants (default all)"
    )
    parser.add_argument("--page", action="store_true", help="only rewrite the page from finished trainings")
    options = parser.parse_args()
    if unknown := set(options.games) - set(GAMES):
        parser.error(f"unknown game {', '.join(sorted(unknown))}; choose from {', '.join(GAMES)}")
    trainings = {
        (game, variant, seed): f"{game}, {variant}, seed {seed}"
        for game in (() if options.page else options.games or GAMES)
        for seed in options.seeds
        for variant in options.variants
        if game in ONLY.get(variant, PARTS)
    }
    status = measure_missing(
        MEASURED,
        trainings,
        lambda: {(one.game, one.variant, one.seed) for one in read_measured()},
        measure,
        lambda one: format_score(one.mean),
    )
    (PAGES / "ablations.md").write_text("\n".join(list_page_lines(read_measured())) + "\n")
    return status


if __name__ == "__main__":
    run_command("ablations", main, resumes=True)
