"""play.py --compare and --cross-play in matches of several agents: the agents play each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doom_a3c.cli import command
from doom_a3c.cli.compare import number_repeats
from doom_a3c.cli.lines import Lines
from doom_a3c.record.files import write_json, write_table
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.statistics import describe_certainty, share_interval
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.cross_play import Pairing, play_pairings
from doom_a3c.settings.errors import require
from doom_a3c.settings.playing import PlaySettings


def cross_play(agents: Sequence[TrainedAgent], settings: PlaySettings, folder: Path, lines: Lines) -> None:
    """Lets all agents play each other; prints and writes the share of matches that each wins against each of the others.

    A draw is half a win. Finished pairings are written however the call ends.
    """
    names = _shorten_names([agent.source for agent in agents])
    width = max(map(len, names))
    lines(f"{agents[0].record.scenario.name}: {settings.episodes} matches of each two agents, from seed {settings.seed}")
    played: list[Pairing] = []
    received = command.handle_signals(lambda number: None, command.end_interrupted)

    def on_step(first: int, second: int, done: int) -> None:
        if received:  # only here, as TensorFlow's code must not be interrupted
            raise KeyboardInterrupt
        lines.show_progress(f"{names[first]} against {names[second]}: {done} of {settings.episodes} matches")

    try:
        for pairing in play_pairings(agents, settings.episodes, settings.seed, on_step):
            played.append(pairing)
            lines(_describe(pairing, names))
        if len(agents) > 2:
            shares = _fill_shares(played, len(agents))
            for name, row in zip(names, shares, strict=True):
                won = float(np.nanmean(row))
                lines(f"{name:{width}}  wins {100 * won:.0f}% of all its matches")
    finally:
        lines.clear()
        if played:
            _write(folder, names, played)
    lines(f"cross_play.png, cross_play.csv and cross_play.json are in {folder}")


def check_settings(settings: PlaySettings) -> None:
    """Raises UserError for settings without an effect in matches: all agents sample their actions."""
    flags = ["--policy greedy"] * (settings.policy == "greedy") + ["--epsilon"] * (settings.epsilon is not None)
    require(not flags, f"{', '.join(flags)}: no effect where agents play each other: they sample their actions")


def _shorten_names(sources: Sequence[str]) -> list[str]:
    """Returns the shortest ends of the paths that tell them apart; paths that occur twice get numbers."""
    paths = [Path(source).resolve().parts for source in sources]
    names = ["" for _ in paths]
    for length in range(1, 1 + max(map(len, paths))):
        names = ["/".join(path[-length:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return number_repeats(names)


def _describe(pairing: Pairing, names: Sequence[str]) -> str:
    outcomes, matches = pairing.outcomes, len(pairing.outcomes)
    won, drawn = sum(one == 1 for one in outcomes), sum(one == 0.5 for one in outcomes)
    sure = describe_certainty(share_interval(pairing.share, matches), matches)
    score = f"{won} of {matches} against {names[pairing.second]}{f', {drawn} drawn' if drawn else ''}"
    return f"{names[pairing.first]} wins {score}: share {pairing.share:.2f}, {sure}"


def _fill_shares(played: Sequence[Pairing], agents: int) -> NDArray[np.float64]:
    """Returns the share of wins of each agent against each other, [A, A]; NaN where they have not played."""
    shares = np.full((agents, agents), np.nan)
    for one in played:
        shares[one.first, one.second], shares[one.second, one.first] = one.share, 1 - one.share
    return shares


def _write(folder: Path, names: Sequence[str], played: Sequence[Pairing]) -> None:
    shares = _fill_shares(played, len(names))
    rows = ((name, *(f"{share:.3f}".replace("nan", "") for share in row)) for name, row in zip(names, shares, strict=True))
    write_table(folder / "cross_play.csv", ["share of wins", *names], rows)
    matches = [{"first": names[a], "second": names[b], "outcomes": list(outcomes)} for a, b, outcomes in played]
    write_json(folder / "cross_play.json", matches)
    figure = figures.draw_matrix("share of matches that the row wins against the column", names, shares)
    figures.save_png(figure, folder / "cross_play.png")
