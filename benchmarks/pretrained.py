"""Makes the models in models/pretrained, with their cards, from the runs of benchmarks.learning.

    python -m benchmarks.pretrained --work learning            # all games with a run there
    python -m benchmarks.pretrained --work learning basic      # one of them
    python -m benchmarks.pretrained --page                     # only rewrite the page, models/README.md

It takes each game's best run in docs/results/learned.md. If that is no longer in the folder, the current model stays, and
a line says so. A model is the run's best checkpoint without optimizer slots and curve, with float16 weights; that file
plays for the scores on its card, in games that did not select it.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.learned import FIRST_SEED as CHOOSING_SEED
from benchmarks.common.learned import PLANS, Learned, find_best, select_shown_trainings, training_folder
from benchmarks.common.paths import ROOT
from benchmarks.common.trainings import INTERVALS, format_with_interval, play_episodes
from doom_a3c.agent.parameters import variable_name
from doom_a3c.record.files import write_whole
from doom_a3c.record.metrics.standings import Standing
from doom_a3c.record.metrics.statistics import read_interval
from doom_a3c.run.checkpoints import pretrained
from doom_a3c.run.checkpoints.checkpoint import save
from doom_a3c.run.checkpoints.pretrained import CARDS, Card
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.random_play import play_random_episodes

FOLDER = ROOT / "models" / "pretrained"
MOST = 3_100_000  # bytes per model
EPISODES = 100
FIRST_SEED = 2_000_000  # of a card's games: the ones from `CHOOSING_SEED` on selected the training


def write_slim_model(source: Path, target: Path) -> None:
    """Writes the parts of a checkpoint that playing needs: weights as float16, no training history."""
    agent = TrainedAgent.load(source)
    weights = {variable_name(each): each.numpy().astype(np.float16) for each in agent.network.parameters}
    counters = agent.record.counters._replace(scores=(), curve=())
    save(target, weights, agent.record._replace(counters=counters))
    assert target.stat().st_size <= MOST, f"{target} has {target.stat().st_size:,} bytes"


def make_card(one: Learned, model: Path, episodes: int) -> Card:
    """Plays a model for that many episodes with each policy and returns its card."""
    with tempfile.TemporaryDirectory() as folder:
        scores = play_episodes(model, Path(folder), episodes, FIRST_SEED)
        standing = read_standing(Path(folder) / max(scores, key=lambda policy: statistics.mean(scores[policy])))
    scores["random"] = play_random_episodes(TrainedAgent.load(model).builder, episodes, FIRST_SEED, seconds=math.inf)
    means_and_stds = {name: (statistics.mean(each), statistics.pstdev(each)) for name, each in scores.items()}
    return Card(
        scenario=one.game,
        seed=one.seed,
        frames=one.frames,
        minutes=one.minutes,
        commit=one.commit,
        command=f"python train.py --scenario {one.game} --seed {one.seed} --frames {one.budget}",
        episodes=episodes,
        first_seed=FIRST_SEED,
        **means_and_stds,
        standing=standing,
    )


def read_standing(folder: Path) -> str:
    """Describes the standing that play.py wrote into a folder; '' if the game is not a match."""
    summary = json.loads(path.read_text()) if (path := folder / "summary.json").exists() else {}
    return Standing(**summary["standing"]).describe() if "standing" in summary else ""


def list_page_lines() -> Iterator[str]:
    """Yields the lines of models/README.md."""
    cards = pretrained.read_cards()
    others = "".join(f", {card.episodes} of {name}" for name, card in cards.items() if card.episodes != EPISODES)
    yield "# Models"
    yield ""
    yield (
        "`train.py` makes a folder for each run here; `last.ckpt` and `best.ckpt` link to the newest. "
        "What lies in `pretrained` comes with the project:"
    )
    yield ""
    yield "    python play.py --model basic --out /tmp/result"
    yield "    python train.py --scenario mine.toml --from basic"
    yield ""
    yield (
        f"A mean is of {EPISODES} episodes that training has not seen{others}, random play is of as many. {INTERVALS} "
        f"Models are chosen among seeds, by 50 games from seed {CHOOSING_SEED:,} on: cards whose games begin there "
        f"too are a little too high for that, those made from now on begin at {FIRST_SEED:,}. "
        "`python -m benchmarks.pretrained` makes models, cards and this page."
    )
    yield ""
    yield "| model | greedy | sampled | random play | games from | seed | frames | minutes | trained by | commit |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, card in cards.items():
        scores = " | ".join(format_interval(*each, card.episodes) for each in (card.greedy, card.sample, card.random))
        trained = f"{card.seed} | {card.frames:,} | {card.minutes:g} | `{card.command}` | {card.commit}"
        yield f"| {name} | {scores} | {card.first_seed:,} | {trained} |"
    for name, card in cards.items():
        if card.standing:
            yield ""
            yield f"{name}, in the same matches: {card.standing}."


def format_interval(mean: float, std: float, episodes: int) -> str:
    """Returns a mean with its 95% interval."""
    return format_with_interval(mean, read_interval(mean, std, episodes), episodes)


def main() -> int:
    """Makes the models; returns 0."""
    parser = make_parser("pretrained", __doc__)
    parser.add_argument("games", nargs="*", metavar="GAME", help="games to make models for (default all)")
    parser.add_argument("--work", type=Path, default=Path("learning"), help="folder of the trainings (default learning)")
    parser.add_argument("--episodes", type=int, default=EPISODES, help=f"games with each policy (default {EPISODES})")
    parser.add_argument("--page", action="store_true", help="only rewrite the page")
    options = parser.parse_args()
    if unknown := set(options.games) - set(PLANS):
        parser.error(f"unknown game {', '.join(sorted(unknown))}; choose from {', '.join(PLANS)}")
    FOLDER.mkdir(exist_ok=True)
    for game in () if options.page else options.games or PLANS:
        best = find_best(one for one in select_shown_trainings() if one.game == game)
        if best is None:
            continue
        source = training_folder(options.work, game, best.seed, best.budget) / "models" / "best.ckpt"
        if not source.exists():
            print(f"{game}: no {source}, so its model stays as it is", flush=True)
            continue
        with tempfile.TemporaryDirectory(dir=FOLDER.parent) as made:
            model = Path(made) / f"{game}.ckpt"
            write_slim_model(source, model)
            card = make_card(best, model, options.episodes)
            model.replace(FOLDER / model.name)  # once its card is known: an interruption leaves the old pair
        cards = pretrained.read_cards() | {game: card}  # others may be made at the same time
        ordered = {name: cards[name]._asdict() for name in PLANS if name in cards}
        write_whole(FOLDER / CARDS, f"{json.dumps(ordered, indent=1)}\n".encode())
        print(f"{game}: greedy {card.greedy[0]:.2f}, sampled {card.sample[0]:.2f}", flush=True)
    (ROOT / "models" / "README.md").write_text("\n".join(list_page_lines()) + "\n")
    return 0


if __name__ == "__main__":
    run_command("pretrained", main)
