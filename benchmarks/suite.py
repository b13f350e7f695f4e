"""Scores the recipe for levels without a file: trains from wad and cfg alone, and reduces all levels to one number.

    python -m benchmarks.suite                                       # today's recipe: six levels, two seeds, 1M frames each
    python -m benchmarks.suite --variants heads --levels deathmatch  # a variant of it, on a subset of the levels
    python -m benchmarks.suite --full --seeds 101                    # all levels, each with the frames of its tuned file
    python -m benchmarks.suite --page                                # only rewrite the page from finished runs

A level is a renamed copy of one of ViZDoom's, so that its tuned file is not found. Its score is normalized: 0 is random
play, 1 the tuned file after its own, longer training. The suite's score is the interquartile mean over levels and
seeds, with a 95% bootstrap interval over the seeds of each level (Agarwal et al. 2021, arXiv:2108.13264). A finished
run is a line of docs/results/suite.jsonl and is not repeated; the page is docs/results/suite.md.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
import vizdoom
from scipy.stats import trim_mean

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import PAGES
from benchmarks.common.trainings import measure_missing, read_commit, train_and_score
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.settings.catalog import find

MEASURED = PAGES / "suite.jsonl"
LEVELS = ("defend_the_center", "health_gathering_supreme", "deadly_corridor", "my_way_home", "take_cover", "deathmatch")
ALL_LEVELS = (
    *LEVELS,
    *("basic", "simpler_basic", "rocket_basic", "defend_the_line", "health_gathering", "predict_position"),
)
RECIPE = "recipe"
_PAID = ("HEALTH", "ARMOR", "SELECTED_WEAPON_AMMO", "KILLCOUNT", "DAMAGECOUNT", "ITEMCOUNT", "PLACES")
_UNPAID = "[shaping]\n" + "".join(f"{name} = 0\n" for name in _PAID)
_GREY = "[observation]\ncolor = false\ncrop = [0, 0, 0, 0]\nsize = [84, 84]\n"
_RANDOM = "[training]\nentropy_cost = 0.005\nfinal_entropy_cost = 0.005\nuniform_cost = 5e-4\n"
VARIANTS = {  # TOML over base/level
    RECIPE: "",
    "earlier": "[game]\nvariables = []\nvariable_scales = []\n" + _UNPAID + _GREY + _RANDOM,  # until November 2026
    "unpaid": _UNPAID,
    "grey, 84x84": _GREY,
    "more entropy": _RANDOM,
    "one epoch": "[training]\nepochs = 1\n",
    "turns cost": "[shaping]\nANGLE = { gain = -3e-4, loss = 3e-4, most = 0.01 }\n",
    "fewer places": "[shaping]\nPLACES = 0.03\n",
    "annealed": "[training]\nfinal_shaping_weight = 0.0\n",
    "far-sighted": "[training]\ndiscount = 0.995\n",
    "heads": '[game]\nbuttons = "heads"\n',
    "together": '[game]\nbuttons = "together"\n',
}
EPISODES = 50  # new ones, after training
SAMPLES = 5000  # bootstrap samples


class Measured(NamedTuple):
    """A finished training: a line of the results file."""

    level: str
    variant: str
    seed: int
    frames: int  # requested
    score: float  # mean over new episodes
    seconds: float
    commit: str

    @property
    def normalized(self) -> float:
        """The score, scaled to 0 for random play and 1 for tuned."""
        tuned = find(self.level)
        assert tuned.expected_mean is not None
        assert tuned.random_mean is not None
        return (self.score - tuned.random_mean) / (tuned.expected_mean - tuned.random_mean)


def read_tuned_frames(level: str) -> int:
    """Returns the frames that a level's tuned file trains for."""
    return int(find(level).training["frames"])


def write_scenario(level: str, variant: str, folder: Path) -> Path:
    """Writes a level and its scenario into a folder; returns the file for --scenario."""
    shipped, name = Path(vizdoom.scenarios_path), f"unknown_{level}"
    shutil.copy(shipped / f"{level}.wad", folder / f"{name}.wad")
    cfg = (shipped / f"{level}.cfg").read_text().replace(f"{level}.wad", f"{name}.wad")
    (folder / f"{name}.cfg").write_text(cfg)
    if not (overrides := VARIANTS[variant]):
        return folder / f"{name}.wad"
    game = f'[game]\nconfig = "{name}.cfg"\nwad = "{name}.wad"\n'
    text = overrides.replace("[game]\n", game) if "[game]" in overrides else game + overrides
    scenario = folder / f"{name}.toml"
    scenario.write_text(f'base = "base/level"\n{text}')
    return scenario


def measure(level: str, variant: str, seed: int, frames: int) -> Measured:
    """Trains a variant of the recipe on a level, then plays new episodes with its weights."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        end = train_and_score(folder, write_scenario(level, variant, folder), seed, frames, EPISODES)
    return Measured(level, variant, seed, frames, end["best_evaluation"], end["seconds"], read_commit())


def read_measured() -> list[Measured]:
    """Returns all finished trainings."""
    return [Measured(**line) for line in results.read_results(MEASURED)]


def find_interval(scores: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """Returns the interquartile mean of the scores of all levels, and the ends of its 95% interval."""
    random = np.random.default_rng(0)
    samples = [
        np.concatenate([random.choice(of_level, len(of_level)) for of_level in scores.values()]) for _ in range(SAMPLES)
    ]
    low, high = np.percentile(trim_mean(np.array(samples), 0.25, axis=1), [2.5, 97.5])
    return float(trim_mean(np.concatenate(list(scores.values())), 0.25)), float(low), float(high)


def list_page_lines(found: Sequence[Measured]) -> Iterator[str]:
    """Yields the lines of the page: a table per number of frames, and one of the tuned files' frames."""
    yield "# Levels without a file"
    full = [one for one in found if one.frames == read_tuned_frames(one.level)]
    if full:
        yield from ("", "## As many frames as the tuned file", "")
        yield from _list_table(full)
    for frames in sorted({one.frames for one in found if one not in full}):
        yield from ("", f"## {frames:,} frames", "")
        yield from _list_table([one for one in found if one.frames == frames])
    yield ""
    yield (
        "`python -m benchmarks.suite` trains copies of ViZDoom's levels that have no file; a cell is the mean of "
        f"{EPISODES} new games by seed, and the normalized mean: 0 is random play, 1 our tuned file after all its frames. "
        "IQM: interquartile mean over all levels of the table and seeds, with the 95% interval of a stratified bootstrap."
    )


def _list_table(ones: Sequence[Measured]) -> Iterator[str]:
    variants = [variant for variant in VARIANTS if any(one.variant == variant for one in ones)]
    yield f"| level | {' | '.join(variants)} |"
    yield f"|---|{'---|' * len(variants)}"
    for level in ALL_LEVELS:
        cells = [_format_cell([one for one in ones if (one.level, one.variant) == (level, each)]) for each in variants]
        if any(cells):
            yield f"| {level} | {' | '.join(cells)} |"
    played = {one.level for one in ones}
    cells = [_format_iqm([one for one in ones if one.variant == each], played) for each in variants]
    yield f"| **IQM** | {' | '.join(cells)} |"


def _format_cell(ones: Sequence[Measured]) -> str:
    scores = ", ".join(format_score(one.score) for one in sorted(ones, key=lambda one: one.seed))
    return f"{scores} ({np.mean([one.normalized for one in ones]):.2f})" if ones else ""


def _format_iqm(ones: Sequence[Measured], levels: Set[str]) -> str:
    """Returns the IQM over `levels`, '' if one of them is missing; with its interval if there are several seeds."""
    scores = {level: [one.normalized for one in ones if one.level == level] for level in levels}
    if not all(scores.values()):
        return ""
    mean, low, high = find_interval(scores)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})" if len(ones) > len(levels) else f"{mean:.2f}"


def main() -> int:
    """Runs the requested trainings; returns 0, or 1 if any failed."""
    parser = make_parser("suite", __doc__)
    parser.add_argument("--levels", nargs="+", choices=ALL_LEVELS, help="levels to train (default six, with --full all)")
    parser.add_argument(
        "--variants", nargs="+", choices=VARIANTS, default=[RECIPE], help="variants of the recipe (default recipe)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="seeds (default 1 2)")
    frames = parser.add_mutually_exclusive_group()
    frames.add_argument("--frames", type=int, default=1_000_000, help="frames of each training (default 1,000,000)")
    frames.add_argument("--full", action="store_true", help="train each level for the frames of its tuned file")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from finished trainings")
    options = parser.parse_args()
    levels = options.levels or (ALL_LEVELS if options.full else LEVELS)
    budgets = {level: read_tuned_frames(level) if options.full else options.frames for level in levels}
    trainings = {
        (level, variant, seed, budget): f"{level}, {variant}, seed {seed}"
        for seed in (() if options.page else options.seeds)
        for level, budget in budgets.items()
        for variant in options.variants
    }
    status = measure_missing(
        MEASURED,
        trainings,
        lambda: {(one.level, one.variant, one.seed, one.frames) for one in read_measured()},
        measure,
        lambda one: f"{format_score(one.score)} ({one.normalized:.2f})",
    )
    (PAGES / "suite.md").write_text("\n".join(list_page_lines(read_measured())) + "\n")
    return status


if __name__ == "__main__":
    run_command("suite", main, resumes=True)
