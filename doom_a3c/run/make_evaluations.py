"""Makes a run's evaluator, and its evaluations, which save and report the best weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from doom_a3c.engines.engine import Engine
from doom_a3c.engines.state import State
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best, RunRecord, find_needed_override
from doom_a3c.run.evaluations import Evaluations, Leader
from doom_a3c.run.evaluator import Evaluation, Evaluator, Scores, count_games, read_score
from doom_a3c.run.league import League
from doom_a3c.run.opposition import make_rated_matches
from doom_a3c.run.reporter import Reporter
from doom_a3c.run.saver import Saver
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.streams import Stream, make_seed
from doom_a3c.settings.trust import GameOverride


def make_evaluator(record: RunRecord, builder: Builder, engine: Engine, league: League | None = None) -> Evaluator:
    """Returns the evaluator of a run, with its own network and games; with a `league`, they are matches against it."""
    config = record.config
    games = count_games(config.evaluation_episodes)
    env, read = (
        make_rated_matches(record, builder, league, games) if league else (builder.make_evaluation_env(games), read_score)
    )
    return Evaluator(
        env,
        builder.make_network("evaluator", config.seed),
        make_seed(config.seed, Stream.EVALUATION, record.restarts),
        config.evaluation_epsilon,
        engine.add_fault,
        read,
    )


class _SaveAndReport(NamedTuple):
    """Saves the best weights after each evaluation, and reports its result."""

    saver: Saver
    reporter: Reporter
    add_to_league: Callable[[State, float], None]

    def on_evaluation(self, evaluation: Evaluation, state: State, best: Best, is_best: bool) -> None:
        self.add_to_league(state, evaluation.sampled.mean)  # a member plays with sampled actions
        if is_best:
            self.saver.save_best(state, best)
        self.reporter.report_evaluation(evaluation, state, is_best)

    def on_reevaluation(self, evaluation: Evaluation, state: State, best: Best, stays_best: bool) -> None:
        self.saver.save_best(state, best)
        self.reporter.report_reevaluation(evaluation, stays_best)

    def on_best_confirmed(self, scores: Scores, state: State, best: Best) -> None:
        self.saver.save_best(state, best)
        self.reporter.report_confirmation(scores, state, best.policy)


def make_evaluations(
    record: RunRecord,
    evaluator: Evaluator,
    engine: Engine,
    checkpoints: CheckpointFolder,
    saver: Saver,
    reporter: Reporter,
    add_to_league: Callable[[State, float], None] = lambda state, rating: None,
) -> Evaluations:
    """Returns the evaluations of a run; they continue from the best of its earlier sessions.

    `add_to_league` receives each evaluated state with the mean score of the policy that a member plays, the sampled one.
    """
    return Evaluations(
        evaluator,
        episodes=record.config.evaluation_episodes,
        every=record.config.evaluate_every,
        capture=engine.capture,
        listener=_SaveAndReport(saver, reporter, add_to_league),
        best=record.best,
        load_earlier_best=partial(_load_best, checkpoints, find_needed_override(record)),
    )


def _load_best(checkpoints: CheckpointFolder, override: GameOverride) -> Leader | None:
    """Returns the weights of `best.ckpt`, None if it cannot be loaded; `override` is what the run's checkpoints need."""
    try:
        variables, record = load(checkpoints.best, override)
    except UserError:
        return None
    return Leader(State(variables, record.counters), record.best.policy)
