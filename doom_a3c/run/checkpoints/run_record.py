"""The record of a run: everything in a checkpoint except its arrays; and the names of runs."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, get_args

from doom_a3c.algorithm.running_moments import NO_MOMENTS
from doom_a3c.record.metrics.counters import Counters, EvaluationPoint, from_plain, parse_evaluation, to_plain
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings import scenarios
from doom_a3c.settings.checks import is_name, parse_name
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context, first_line, require
from doom_a3c.settings.fields import parse_finite, parse_int, to_flat
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.levels import check_files
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.sources import CHECKPOINT, FLAG
from doom_a3c.settings.training import OPPONENTS
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride, check_game_allowed, choose_override

FORMAT = 6
_BEST_KEYS = {"best_evaluation", "confirmed", "policy", "evaluations"}
_KEYS = {"format", "run", "restarts", "scenario", "config", "progress", "actions"} | _BEST_KEYS
MAX_ACTIONS = 10_000_000  # of any part: the network limits them further
MAX_EVALUATIONS = 1000  # in a record
_NAME = re.compile(r"(.+?)-seed\d+-\d{8}-\d{6}")  # of a run, such as 'basic-seed7-20261122-155611'

PolicyName = Literal["greedy", "sample"]  # the likeliest action, or a draw


class Best(NamedTuple):
    """The results of a run's evaluations."""

    score: float | None = None  # of the best weights; None before the first evaluation
    policy: PolicyName = "greedy"  # the better one in the newest evaluation
    evaluations: tuple[EvaluationPoint, ...] = ()  # all, or every n-th of many
    confirmed: bool = False  # whether the score's games selected neither weights nor policy; else it is biased upwards

    def add(self, evaluation: EvaluationPoint, is_best: bool) -> Best:
        """Returns the results with one more evaluation."""
        kept = self.evaluations if len(self.evaluations) < MAX_EVALUATIONS else self.evaluations[1::2]
        score, confirmed = (evaluation.score, False) if is_best else (self.score, self.confirmed)
        return Best(score, choose_policy(evaluation), (*kept, evaluation), confirmed)

    def cut_to(self, frames: int, policy: PolicyName) -> Best:
        """Returns the results for the checkpoint of the best weights: without evaluations after their `frames`."""
        return self._replace(policy=policy, evaluations=tuple(one for one in self.evaluations if one.frames <= frames))


def choose_policy(evaluation: EvaluationPoint) -> PolicyName:
    """Returns the policy that scored higher."""
    return "sample" if evaluation.sampled > evaluation.greedy else "greedy"


class ActionSizes(NamedTuple):
    """The parts of an action: networks with the same number of outputs may take different actions."""

    choices: tuple[int, ...]  # values of each choice
    numbers: int


class RunRecord(NamedTuple):
    """A run's identity, settings and progress at one moment."""

    name: str  # of the run, and of its folders
    restarts: int  # number of times it was resumed
    scenario: scenarios.Scenario
    config: Config
    counters: Counters
    best: Best
    actions: ActionSizes | None = None  # of the network; None in a checkpoint of an earlier version
    learned: DoomSpec | None = None  # the game whose buttons the network learned, if the user overrides the game


class RunLabel(NamedTuple):
    """The identity of a run, and its best score, see `Best`."""

    run: str
    scenario: str
    score: float | None
    confirmed: bool
    opponents: str  # see `describe_opponents`


def record_to_plain(record: RunRecord) -> dict[str, Any]:
    """Returns a record as plain data for JSON, without the folders of the user's files: others may read it."""
    scenario, config = scenarios.to_plain(record.scenario), to_flat(record.config)
    for table, key in ((scenario["game"], "wad"), (scenario["game"], "iwad"), (config, "scenario")):
        if os.path.isabs(table.get(key, "")):
            table[key] = f"./{os.path.basename(table[key])}"  # a bare name would be a file of ViZDoom
    config["opponents"] = os.path.basename(config["opponents"])  # of a checkpoint, which a resumed run must be given again
    return {
        "format": FORMAT,
        "run": record.name,
        "restarts": record.restarts,
        "scenario": scenario,
        "config": config,
        "progress": to_plain(record.counters),
        "best_evaluation": record.best.score,
        "confirmed": record.best.confirmed,
        "policy": record.best.policy,
        "evaluations": [list(evaluation) for evaluation in record.best.evaluations],
        **({"actions": [list(record.actions.choices), record.actions.numbers]} if record.actions else {}),
    }


def find_needed_override(record: RunRecord) -> GameOverride:
    """Returns the override that a user must repeat to load a checkpoint with this record."""
    return choose_override(
        record_to_plain(record)["scenario"]["game"], getattr(record.scenario.game, "wad", ""), record.config.scenario
    )


def format_needed_flags(record: RunRecord) -> str:
    """Returns these overrides as flags, each after a space; '' if none is needed."""
    needed = find_needed_override(record)
    flags = {"--wad": needed.wad, "--scenario": needed.scenario}
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags.items() if value)


def record_from_plain(data: Any, source: str, override: GameOverride = NO_OVERRIDE) -> RunRecord:
    """Parses a record from `record_to_plain`; checks every value, since `data` may be untrusted.

    Raises:
        UserError: naming `source`, if the format or a value is wrong, or the game needs the user's consent.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise UserError(f"{source} was written by another version of doom_a3c; this version reads format {FORMAT}")
    try:
        if unknown := data.keys() - _KEYS:
            raise ValueError(f"it has {', '.join(sorted(unknown))[:100]}")
        tables = {**data["scenario"], "game": check_game_allowed(data["scenario"]["game"], source, override)}
        with error_context(source):
            scenario = scenarios.from_plain(tables, "its scenario")
            check_files(scenario.game)
            learned = _read_learned_game(data["scenario"]) if override.scenario else None
            scenario, config = scenarios.apply_overrides(scenario, data["config"], "its settings")
            scenario = replace(scenario, sources=_find_sources(override))
        return RunRecord(
            parse_name(data["run"]),
            parse_int(data["restarts"], "restarts"),
            scenario,
            config,
            from_plain(data["progress"]),
            _parse_best(data),
            _parse_actions(data.get("actions")),
            learned,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        typed = isinstance(error, TypeError | AttributeError)  # their messages describe this program's code
        why = "a value has the wrong type" if typed else f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{source} is not a complete checkpoint of doom_a3c ({why})") from None


def label_from_plain(data: Any) -> RunLabel:
    """Parses the label of a record, without checking its game; raises KeyError, ValueError or UserError."""
    try:
        names = parse_name(data["run"]), parse_name(data["scenario"]["name"])
        score, confirmed = _parse_score(data["best_evaluation"]), _parse_confirmed(data["confirmed"])
        match = data["scenario"]["game"].get("match")  # of Doom alone
        opponents = _describe_opponents(match, data["config"]["opponents"]) if match else ""
        return RunLabel(*names, score, confirmed, opponents)
    except (TypeError, AttributeError) as error:  # not a table
        raise ValueError(str(error)) from None


def begin_run(scenario: scenarios.Scenario, config: Config, name: str | None = None) -> RunRecord:
    """Returns the record of a new run; `name` replaces the scenario's name in the name of the run.

    Raises:
        UserError: if the name is invalid.
    """
    named = make_run_name(scenario.name if name is None else name, config.seed)
    unusable = f"the scenario's name, {scenario.name[:40]!r}..., cannot name a run, set --name"
    source = unusable if name is None else f"--name {name!r}"
    require(is_name(named) and name != "", f"{source}: a name is one line of at most 180 characters, without slashes and ~")
    return RunRecord(named, 0, scenario, config, Progress().counters(), Best())


def continue_run(old: RunRecord, scenario: scenarios.Scenario, config: Config) -> RunRecord:
    """Returns the record of a resumed run with new settings."""
    counters, best = old.counters, old.best
    others = describe_opponents(old.scenario, old.config) != describe_opponents(scenario, config)
    if others or old.scenario.name != scenario.name:  # their scores cannot be compared
        counters = counters._replace(scores=(), lengths=(), curve=(), stride=1, halvings=0)
        best = best._replace(score=None, evaluations=(), confirmed=False)
    if (old.scenario.game, old.config.discount) != (scenario.game, config.discount):
        counters = counters._replace(reward_sums=NO_MOMENTS)
    return RunRecord(old.name, old.restarts + 1, scenario, config, counters, best, old.actions, old.learned)


def describe_opponents(scenario: scenarios.Scenario, config: Config) -> str:
    """Returns what the scores of a match depend on: its bots, a league, or a checkpoint; '' for other games."""
    return _describe_opponents(scenario.game.match, config.opponents) if isinstance(scenario.game, DoomSpec) else ""


def _describe_opponents(table: Mapping[str, Any], opponents: str) -> str:
    match = parse_match(table)
    if match is None:
        return ""
    if match.agents == 1:
        return "bots"
    return "league" if opponents in OPPONENTS else os.path.basename(opponents)


def _find_sources(override: GameOverride) -> dict[str, str]:
    """Returns the sources of a checkpoint's tables."""
    sources = dict.fromkeys(("game", "observation", "network"), CHECKPOINT)
    named = {"game": override.scenario, "game.wad": override.wad}
    return sources | {path: FLAG for path, value in named.items() if value}


def _read_learned_game(scenario: Mapping[str, Any]) -> DoomSpec | None:
    """Returns a checkpoint's own game, reduced to its buttons; None if it is not a Doom game."""
    game = {key: scenario["game"].get(key) for key in ("available_buttons", "buttons")}
    if not all(game.values()):
        return None
    learned = scenarios.from_plain({"name": "learned", "game": game}, "its own").game
    return learned if isinstance(learned, DoomSpec) else None


def _parse_actions(value: Any) -> ActionSizes | None:
    if value is None:
        return None
    choices, numbers = value
    sizes = tuple(parse_int(size, "actions", low=1, high=MAX_ACTIONS) for size in choices)
    return ActionSizes(sizes, parse_int(numbers, "actions", high=MAX_ACTIONS))


def _parse_best(data: Mapping[str, Any]) -> Best:
    evaluations, policy = data["evaluations"], data["policy"]
    if len(evaluations) > MAX_EVALUATIONS:
        raise ValueError("there are too many evaluations")
    if policy not in get_args(PolicyName):
        raise ValueError(f"policy {policy!r}")
    points = tuple(parse_evaluation(*evaluation) for evaluation in evaluations)
    score, confirmed = _parse_score(data["best_evaluation"]), _parse_confirmed(data["confirmed"])
    return Best(score, cast(PolicyName, policy), points, confirmed)


def _parse_score(value: object) -> float | None:
    return None if value is None else parse_finite(value, "best_evaluation")


def _parse_confirmed(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("confirmed must be true or false")
    return value


def make_run_name(title: str, seed: int) -> str:
    """Returns the name of a run that starts now."""
    return f"{title}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"


def is_run_name(name: str) -> bool:
    """Returns whether a name has the form of a run's name."""
    return _NAME.fullmatch(name) is not None


def find_scenario_name(name: str) -> str:
    """Returns the name of a run without seed and time: its scenario, or the --name of the run."""
    parts = _NAME.fullmatch(name)
    return parts[1] if parts else name
