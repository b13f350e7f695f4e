"""Plays matches of an agent trained by self-play against its past and others, and writes the matrix of wins.

    python -m benchmarks.self_play --work learning   # after `benchmarks.learning duel` in that folder, about 30 minutes
    python -m benchmarks.self_play --page            # only rewrite the page from finished pairings

The agents are the run's best weights, the members of its league nearest to some shares of its frames, and shipped models.
Each pair plays matches in the duel's level, with sampled actions, and each hosts half of them. A finished pairing
is a line of docs/results/self_play.jsonl and is not repeated; the page is docs/results/self_play.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.learned import PLANS, training_folder
from benchmarks.common.paths import PAGES
from benchmarks.common.trainings import read_commit
from doom_a3c.record.metrics.statistics import share_interval
from doom_a3c.run.checkpoints.pretrained import find_model
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.cross_play import play_pairings

GAME, SEED = "duel", 101  # of the first match
SHARES = (0.1, 0.25, 0.5, 0.75)  # of the training's frames
BEST, HALF_WAY = "the best", SHARES.index(0.5)
MODELS = ("deathmatch",)
MATCHES, FEW = 100, 10  # the best agent against its half-way weights and the models, and other pairs
PLAYED = PAGES / "self_play.jsonl"


class Played(NamedTuple):
    """A finished pairing: a line of the results file."""

    first: str  # an agent's name
    second: str
    training: int  # its seed
    outcomes: Sequence[float]  # of the first in each match: 1 won, 0.5 drawn, 0 lost
    commit: str

    @property
    def share(self) -> float:
        """The first agent's share of wins; a draw is half a win."""
        return sum(self.outcomes) / len(self.outcomes)


def list_agents(work: Path, training: int) -> dict[str, Path]:
    """Returns the checkpoints of a training's agents and the others by name, the best first."""
    budget = round(PLANS[GAME].minutes * PLANS[GAME].rate)
    models = training_folder(work, GAME, training, budget) / "models"
    league = sorted(models.glob("*/league/*.ckpt"))
    agents = {BEST: models / "best.ckpt"}
    for share in SHARES:
        nearest = min(league, key=lambda path: abs(_read_frames(path) - share * budget))
        agents[f"{_read_frames(nearest) / 1e6:.1f}M"] = nearest
    return agents | {name: find_model(name) for name in MODELS}


def _read_frames(member: Path) -> int:
    return int(member.stem.removeprefix("frames-"))


def list_pairings(names: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yields pairs of names with their number of matches, those with many first."""
    assert len(names) == 1 + len(SHARES) + len(MODELS), "two shares have the same nearest member"
    many = {names[1 + HALF_WAY], *MODELS}
    pairs = [(*pair, MATCHES if pair[0] == BEST and pair[1] in many else FEW) for pair in itertools.combinations(names, 2)]
    yield from sorted(pairs, key=lambda pair: -pair[2])


def read_played() -> list[Played]:
    """Returns all finished pairings."""
    return [Played(**line) for line in results.read_results(PLAYED)]


def list_page_lines(found: Sequence[Played]) -> Iterator[str]:
    """Yields the lines of the page: for each training the matrix, and the pairings with many matches."""
    yield "# Self-play"
    yield ""
    yield "Shares of the matches that the row's agent wins against the column's; a draw is half a win."
    for training in sorted({one.training for one in found}):
        yield from ("", f"## Seed {training}", "")
        yield from _list_matrix([one for one in found if one.training == training])
    yield ""
    yield (
        f"`python -m benchmarks.self_play` lets the best weights of each training of {GAME}, its league's members nearest "
        "to some shares of its frames, and models that come with the project play each other in "
        f"{GAME}'s level, with sampled actions: {MATCHES} matches where a line says so, {FEW} otherwise."
    )


def _list_matrix(found: Sequence[Played]) -> Iterator[str]:
    names = list(dict.fromkeys(itertools.chain.from_iterable((one.first, one.second) for one in found)))
    shares = {(one.first, one.second): one.share for one in found}
    shares |= {(second, first): 1 - share for (first, second), share in shares.items()}
    yield f"| | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for name in names:
        cells = (f"{shares[name, other]:.2f}" if (name, other) in shares else "" for other in names)
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    for one in found:
        if len(one.outcomes) >= MATCHES:
            low, high = share_interval(one.share, len(one.outcomes))
            won = sum(outcome == 1 for outcome in one.outcomes)
            yield (
                f"- {one.first} wins {won} of {len(one.outcomes)} matches against {one.second}, a share of {one.share:.2f} "
                f"({low:.2f} to {high:.2f})."
            )


def play_missing(work: Path, training: int) -> None:
    """Plays the pairings of a training that have no line in the results file yet."""
    agents = {name: TrainedAgent.load(path) for name, path in list_agents(work, training).items()}
    for first, second, matches in list_pairings(list(agents)):
        if any((one.first, one.second, one.training) == (first, second, training) for one in read_played()):
            continue
        (pairing,) = play_pairings([agents[first], agents[second]], matches, SEED, lambda *_: None)
        one = Played(first, second, training, list(pairing.outcomes), read_commit())
        print(f"{first} against {second}: {one.share:.2f} of {matches}", flush=True)
        results.append_result(PLAYED, one._asdict())


def main() -> int:
    """Plays the missing pairings and writes the page; returns 0."""
    parser = make_parser("self_play", __doc__)
    parser.add_argument("--work", type=Path, default=Path("learning"), help="folder of the trainings (default learning)")
    seeds = PLANS[GAME].seeds
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds, help="seeds of the trainings (default all)")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from finished pairings")
    options = parser.parse_args()
    for training in () if options.page else options.seeds:
        play_missing(options.work, training)
    (PAGES / "self_play.md").write_text("\n".join(list_page_lines(read_played())) + "\n")
    return 0


if __name__ == "__main__":
    run_command("self_play", main, resumes=True)
