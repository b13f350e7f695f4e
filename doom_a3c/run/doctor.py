"""What a person would check before training on a game: what is seen, what is paid, which buttons do something, and room."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from PIL import Image

from doom_a3c.envs.games import Games
from doom_a3c.record.files import output_folder
from doom_a3c.record.overlay import newest_picture
from doom_a3c.run.run_record import RunRecord
from doom_a3c.settings.derived import cpu_count, worker_count
from doom_a3c.settings.fields import UserError
from doom_a3c.settings.formatting import format_score
from doom_a3c.settings.games import FREEDOOM, AtariSpec, DoomSpec, GymnasiumSpec, located
from doom_a3c.settings.inputs import expanded
from doom_a3c.settings.scenarios import most_parameters
from doom_a3c.settings.streams import Stream, seed_of
from doom_a3c.settings.tree import map_nested
from doom_a3c.settings.wads import maps_in

GAMES = 8  # that are played at random ...
PLAY_SECONDS, EPISODES = 15.0, 4  # ... for so long at most, or until each has had so many episodes
TRIAL_STEPS, TRIALS = 8, 3  # of each action, from the beginning of so many episodes
TRIAL_SECONDS = 15.0
PICTURES = (3, 6)  # rows and columns of them, of what the network sees
LOW, HIGH = 0.01, 1.0  # a reward, scaled, that is learned from well
_SLOTS = 3  # of an optimizer and the weights, in numbers for each weight
_CHECKPOINTS = 8  # that lie in the models folder at once, at most
_QUIETLY = np.errstate(over="ignore", invalid="ignore")  # rewards may be infinite, or too many for their sum


class Finding(NamedTuple):
    """One thing that has been looked at."""

    what: str
    says: str
    advice: str = ""  # what to do about it, '' where all is well


class Play(NamedTuple):
    """Random play of some games."""

    scores: list[float]
    lengths: list[int]  # of the episodes, in steps
    time_outs: int  # of them
    missing: int  # episodes that the clock has cut off or kept from beginning: the longer ones
    rewards: NDArray[np.float64]  # of all steps
    seen: list[Any]  # observations of one game
    unusable: NDArray[np.float64]  # share of observations in which each number was NaN or infinite, [V]
    steps_per_second: float


def findings(record: RunRecord, games: Games) -> Iterator[Finding]:
    """Looks at the games of a run that might begin, and yields what there is to say, in about a minute.

    Raises:
        UserError: if they cannot be played.
    """
    facts = games.facts()
    if not isinstance(facts.actions, Discrete):
        raise UserError(f"{record.scenario.game.title}: its actions are {facts.actions}; the agent takes Discrete ones")
    yield Finding("game", facts.title)
    yield from _maps(record)
    play = _played(games, record.config.seed)
    yield _seen(record, play)
    yield from _numbers(record, play)
    yield _scores(record, play)
    yield _rewards(record, play)
    yield _lengths(record, games, play)
    yield from _actions(record, games, list(facts.action_names or ()))
    yield _speed(record, play)
    yield _memory()
    yield _disk(record)


def _maps(record: RunRecord) -> Iterator[Finding]:
    game = record.scenario.game
    if isinstance(game, DoomSpec):
        maps = [name.lower() for name in maps_in(located(game.wad or game.iwad or FREEDOOM))]
        played = game.map_played
        others = [name for name in maps if name != played]
        more = f"; it also has {', '.join(others[:8])}{' ...' if len(others) > 8 else ''}" if others else ""
        yield Finding("maps", f"{played} of {game.title} is played{more}")


@_QUIETLY
def _played(games: Games, seed: int) -> Play:
    """Plays games at random."""
    random, wanted = np.random.default_rng(seed_of(seed, Stream.RANDOM_PLAY)), math.prod(PICTURES)
    scores: list[float] = []
    lengths: list[int] = []
    time_outs = 0
    rewards: list[NDArray[np.float64]] = []
    seen: list[Any] = []
    unusable: list[NDArray[np.float64]] = []
    with closing(games.vector(GAMES, limited=True)) as env:
        observations, _ = env.reset(seed=seed)
        totals, ages, start = np.zeros(GAMES), np.zeros(GAMES, int), time.monotonic()
        ended = np.zeros(GAMES, int)
        while time.monotonic() - start < PLAY_SECONDS and ended.min() < EPISODES:
            if len(seen) < wanted and (len(rewards) < wanted // 2 or len(rewards) % 7 == 0):
                seen.append(map_nested(lambda array: np.array(array[0]), observations))
            actions = random.integers(env.single_action_space.n, size=GAMES)  # type: ignore[attr-defined]  # discrete
            observations, paid, terminated, truncated, infos = env.step(actions)
            unusable.append(_unusable(observations))
            rewards.append(np.asarray(paid, np.float64))
            totals += paid
            ages += 1
            for game in np.flatnonzero(terminated | truncated):
                if ended[game] < EPISODES:  # the first to end of all games would be the shortest
                    scores.append(float(totals[game]))
                    lengths.append(int(ages[game]))
                    time_outs += bool(truncated[game])
                    ended[game] += 1
                unusable.append(_unusable(map_nested(lambda array: array[None], infos["final_obs"][game])))
                totals[game] = ages[game] = 0
        seconds = time.monotonic() - start
    rate, missing = len(rewards) * GAMES / seconds, GAMES * EPISODES - len(scores)
    return Play(scores, lengths, time_outs, missing, np.concatenate(rewards), seen, np.mean(unusable, axis=0), rate)


def _numbers_of(observations: Any) -> NDArray[np.float32]:
    """Returns the numbers of observations, which may have pixels too, or none but those."""
    numbers = observations["variables"] if isinstance(observations, dict) else observations
    return numbers if numbers.dtype == np.float32 else np.empty((*numbers.shape[:-3], 0), np.float32)


def _unusable(observations: Any) -> NDArray[np.float64]:
    """Returns the share of those observations, [B, ...], in which each number is NaN or infinite, [V]."""
    share: NDArray[np.float64] = np.mean(~np.isfinite(_numbers_of(observations)), axis=0)
    return share


def _pixels(seen: Any) -> Any:
    """Returns the pixels of an observation, None where it has none."""
    pixels = seen["pixels"] if isinstance(seen, dict) else seen
    return pixels if pixels.ndim == 3 else None


def _seen(record: RunRecord, play: Play) -> Finding:
    """Writes a sheet of what the network sees."""
    pictures = [_pixels(each) for each in play.seen]
    if pictures[0] is None:
        return Finding("network sees", f"{play.seen[0].shape[0]} numbers")
    height, width, channels = pictures[0].shape
    newest = [newest_picture(each, record.scenario.observation.stack) for each in pictures]
    rows, columns = PICTURES
    sheet = np.zeros((rows * (height + 4), columns * (width + 4), 3), np.uint8)
    for place, picture in enumerate(newest):
        top, left = place // columns * (height + 4) + 2, place % columns * (width + 4) + 2
        sheet[top : top + height, left : left + width] = picture
    target = output_folder(record.config.frames_dir, "--frames-dir") / f"{record.scenario.name}-seen.png"
    Image.fromarray(sheet).resize((2 * sheet.shape[1], 2 * sheet.shape[0]), Image.Resampling.NEAREST).save(target)
    says = f"{height}x{width} pixels, {channels} channel{'s' * (channels > 1)}: look at {target}"
    spread, brightest = float(np.std(np.stack(newest))), int(np.max(newest))
    if isinstance(record.scenario.game, DoomSpec):
        dark, cure = spread < 4.0, "crop less, or check that the map is lit"
    else:  # a grid may show what lies where by small numbers
        dark, cure = spread < 4.0 and not any(np.ptp(picture) for picture in newest), "every picture is a single colour"
        says += f", none brighter than {brightest} of 255" * (brightest < 32 and not dark)
    return Finding("network sees", says, f"almost nothing is visible: {cure}" * dark)


def _numbers(record: RunRecord, play: Play) -> Iterator[Finding]:
    if not play.unusable.size:
        return
    if play.unusable.any():
        never = ", ".join(f"[{index}] in {100 * play.unusable[index]:.3g}%" for index in np.flatnonzero(play.unusable)[:6])
        advice = "return finite float32 numbers only: training cannot use NaN or infinity"
        yield Finding("numbers seen", f"some are NaN or infinite: {never} of steps", advice)
        return
    largest = np.max([np.abs(_numbers_of(each)) for each in play.seen], axis=0)
    large = [f"[{index}] {value:.4g}" for index, value in enumerate(largest) if value > 10]
    doom = isinstance(record.scenario.game, DoomSpec)
    cure = "with variable_scales" if doom else "in the environment, or with gymnasium.wrappers.TransformObservation"
    advice = f"numbers above 10 drown the others: scale {', '.join(large[:6])} {cure}" if large else ""
    yield Finding("numbers seen", f"the largest is {float(largest.max()):.4g}", advice)


@_QUIETLY
def _scores(record: RunRecord, play: Play) -> Finding:
    if not play.scores:
        settings = {DoomSpec: "episode_timeout", AtariSpec: "max_frames", GymnasiumSpec: "max_episode_steps"}
        advice = f"set a time-out, or a shorter one: {settings[type(record.scenario.game)]}"
        return Finding("random play", f"no episode ended within {PLAY_SECONDS:.0f} s", advice)
    scores = np.array(play.scores)
    mean, low, high = (format_score(float(number)) for number in (scores.mean(), scores.min(), scores.max()))
    spread = f"mean {mean}, {low} to {high}"
    if play.missing:
        of = f"{len(scores)} of {len(scores) + play.missing} episodes, the shorter ones, in {PLAY_SECONDS:.0f} s"
        return Finding("random play", f"{spread}, {of}: not a baseline")
    return Finding("random play", f"{spread}, {len(scores)} episodes")


@_QUIETLY
def _rewards(record: RunRecord, play: Play) -> Finding:
    config, paid = record.config, play.rewards[play.rewards != 0]
    if not np.isfinite(paid).all():
        return Finding("rewards", "some are not finite", "an environment may pay numbers alone: NaN is never learned from")
    if not len(paid):
        return Finding("rewards", "random play is never paid", "shape the reward, or bring the goal nearer to the start")
    sizes = np.abs(paid)
    often, typical, largest = len(paid) / len(play.rewards), float(np.median(sizes)), float(sizes.max())
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


def _lengths(record: RunRecord, games: Games, play: Play) -> Finding:
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
        return Finding("episodes", says, f"what is rarely paid must be seen from afar: --discount {1 - 1 / length:.3f}")
    return Finding("episodes", says)


def _actions(record: RunRecord, games: Games, names: list[str]) -> Iterator[Finding]:
    """Tries every action from the beginning of some episodes: whether two of them do the same shows there."""
    start = time.monotonic()
    courses: list[list[bytes]] = []
    with closing(games.vector(1, limited=True)) as env:
        count = int(env.single_action_space.n)  # type: ignore[attr-defined]  # discrete
        names = names or [f"action {index}" for index in range(count)]
        for action in range(count):
            if time.monotonic() - start > TRIAL_SECONDS:
                break
            courses.append([_course(env, action, seed) for seed in range(TRIALS)])
    same: dict[tuple[bytes, ...], list[str]] = {}
    for name, course in zip(names, courses, strict=False):
        same.setdefault(tuple(course), []).append(name)
    twins = [group for group in same.values() if len(group) > 1]
    idle = next((name for name in names if name in ("NOTHING", "NOOP")), None)
    advice = ""
    if count == 1:
        advice = "with a single action there is nothing to learn: check the action space"
    elif twins:
        nothing = [name for group in twins if idle in group for name in group if name != idle]
        others = [" = ".join(group) for group in twins if idle not in group]
        told = [f"{' '.join(nothing)} do{'es' * (len(nothing) == 1)} nothing"] * bool(nothing) + others
        given = isinstance(record.scenario.game, AtariSpec)
        cure = "normal on this console, and harmless" if given else "leave out what never does anything"
        advice = f"{'; '.join(told)} in the first {TRIAL_STEPS} steps: {cure}"
    elif isinstance(record.scenario.game, DoomSpec) and idle is None:
        advice = "no action presses nothing: where waiting pays, add [] to [game] buttons"
    yield Finding("actions", f"{len(courses)} of {len(names)} tried, {TRIAL_STEPS} steps in {TRIALS} episodes each", advice)


def _course(env: Any, action: int, seed: int) -> bytes:
    """Returns what comes of an action that is taken again and again from the beginning of an episode."""
    observations, _ = env.reset(seed=np.array([seed]))
    parts: list[bytes] = []
    for _ in range(TRIAL_STEPS):
        observations, rewards, terminated, truncated, _ = env.step(np.array([action]))
        arrays = observations.values() if isinstance(observations, dict) else [observations]
        parts += [np.asarray(array).tobytes() for array in (*arrays, rewards)]
        if terminated[0] or truncated[0]:
            break
    return b"".join(parts)


def _speed(record: RunRecord, play: Play) -> Finding:
    config, skip = record.config, record.scenario.game.frame_skip
    rate = play.steps_per_second * skip
    minutes = config.frames / rate / 60
    says = f"{rate:,.0f} frames/s in one process: {config.frames:,} frames take {max(1.0, minutes):,.0f} min at least"
    slow = rate < 1000 and isinstance(record.scenario.game, GymnasiumSpec) and not config.game_processes
    return Finding("speed", says, f"--game-processes {cpu_count()} plays on all CPUs" if slow else "")


def _memory() -> Finding:
    available = _available_megabytes()
    shared = shutil.disk_usage("/dev/shm").free / 1e6 if Path("/dev/shm").exists() else 0.0
    advice = (
        "a few hundred MB are little: fewer --games, or Docker's --shm-size=1g" if min(available, 4 * shared) < 1000 else ""
    )
    return Finding("memory", f"{available:,.0f} MB free, {shared:,.0f} MB in /dev/shm", advice)


def _available_megabytes() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return math.inf


def _disk(record: RunRecord) -> Finding:
    folder = next(each for each in (expanded(record.config.models_dir).absolute() / "x").parents if each.exists())
    free, needed = shutil.disk_usage(folder).free / 1e6, 4e-6 * _SLOTS * most_parameters(record.scenario) * _CHECKPOINTS
    workers = worker_count(record.config)
    says = (
        f"{free:,.0f} MB free for {needed:,.0f} MB of checkpoints at most; {workers} workers x {record.config.games} games"
    )
    return Finding("disk", says, "checkpoints may not fit: name another --models-dir" if free < 2 * needed else "")
