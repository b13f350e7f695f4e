"""play.py --compare: compares agents on the same seeds, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from doom_a3c.cli.lines import Lines
from doom_a3c.record.files import write_json, write_table
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.statistics import (
    CAVEAT,
    Difference,
    Interval,
    compare_means,
    describe_certainty,
    format_score,
    mean_interval,
)
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.cross_play import check_players
from doom_a3c.run.play.playback import Playback
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.playing import PlaySettings

MIN_EPISODES = 10  # fewer make wide intervals


def check_games(agents: Sequence[TrainedAgent]) -> None:
    """Raises UserError unless the agents play the same game, or can play each other in the first one's match."""
    if agents[0].builder.agents > 1:
        return check_players(agents)
    games = {agent.record.scenario.name for agent in agents}
    if len(games) > 1:
        match = next((agent.source for agent in agents if agent.builder.agents > 1), None)
        cure = f"; named first, {match} plays the others" if match else ""
        raise UserError(f"--compare takes agents of one game: these play {' and '.join(sorted(games))}{cure}")


def compare(
    agents: Sequence[TrainedAgent],
    settings: PlaySettings,
    folder: Path,
    lines: Lines,
    interruptible: Callable[[Playback], AbstractContextManager[None]],
) -> None:
    """Plays all agents, of one game, on the same seeds, and prints and writes how the first differs from the others.

    `interruptible` wraps each playback from its start to its end.
    """
    names = number_repeats([agent.source for agent in agents])
    lines(f"{agents[0].record.scenario.name}: {settings.episodes} episodes each, from seed {settings.seed}")
    scores: dict[str, list[float]] = {name: [] for name in names}
    try:
        for name, agent in zip(names, agents, strict=True):
            _play_agent(name, agent, settings, scores[name], lines, interruptible)
        lines.clear()
        differences = {other: compare_means(scores[names[0]], scores[other]) for other in names[1:]}
        _print_results(settings, scores, differences, lines)  # before writing: a full disk must not hold them back
    finally:  # also after Ctrl-C, or if a game fails
        lines.clear()
        if scores[names[0]]:
            _write_scores(folder, settings, scores)
    _write(folder, settings, scores, differences)
    lines(f"comparison.png, comparison.csv and comparison.json are in {folder}")


def _play_agent(
    name: str,
    agent: TrainedAgent,
    settings: PlaySettings,
    scores: list[float],
    lines: Lines,
    interruptible: Callable[[Playback], AbstractContextManager[None]],
) -> None:
    """Plays an agent's episodes, and adds their scores to `scores`."""

    def on_step(index: int, steps: int) -> None:
        lines.show_progress(f"episode {index + 1} of {settings.episodes}: {steps} steps")

    with Playback(agent, settings, None, on_step=on_step) as playback, interruptible(playback):
        lines(f"playing {name}, {playback.settings.policy} policy")
        for each in playback:
            scores.append(each.episode.score)
        if playback.interrupted:
            raise KeyboardInterrupt


def _write_scores(folder: Path, settings: PlaySettings, scores: dict[str, list[float]]) -> None:
    rows = enumerate(zip_longest(*scores.values(), fillvalue=""), settings.seed)
    write_table(folder / "comparison.csv", ["seed", *scores], ([seed, *row] for seed, row in rows))


def _print_results(
    settings: PlaySettings, scores: dict[str, list[float]], differences: dict[str, Difference], lines: Lines
) -> None:
    width, first = max(map(len, scores)), next(iter(scores))
    for name, played in scores.items():
        sure = describe_certainty(mean_interval(played), len(played))
        lines(f"{name:{width}}  mean {format_score(sum(played) / len(played)):>7}  {sure}")
    for other, difference in differences.items():
        lines(_format_verdict(first, other, difference))
    lines(CAVEAT)
    if settings.episodes < MIN_EPISODES:
        lines(f"{settings.episodes} episodes are few: use --episodes 100 for a narrower interval")


def number_repeats(names: Sequence[str]) -> list[str]:
    """Returns the names, with a number after those that occur twice."""
    return [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names, 1)]


def _format_verdict(first: str, other: str, found: Difference) -> str:
    interval = found.interval
    if interval is None and found.games > 1 and not found.mean:
        return f"{first} and {other} score the same: {describe_certainty(None, found.games)}"
    if interval is not None and found.mean < 0:  # the difference is printed without its sign
        interval = Interval(-interval.high, -interval.low)
    words = f"by {format_score(abs(found.mean))} (the difference: {describe_certainty(interval, found.games)})"
    if not found.real:
        return f"{first} and {other} may be equally good: they differ {words}, possibly by chance"
    return f"{first} is {'better' if found.mean > 0 else 'worse'} than {other} {words}"


def _to_plain(found: Difference) -> dict[str, Any]:
    low, high = found.interval or (None, None)
    return {"mean": found.mean, "low": low, "high": high, "real": found.real}


def _write(
    folder: Path, settings: PlaySettings, scores: dict[str, list[float]], differences: dict[str, Difference]
) -> None:
    results: dict[str, Any] = {
        "seed": settings.seed,
        "scores": scores,
        "mean_intervals": {name: mean_interval(played) for name, played in scores.items()},
        "differences": {name: _to_plain(found) for name, found in differences.items()},
    }
    write_json(folder / "comparison.json", results)
    figures.save_png(figures.draw_distributions("scores on the same seeds", scores), folder / "comparison.png")
