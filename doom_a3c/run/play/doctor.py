"""Checks a game before training: observations, rewards, episodes, actions, speed, memory and disk."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doom_a3c.envs.factory import GameFactory
from doom_a3c.envs.flattening import Label
from doom_a3c.record.files import format_size, output_folder
from doom_a3c.record.films.overlay import newest_picture
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.run_record import RunRecord
from doom_a3c.run.play.trial_games import (
    GAMES,
    MATCHES,
    PICTURES,
    PLAY_SECONDS,
    TRIAL_STEPS,
    TRIALS,
    RandomPlay,
    find_games_distribution,
    measure_matches,
    play_at_random,
    read_numbers,
    read_pixels,
    try_actions,
)
from doom_a3c.settings.config import cpu_count
from doom_a3c.settings.errors import error_context
from doom_a3c.settings.games import FREEDOOM, AtariSpec, DoomSpec, GymnasiumSpec, locate
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.scenarios import most_parameters
from doom_a3c.settings.wads import list_maps

LOW, HIGH = 0.01, 1.0  # good range of scaled rewards
_SLOTS = 3  # numbers in a checkpoint per weight: its value and two optimizer slots
_CHECKPOINTS = 8  # in the models folder at once, at most
_ENOUGH = 0.85  # of the highest frame rate: more matches make better batches, so advise the most that still reach it
_DARK = 4.0  # standard deviation of all pixels, below which almost nothing is visible


class Finding(NamedTuple):
    """The result of one check."""

    subject: str
    result: str
    advice: str = ""  # a suggested change, '' if none


def examine(record: RunRecord, games: GameFactory) -> Iterator[Finding]:
    """Checks the games of a run that has not begun, and yields the findings; takes about a minute.

    Raises:
        UserError: if the games cannot be played.
    """
    facts = games.describe()
    with error_context(record.scenario.game.title):
        find_games_distribution(games)
    yield Finding("game", facts.title)
    if isinstance(record.scenario.game, DoomSpec):
        yield _list_maps(record.scenario.game)
    play = play_at_random(games, record.config.seed)
    yield _check_pixels(record, play)
    if facts.left_out:
        yield Finding("left out", ", ".join(facts.left_out))
    if play.unusable.size:
        yield _check_numbers(record, play, facts.labels)
    yield _check_scores(record, play)
    yield _check_rewards(record, play)
    yield _check_lengths(record, games, play)
    yield _check_actions(record, games)
    yield _check_speed(record, play)
    if games.agents > 1:
        yield _check_matches(record, games)
    yield _check_memory()
    yield _check_disk(record)


def _list_maps(game: DoomSpec) -> Finding:
    maps = [name.lower() for name in list_maps(locate(game.wad or game.iwad or FREEDOOM))]
    others = [name for name in maps if name != game.map_played]
    more = f"; it also has {', '.join(others[:8])}{' ...' if len(others) > 8 else ''}" if others else ""
    return Finding("maps", f"{game.map_played} of {game.title} is played{more}")


def _check_pixels(record: RunRecord, play: RandomPlay) -> Finding:
    pictures = [pixels for each in play.observations if (pixels := read_pixels(each)) is not None]
    if not pictures:
        return Finding("network sees", f"{play.unusable.size} numbers")
    height, width, channels = pictures[0].shape
    newest = [newest_picture(each, record.scenario.observation.stack) for each in pictures]
    sheet = output_folder(record.config.frames_dir, "--frames-dir") / f"{record.scenario.name}-seen.png"
    _write_sheet(newest, sheet)
    beside = f" and {play.unusable.size} numbers" if play.unusable.size else ""
    says = f"{height}x{width} pixels, {channels} channel{'s' * (channels > 1)}{beside}: look at {sheet}"
    dark, brightest = float(np.std(np.stack(newest))) < _DARK, int(np.max(newest))
    if isinstance(record.scenario.game, DoomSpec):
        cure = "crop less, or check that the map is lit"
    else:  # grid worlds may encode objects by small numbers
        dark, cure = dark and not any(np.ptp(picture) for picture in newest), "every picture is a single colour"
        says += f", none brighter than {brightest} of 255" * (brightest < 32 and not dark)
    return Finding("network sees", says, f"almost nothing is visible: {cure}" * dark)


def _write_sheet(pictures: Sequence[NDArray[np.uint8]], target: Path) -> None:
    """Writes pictures of one size side by side, enlarged."""
    (height, width, _), (rows, columns) = pictures[0].shape, PICTURES
    sheet = np.zeros((rows * (height + 4), columns * (width + 4), 3), np.uint8)
    for place, picture in enumerate(pictures):
        top, left = place // columns * (height + 4) + 2, place % columns * (width + 4) + 2
        sheet[top : top + height, left : left + width] = picture
    Image.fromarray(sheet).resize((2 * sheet.shape[1], 2 * sheet.shape[0]), Image.Resampling.NEAREST).save(target)


def _check_numbers(record: RunRecord, play: RandomPlay, labels: Sequence[Label] | None) -> Finding:
    names = [name for label in labels or [Label("", play.unusable.shape)] for name in label.list_names()]
    if play.unusable.any():
        some = np.flatnonzero(play.unusable)[:6]
        shares = ", ".join(f"{names[index]} in {100 * play.unusable[index]:.3g}%" for index in some)
        advice = "return finite float32 numbers only: training cannot use NaN or infinity"
        return Finding("numbers seen", f"some are NaN or infinite: {shares} of observations", advice)
    largest = np.max([np.abs(read_numbers(each)) for each in play.observations], axis=0)
    large = [f"{name} {value:.4g}" for name, value in zip(names, largest, strict=True) if value > 10]
    doom = isinstance(record.scenario.game, DoomSpec)
    cure = "with variable_scales" if doom else "in the environment, or with gymnasium.wrappers.TransformObservation"
    advice = f"numbers above 10 drown the others: scale {', '.join(large[:6])} {cure}" if large else ""
    return Finding("numbers seen", f"the largest is {float(largest.max()):.4g}", advice)


def _check_scores(record: RunRecord, play: RandomPlay) -> Finding:
    if not play.scores:
        game = record.scenario.game
        if isinstance(game, DoomSpec) and (match := parse_match(game.match)):  # it always ends
            return Finding("random play", f"a match lasts {match.minutes:g} minutes, too long for a score here")
        settings = {DoomSpec: "episode_timeout", AtariSpec: "max_frames", GymnasiumSpec: "max_episode_steps"}
        advice = f"set a time-out, or a shorter one: {settings[type(game)]}"
        return Finding("random play", f"no episode ended within {PLAY_SECONDS:.0f} s", advice)
    scores = np.array(play.scores)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, low, high = (format_score(float(number)) for number in (scores.mean(), scores.min(), scores.max()))
    spread = f"mean {mean}, {low} to {high}"
    if play.missing:
        of = f"{len(scores)} of {len(scores) + play.missing} episodes, the shorter ones, in {PLAY_SECONDS:.0f} s"
        return Finding("random play", f"{spread}, {of}: not a baseline")
    return Finding("random play", f"{spread}, {len(scores)} episodes")


@np.errstate(over="ignore", invalid="ignore")
def _check_rewards(record: RunRecord, play: RandomPlay) -> Finding:
    config, paid = record.config, play.rewards[play.rewards != 0]
    if not np.isfinite(paid).all():
        return Finding("rewards", "some are not finite", "return finite rewards only: training cannot use NaN or infinity")
    if not len(paid):
        return Finding("rewards", "random play is never paid", "shape the reward, or bring the goal nearer to the start")
    sizes, often = np.abs(paid), len(paid) / len(play.rewards)
    typical, largest = float(np.quantile(sizes, 0.5, method="lower")), float(sizes.max())
    says = f"in {100 * often:.3g}% of steps; {format_score(typical)} typically, {format_score(largest)} at most"
    scaled = largest * config.reward_scale
    as_paid = config.reward_clip is None and not config.normalize_rewards
    if as_paid and not LOW <= scaled <= 10 * HIGH:
        best = 10.0 ** math.floor(math.log10(max(1e-300, min(1e300, HIGH / largest))))
        return Finding("rewards", says, f"learned from best at about 1: --normalize-rewards, or --reward-scale {best:g}")
    if often < 0.001:
        return Finding("rewards", says, "rare: shape the reward, or explore longer (--entropy-cost)")
    if config.normalize_rewards:
        return Finding("rewards", f"{says}; divided by the spread of their discounted sums")
    return Finding("rewards", f"{says}; times reward_scale {config.reward_scale:g}: {scaled:.3g} at most")


def _check_lengths(record: RunRecord, games: GameFactory, play: RandomPlay) -> Finding:
    config = record.config
    horizon = 1 / max(1e-9, 1 - config.discount)
    if not play.lengths:
        return Finding("episodes", f"longer than {len(play.rewards) // GAMES:,} steps")
    length = float(np.mean(play.lengths))
    seconds = length / games.steps_per_second
    average = "or more on average" if play.missing else "on average"
    says = (
        f"{length:.0f} steps ({seconds:.1f} s) {average}, {play.time_outs} of {len(play.lengths)} by time-out; "
        f"the discount looks {horizon:.0f} steps ahead, a rollout has {config.rollout_length}"
    )
    rare = np.mean(play.rewards != 0) < 0.02
    if rare and horizon < length / 3:
        discount = 1 - float(f"{1 / length:.1g}")  # below 1, however long the episodes are
        return Finding("episodes", says, f"rare rewards need a longer horizon: --discount {discount:.6g}")
    return Finding("episodes", says)


def _check_actions(record: RunRecord, games: GameFactory) -> Finding:
    """Tries every action from the start of some episodes; actions with the same outcomes are taken to do the same."""
    names, outcomes = try_actions(games)
    same: dict[tuple[bytes, ...], list[str]] = {}
    for name, outcome in zip(names, outcomes, strict=False):
        if any(outcome):  # an action that was forbidden at each start shows nothing
            same.setdefault(outcome, []).append(name)
    twins = [group for group in same.values() if len(group) > 1]
    idle = next((name for name in names if name in ("NOTHING", "NOOP")), None)
    advice = ""
    if len(names) == 1:
        advice = "with a single action there is nothing to learn: check the action space"
    elif twins:
        advice = _advise_on_twins(record, twins, idle)
    elif isinstance(record.scenario.game, DoomSpec) and idle is None:
        advice = "no action presses nothing: where waiting pays, add [] to [game] buttons"
    return Finding(
        "actions", f"{len(outcomes)} of {len(names)} tried, {TRIAL_STEPS} steps in {TRIALS} episodes each", advice
    )


def _advise_on_twins(record: RunRecord, twins: Sequence[Sequence[str]], idle: str | None) -> str:
    nothing = [name for group in twins if idle in group for name in group if name != idle]
    parts = [f"{', '.join(nothing)} do{'es' * (len(nothing) == 1)} nothing"] * bool(nothing)
    parts += [f"{', '.join(group)} do the same" for group in twins if idle not in group]
    atari = isinstance(record.scenario.game, AtariSpec)
    cure = "normal on this console, and harmless" if atari else "leave out actions without an effect"
    return f"{'; '.join(parts)} in the first {TRIAL_STEPS} steps: {cure}"


def _check_speed(record: RunRecord, play: RandomPlay) -> Finding:
    config, skip = record.config, record.scenario.game.frame_skip
    rate = play.steps_per_second * skip
    minutes = config.frames / rate / 60
    says = f"{rate:,.0f} frames/s in one process: {config.frames:,} frames take {max(1.0, minutes):,.0f} min at least"
    slow = rate < 1000 and isinstance(record.scenario.game, GymnasiumSpec) and not config.game_processes
    return Finding("speed", says, f"--game-processes {cpu_count()} plays on all CPUs" if slow else "")


def _check_matches(record: RunRecord, games: GameFactory) -> Finding:
    """Plays several matches side by side: while a match's engines wait for each other, other matches may use the CPUs."""
    skip, config = record.scenario.game.frame_skip, record.config
    rates = {matches: skip * measure_matches(games, matches) for matches in MATCHES}
    best = max(matches for matches, rate in rates.items() if rate >= _ENOUGH * max(rates.values()))
    says = ", ".join(f"{matches}: {rate:,.0f} frames/s" for matches, rate in rates.items())
    planned, enough = config.env_count // games.agents, max(1, best // config.worker_count) * games.agents
    advice = f"{planned} matches side by side are planned, {best} play faster: --envs-per-worker {enough}"
    return Finding("matches", f"side by side, all players counted, {says}", advice if planned > best else "")


def _check_memory() -> Finding:
    available = _read_available_bytes()
    shared = shutil.disk_usage("/dev/shm").free
    scarce = min(available, 4 * shared) < 1e9
    advice = "a few hundred MB are little: fewer --envs-per-worker, or Docker's --shm-size=1g" if scarce else ""
    return Finding("memory", f"{format_size(available)} free, {format_size(shared)} in /dev/shm", advice)


def _read_available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def _check_disk(record: RunRecord) -> Finding:
    folder = next(each for each in (expand(record.config.models_dir).absolute() / "x").parents if each.exists())
    free, needed = shutil.disk_usage(folder).free, 4 * _SLOTS * most_parameters(record.scenario) * _CHECKPOINTS
    players = f"{record.config.worker_count} workers x {record.config.envs_per_worker} games"
    says = f"{format_size(free)} free for {format_size(needed)} of checkpoints at most; {players}"
    return Finding("disk", says, "checkpoints may not fit: name another --models-dir" if free < 2 * needed else "")
