"""play.py --compare: which agent scores better, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from doom_a3c.cli.lines import Lines
from doom_a3c.record import figures
from doom_a3c.record.files import write_json, write_table
from doom_a3c.record.statistics import Difference, Interval, difference, mean_interval
from doom_a3c.run.agent import Agent
from doom_a3c.run.playback import Playback
from doom_a3c.run.score_text import CAVEAT, describe_certainty
from doom_a3c.settings.fields import UserError
from doom_a3c.settings.formatting import format_score
from doom_a3c.settings.playing import PlaySettings

MIN_EPISODES = 10  # fewer give intervals of little use


def compare(
    agents: Sequence[Agent],
    settings: PlaySettings,
    folder: Path,
    lines: Lines,
    interruptible: Callable[[Playback], AbstractContextManager[None]],
) -> None:
    """Plays all agents on the same seeds and compares the first with each of the others, in print and in `folder`.

    `interruptible` surrounds each playback.

    Raises:
        UserError: if the agents play different games.
    """
    games = {agent.record.scenario.name for agent in agents}
    if len(games) > 1:
        raise UserError(f"--compare takes agents of one game: these play {' and '.join(sorted(games))}")
    names = _unique_names([agent.source for agent in agents])
    lines(f"{games.pop()}: {settings.episodes} episodes each, from seed {settings.seed}")
    scores: dict[str, list[float]] = {name: [] for name in names}

    def stepped(index: int, steps: int) -> None:
        lines.show_progress(f"episode {index + 1} of {settings.episodes}: {steps} steps")

    try:
        for name, agent in zip(names, agents, strict=True):
            with Playback(agent, settings, None, stepped=stepped) as playback, interruptible(playback):
                lines(f"playing {name}, {playback.settings.policy} policy")
                for each in playback:
                    scores[name].append(each.episode.score)
                if playback.interrupted:
                    raise KeyboardInterrupt
    finally:  # also after Ctrl-C or a failed game
        lines.clear()
        if scores[names[0]]:
            for kind in ("png", "json"):  # left by an earlier call
                (folder / f"comparison.{kind}").unlink(missing_ok=True)
            rows = enumerate(zip_longest(*scores.values(), fillvalue=""), settings.seed)
            write_table(folder / "comparison.csv", ["seed", *names], ([seed, *row] for seed, row in rows))
    width = max(map(len, names))
    for name, played in scores.items():
        certainty = describe_certainty(mean_interval(played), len(played))
        lines(f"{name:{width}}  mean {format_score(sum(played) / len(played)):>7}  {certainty}")
    first, *others = names
    differences = {other: difference(scores[first], scores[other]) for other in others}
    for other, found in differences.items():
        lines(_format_verdict(first, other, found))
    lines(CAVEAT)
    if settings.episodes < MIN_EPISODES:
        lines(f"{settings.episodes} episodes are few: --episodes 100 says more")
    _write(folder, settings, scores, differences)
    lines(f"comparison.png, comparison.csv and comparison.json are in {folder}")


def _unique_names(paths: Sequence[str]) -> list[str]:
    """Returns each path, numbered where a path occurs twice."""
    return [path if paths.count(path) == 1 else f"{path} ({index})" for index, path in enumerate(paths, 1)]


def _format_verdict(first: str, other: str, found: Difference) -> str:
    interval = found.interval
    if interval is not None and found.mean < 0:  # the text has the difference without its sign
        interval = Interval(-interval.high, -interval.low)
    words = f"by {format_score(abs(found.mean))} (the difference: {describe_certainty(interval, found.games)})"
    if not found.real:
        return f"{first} and {other} may be equally good: they differ {words}, which chance may have made"
    return f"{first} is {'better' if found.mean > 0 else 'worse'} than {other} {words}"


def _to_plain(found: Difference) -> dict[str, Any]:
    low, high = found.interval or (None, None)
    return {"mean": found.mean, "low": low, "high": high, "real": found.real}


def _write(
    folder: Path, settings: PlaySettings, scores: dict[str, list[float]], differences: dict[str, Difference]
) -> None:
    figures.save_png(figures.draw_distributions("scores on the same seeds", scores), folder / "comparison.png")
    results: dict[str, Any] = {
        "seed": settings.seed,
        "scores": scores,
        "mean_intervals": {name: mean_interval(played) for name, played in scores.items()},
        "differences": {name: _to_plain(found) for name, found in differences.items()},
    }
    write_json(folder / "comparison.json", results)
