"""Compares recurrent cores: trains each on the same games, over several seeds.

    python -m benchmarks.cores                             # all games and cores
    python -m benchmarks.cores pendulum_without_velocity   # a subset
    python -m benchmarks.cores --page                      # only rewrite the page from finished runs

A run is `train.py` with the game's file, or the TOML below, and one core. A finished run is a line of
docs/results/cores.jsonl and is not repeated; the page is docs/results/cores.md.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import PAGES
from benchmarks.common.trainings import measure_missing, read_commit, train_and_score
from doom_a3c.record.metrics.statistics import format_score

MEASURED = PAGES / "cores.jsonl"
CORES = ("lstm", "gru", "min_gru", "none")
EPISODES = 100  # new ones, after training


class Game(NamedTuple):
    """A game to learn with each core."""

    frames: int
    text: str  # its scenario as TOML, [network] last
    seeds: Sequence[int] = (11, 12, 13)


GAMES = {
    "pendulum_without_velocity": Game(
        150_000,
        """
base = "pendulum"
[game]
id = "benchmarks.memory_games:PendulumNoVel-v1"
[training]
envs_per_worker = 8
[network]
hidden = [64]
core_size = 128
""",
    ),
    "t_maze": Game(
        300_000,
        """
base = "base/gymnasium"
[game]
id = "benchmarks.memory_games:TMaze-v0"
[training]
rollout_length = 64
minibatches = 4
[network]
activation = "relu"
core_size = 128
""",
    ),
    "my_way_home": Game(1_000_000, 'base = "my_way_home"\n[network]\n', seeds=(11,)),
    "defend_the_center": Game(1_000_000, 'base = "defend_the_center"\n[network]\n', seeds=(11,)),
    "pong_lstm": Game(2_000_000, 'base = "pong_lstm"\n[network]\n', seeds=(11,)),
}


class Measured(NamedTuple):
    """A finished training: a line of the results file."""

    game: str
    core: str
    seed: int
    frames: int
    score: float  # mean over new episodes
    frames_per_second: float
    commit: str


def measure(game: str, core: str, seed: int) -> Measured:
    """Trains with a core, then plays new episodes with the final weights."""
    frames, text, _ = GAMES[game]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = folder / f"{game}.toml"
        scenario.write_text(f'{text}core = "{core}"\n')
        end = train_and_score(folder, scenario, seed, frames, EPISODES)
    return Measured(game, core, seed, end["frames"], end["best_evaluation"], end["frames_per_second"], read_commit())


def read_measured() -> list[Measured]:
    """Returns all finished trainings."""
    return [Measured(**line) for line in results.read_results(MEASURED)]


def list_page_lines(found: Sequence[Measured]) -> Iterator[str]:
    """Yields the lines of the page."""
    yield "# Recurrent cores"
    yield ""
    yield "| game | frames | core | mean score, by seed | mean | frames per second |"
    yield "|---|---|---|---|---|---|"
    for game in GAMES:
        for core in CORES:
            if ones := sorted(one for one in found if (one.game, one.core) == (game, core)):
                scores = [one.score for one in ones]
                rate = statistics.fmean(one.frames_per_second for one in ones)
                listed = ", ".join(f"{format_score(one.score)} ({one.seed})" for one in ones)
                mean = format_score(statistics.fmean(scores))
                yield f"| {game} | {ones[0].frames:,} | {core} | {listed} | {mean} | {rate:,.0f} |"
    yield ""
    yield (
        "`python -m benchmarks.cores` trains each game with its file, or the text in benchmarks/cores.py, and one core; "
        f"then the last weights play {EPISODES} new games with the better policy. Rates are of trainings side by side."
    )


def main() -> int:
    """Runs the requested trainings; returns 0, or 1 if any failed."""
    parser = make_parser("cores", __doc__)
    parser.add_argument("games", nargs="*", metavar="GAME", help=f"games to train (default all): {', '.join(GAMES)}")
    parser.add_argument("--cores", nargs="+", choices=CORES, default=CORES, help="cores to compare (default all)")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from finished trainings")
    options = parser.parse_args()
    if unknown := set(options.games) - set(GAMES):
        parser.error(f"unknown game {', '.join(sorted(unknown))}; choose from {', '.join(GAMES)}")
    wanted = () if options.page else options.games or GAMES
    trainings = {
        (game, core, seed): f"{game}, {core}, seed {seed}"
        for game in wanted
        for seed in GAMES[game].seeds
        for core in options.cores
    }
    status = measure_missing(
        MEASURED,
        trainings,
        lambda: {(one.game, one.core, one.seed) for one in read_measured()},
        measure,
        lambda one: format_score(one.score),
    )
    (PAGES / "cores.md").write_text("\n".join(list_page_lines(read_measured())) + "\n")
    return status


if __name__ == "__main__":
    run_command("cores", main, resumes=True)
