"""The record of a run: all that a checkpoint holds besides variables, and that everything continues from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast, get_args

from doom_a3c.algorithm.running_moments import NO_MOMENTS
from doom_a3c.record.metrics.progress import Counters, EvaluationPoint, Progress, from_plain, parse_evaluation, to_plain
from doom_a3c.run.checkpoints.names import make_run_name
from doom_a3c.settings import scenarios
from doom_a3c.settings.checks import is_name, parse_name
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context, first_line, require
from doom_a3c.settings.fields import parse_finite, parse_int, to_flat
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.levels import check_files
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride, check_game_allowed, choose_override

FORMAT = 6
_BEST_KEYS = {"best_evaluation", "confirmed", "policy", "evaluations"}
_KEYS = {"format", "run", "restarts", "scenario", "config", "progress"} | _BEST_KEYS
MAX_EVALUATIONS = 1000  # that are kept


PolicyName = Literal["greedy", "sample"]  # the likeliest action, or a draw


class Best(NamedTuple):
    """What is known by the evaluations of a run."""

    score: float | None = None  # None before there is any
    policy: PolicyName = "greedy"  # the better one in the newest
    evaluations: tuple[EvaluationPoint, ...] = ()  # all, or every n-th where there are many
    confirmed: bool = (
        False  # the score is of games that have chosen neither weights nor policy; else it is too high by chance
    )

    def after(self, evaluation: EvaluationPoint, is_best: bool) -> Best:
        """Returns what is known after one more evaluation."""
        kept = self.evaluations if len(self.evaluations) < MAX_EVALUATIONS else self.evaluations[1::2]
        score, confirmed = (evaluation.score, False) if is_best else (self.score, self.confirmed)
        return Best(score, better_policy(evaluation), (*kept, evaluation), confirmed)

    def of(self, frames: int, policy: PolicyName) -> Best:
        """Returns the part for the checkpoint of the best weights, made after `frames`: without later evaluations."""
        return self._replace(policy=policy, evaluations=tuple(one for one in self.evaluations if one.frames <= frames))


def better_policy(evaluation: EvaluationPoint) -> PolicyName:
    """Returns the policy that scored higher."""
    return "sample" if evaluation.sampled > evaluation.greedy else "greedy"


class RunRecord(NamedTuple):
    """What a run is and how far it has come, at one moment."""

    name: str  # of the run, and of its folders
    restarts: int  # how often it has been resumed
    scenario: scenarios.Scenario
    config: Config
    counters: Counters
    best: Best
    learned: DoomSpec | None = None  # whose buttons have been learned, where a user has named another game to play


class RunLabel(NamedTuple):
    """The identity of a run, and its best score, see `Best`."""

    run: str
    scenario: str
    score: float | None
    confirmed: bool


def record_to_plain(record: RunRecord) -> dict[str, Any]:
    """Returns a record as plain data, for JSON: others may read it, so it does not say where files of the user's lie."""
    scenario, config = scenarios.to_plain(record.scenario), to_flat(record.config)
    for table, key in ((scenario["game"], "wad"), (scenario["game"], "iwad"), (config, "scenario")):
        if os.path.isabs(table.get(key, "")):
            table[key] = f"./{os.path.basename(table[key])}"  # a bare name is a file of ViZDoom's
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
    }


def find_needed_override(record: RunRecord) -> GameOverride:
    """Returns what a user has to name again where a checkpoint with this record is loaded."""
    return choose_override(
        record_to_plain(record)["scenario"]["game"], getattr(record.scenario.game, "wad", ""), record.config.scenario
    )


def record_from_plain(data: Any, source: str, override: GameOverride = NO_OVERRIDE) -> RunRecord:
    """Returns the record that `record_to_plain` made plain, after checking every value in it; `data` may be anybody's.

    Raises:
        UserError: naming `source`, if it is of another format, no whole record, or plays what only a user may name.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise UserError(
            f"{source} was written by another version of doom_a3c: read it with that one, this one reads format {FORMAT}"
        )
    try:
        if unknown := data.keys() - _KEYS:
            raise ValueError(f"it has {', '.join(sorted(unknown))[:100]}")
        tables = {**data["scenario"], "game": check_game_allowed(data["scenario"]["game"], source, override)}
        with error_context(source):
            scenario = scenarios.from_plain(tables, "its scenario")
            check_files(scenario.game)
            learned = _read_learned_game(data["scenario"]) if override.scenario else None
            scenario, config = scenarios.apply_overrides(scenario, data["config"], "its settings")
        return RunRecord(
            parse_name(data["run"]),
            parse_int(data["restarts"], "restarts"),
            scenario,
            config,
            from_plain(data["progress"]),
            _parse_best(data),
            learned,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        typed = isinstance(error, TypeError | AttributeError)  # whose words are about this program
        why = "a value of another type" if typed else f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{source} is not a complete checkpoint of doom_a3c ({why})") from None


def label_from_plain(data: Any) -> RunLabel:
    """Returns the label of a record, whatever game it is of; raises KeyError or ValueError else."""
    try:
        names = parse_name(data["run"]), parse_name(data["scenario"]["name"])
        return RunLabel(*names, _parse_score(data["best_evaluation"]), _parse_confirmed(data["confirmed"]))
    except TypeError as error:  # it is no table
        raise ValueError(str(error)) from None


def begin_run(scenario: scenarios.Scenario, config: Config, name: str | None = None) -> RunRecord:
    """Returns the record of a run that begins now, by a name that tells runs apart: what it is called, seed and time.

    Raises:
        UserError: if it cannot be called so.
    """
    named = make_run_name(scenario.name if name is None else name, config.seed)
    own = f"the scenario's name, {scenario.name[:40]!r}..., cannot name a run, set --name"
    wanted = own if name is None else f"--name {name!r}"
    require(is_name(named) and name != "", f"{wanted}: a name is a line of 180 characters at most, without slashes and ~")
    return RunRecord(named, 0, scenario, config, Progress().counters(), Best())


def continue_run(old: RunRecord, scenario: scenarios.Scenario, config: Config) -> RunRecord:
    """Returns the record of a run that is resumed with such settings."""
    counters, best = old.counters, old.best
    if old.scenario.name != scenario.name:  # scores of another game are no measure
        counters = counters._replace(scores=(), curve=(), stride=1, halvings=0)
        best = best._replace(score=None, evaluations=(), confirmed=False)
    if (old.scenario.game, old.config.discount) != (scenario.game, config.discount):
        counters = counters._replace(reward_sums=NO_MOMENTS)
    return RunRecord(old.name, old.restarts + 1, scenario, config, counters, best, old.learned)


def _read_learned_game(scenario: Mapping[str, Any]) -> DoomSpec | None:
    """Returns the buttons of a checkpoint's own game, None where it is no game of Doom's."""
    game = {key: scenario["game"].get(key) for key in ("available_buttons", "buttons")}
    if not all(game.values()):
        return None
    learned = scenarios.from_plain({"name": "learned", "game": game}, "its own").game
    return learned if isinstance(learned, DoomSpec) else None


def _parse_best(data: Mapping[str, Any]) -> Best:
    evaluations, policy = data["evaluations"], data["policy"]
    if len(evaluations) > MAX_EVALUATIONS:
        raise ValueError("there are too many evaluations")
    if policy not in get_args(PolicyName):
        raise ValueError(f"policy {policy!r}")
    points = tuple(parse_evaluation(*evaluation) for evaluation in evaluations)
    score, confirmed = _parse_score(data["best_evaluation"]), _parse_confirmed(data["confirmed"])
    return Best(score, cast(PolicyName, policy), points, confirmed)


def _parse_score(value: Any) -> float | None:
    return None if value is None else parse_finite(value, "best_evaluation")


def _parse_confirmed(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("confirmed is true or false")
    return value
