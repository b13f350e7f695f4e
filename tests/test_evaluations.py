"""Evaluations of a run: which weights are evaluated, and which are the best."""

import math

import numpy as np
import pytest
from run_fakes import ScriptedEngine, ScriptedEvaluator, tiny_record

from doom_a3c.record.progress import EvaluationPoint
from doom_a3c.run.checkpoint import load
from doom_a3c.run.evaluation import Evaluations
from doom_a3c.run.folder import CheckpointFolder
from doom_a3c.run.run_record import Best
from doom_a3c.run.saver import Saver


@pytest.fixture
def engine():
    return ScriptedEngine()


def evaluations_of(engine, means, report=lambda *evaluation: None, best=Best()):  # noqa: B008  # a value
    evaluator = ScriptedEvaluator(means)
    return Evaluations(evaluator, episodes=1, every=0.0, capture=engine.capture, report=report, best=best)


def test_only_a_better_evaluation_replaces_the_best_checkpoint(engine, tmp_path):
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print)

    def report(evaluation, state, best, is_best):
        if is_best:
            saver.save_best(state, best)

    evaluations = evaluations_of(engine, [10.0, 70.0, -300.0, 70.0], report)
    policies = []
    kept = []
    for version in range(1, 5):
        engine.update(0.1)
        evaluations.evaluate()
        assert engine.model.version == version
        saver.save(engine.capture(), evaluations.best)
        kept.append(load(tmp_path / "best.ckpt").variables["policy/kernel"])
        policies.append([load(tmp_path / name).record.best.policy for name in ("best.ckpt", "last.ckpt")])
    assert not np.array_equal(kept[0], kept[1])
    assert np.array_equal(kept[1], kept[2])  # a collapse leaves the best alone
    assert not np.array_equal(kept[2], kept[3])  # as good and newer
    assert load(tmp_path / "best.ckpt").record.best.score == 70.0
    assert policies == [["sample", "sample"], ["greedy", "greedy"], ["greedy", "sample"], ["greedy", "greedy"]]


def test_unchanged_weights_are_not_evaluated_twice(engine):
    evaluations = evaluations_of(engine, [10.0])
    evaluations.evaluate()
    evaluations.evaluate()  # a second evaluation would find no score left
    assert evaluations.best.score == 11.0  # of the sampled policy


def test_what_is_reported_are_the_weights_that_were_evaluated(engine):
    reports = []
    evaluations = evaluations_of(engine, [10.0, 5.0], lambda *report: reports.append(report), best=Best(8.0, "greedy"))
    for _ in range(2):
        engine.update(0.1)
        evaluations.evaluate()
    first, second = EvaluationPoint(0, 10.0, 0.0, 11.0, 0.0), EvaluationPoint(0, 5.0, 0.0, 6.0, 0.0)
    assert [(evaluation.score, best, is_best) for evaluation, _, best, is_best in reports] == [
        (11.0, Best(11.0, "sample", (first,)), True),
        (6.0, Best(11.0, "sample", (first, second)), False),
    ]
    assert [state.counters.updates for _, state, _, _ in reports] == [1, 2]
    assert not np.array_equal(*(state.variables["policy/kernel"] for _, state, _, _ in reports))


def test_an_evaluation_that_is_not_finite_is_never_the_best(engine):
    evaluations, bests = evaluations_of(engine, [math.nan, 10.0, math.nan]), []
    for _ in range(3):
        engine.update(0.1)
        evaluations.evaluate()
        bests.append(evaluations.best.score)
    assert bests == [None, 11.0, 11.0]


def test_weights_that_are_not_finite_are_not_evaluated(engine):
    engine.update(0.1)
    state = engine.capture()
    state.variables["policy/kernel"][...] = math.nan
    engine.capture = lambda: state
    evaluations = evaluations_of(engine, [10.0])
    evaluations.evaluate()
    assert evaluations.best.score is None
