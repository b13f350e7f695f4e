"""Evaluations of a run: which weights are evaluated, which are the best, and how those score."""

import math
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from run_fakes import Listener, ScriptedEngine, ScriptedEvaluator, tiny_record

from doom_a3c.record.metrics.counters import EvaluationPoint
from doom_a3c.run import evaluations as module
from doom_a3c.run import make_evaluations
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best
from doom_a3c.run.evaluations import Evaluations
from doom_a3c.run.saver import Saver
from doom_a3c.settings.games import GymnasiumSpec


@pytest.fixture
def engine():
    return ScriptedEngine()


def ignored(*arguments):
    pass


def evaluations_of(engine, means, report=ignored, best=Best(), settle=ignored):  # noqa: B008  # a value
    listener = Listener(on_evaluation=report, on_reevaluation=settle)
    evaluator = ScriptedEvaluator(means)
    return Evaluations(evaluator, episodes=1, every=0.0, capture=engine.capture, best=best, listener=listener)


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
    assert not np.array_equal(kept[2], kept[3])  # equally good and newer
    assert load(tmp_path / "best.ckpt").record.best.score == 70.0
    assert policies == [["sample", "sample"], ["greedy", "greedy"], ["greedy", "sample"], ["greedy", "greedy"]]


def test_unchanged_weights_are_not_evaluated_twice(engine):
    evaluations = evaluations_of(engine, [10.0])
    evaluations.evaluate()
    evaluations.evaluate()  # a second evaluation would run out of scripted scores
    assert evaluations.best.score == 11.0  # of the sampling policy


def test_weights_are_evaluated_again_after_a_rollback(engine):
    evaluations, start = evaluations_of(engine, [10.0, 5.0]), engine.model.snapshot()
    evaluations.evaluate()
    engine.model.roll_back(start)
    evaluations.evaluate()
    assert len(evaluations.best.evaluations) == 2


def test_reports_contain_the_evaluated_weights(engine):
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


@pytest.mark.parametrize(
    ("means", "again", "version", "score", "policy"),
    [
        ([10.0, 2.0, 5.0], 7.0, 1, 8.0, "sample"),  # lucky, but still better: it keeps its second score
        ([10.0, 2.0, 5.0], 70.0, 1, 70.0, "greedy"),
        ([10.0, 2.0, 5.0], 5.0, 3, 6.0, "sample"),  # equally good and newer
        ([10.0, 2.0, 5.0], 1.0, 3, 6.0, "sample"),
        ([10.0, 2.0, 5.0], math.nan, 3, 6.0, "sample"),
        ([10.0, 2.0, 5.0], math.inf, 3, 6.0, "sample"),
        ([10.0, 2.0, 12.0], None, 3, 13.0, "sample"),  # the newest is the best anyway
        ([10.0, 2.0, math.nan], None, 1, 11.0, "sample"),
    ],
)
def test_a_rematch_decides_between_the_best_and_newest_weights(engine, tmp_path, means, again, version, score, policy):
    saver, settled = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print), []

    def report(evaluation, state, best, is_best):
        if is_best:
            saver.save_best(state, best)

    def settle(evaluation, state, best, stays):
        saver.save_best(state, best)
        settled.append((evaluation.greedy.mean, stays))

    evaluations, weights = evaluations_of(engine, [*means, *([] if again is None else [again])], report, settle=settle), []
    for _ in means:
        engine.update(0.1)
        weights.append(engine.capture().variables["policy/kernel"])
        evaluations.evaluate()
    evaluations.reevaluate_best()
    best = load(tmp_path / "best.ckpt")
    assert np.array_equal(best.variables["policy/kernel"], weights[version - 1])
    assert (best.record.best.score, best.record.best.policy) == (score, policy)
    assert evaluations.best.score == score
    assert len(evaluations.best.evaluations) == len([mean for mean in means if math.isfinite(mean)])
    assert len(settled) == (again is not None)
    assert all(stays == (version == 1) for _, stays in settled)
    if again is not None:
        assert np.array_equal(evaluations._evaluator.network.parameters[0].numpy(), weights[0])


def test_no_rematch_once_evaluation_has_been_given_up(engine):
    evaluations = evaluations_of(engine, [10.0, 5.0])  # and no third score
    for _ in range(2):
        engine.update(0.1)
        evaluations.evaluate()
    evaluations._given_up = True  # another thread still uses its games
    assert not evaluations.reevaluate_best()


def test_cutting_a_best_record_drops_later_evaluations():
    points = [EvaluationPoint(frames, 0.0, 1.0, 2.0, 1.0) for frames in (10, 20, 30)]
    known = Best(7.0, "sample", tuple(points)).cut_to(20, "greedy")
    assert (known.score, known.policy) == (7.0, "greedy")
    assert [each.frames for each in known.evaluations] == [10, 20]


def test_a_session_saves_and_reports_the_rematch_winner(engine, tmp_path):
    reported = []
    saver = Saver(CheckpointFolder(tmp_path), tiny_record(), 60.0, print)
    reporter = SimpleNamespace(report_evaluation=ignored, report_reevaluation=lambda *parts: reported.append(parts))
    evaluator = ScriptedEvaluator([10.0, 70.0, 4.0, 5.0, 3.0])  # the second is best by its greedy policy
    evaluations = make_evaluations.make_evaluations(
        tiny_record(), evaluator, engine, CheckpointFolder(tmp_path), saver, reporter
    )
    for _ in range(4):
        engine.update(0.1)
        evaluations.evaluate()
    assert load(tmp_path / "best.ckpt").record.best.score == 70.0
    assert evaluations.reevaluate_best()
    best = load(tmp_path / "best.ckpt")
    newest = engine.capture().variables
    assert all(np.array_equal(best.variables[name], newest[name]) for name in newest)
    assert best.record.best.score == evaluations.best.score == 6.0
    assert evaluations.best.policy == "sample"
    assert [stays for _, stays in reported] == [False]


def test_an_interrupted_rematch_settles_nothing(engine):
    evaluations = evaluations_of(engine, [10.0, 5.0], settle=lambda *arguments: pytest.fail("settled"))
    for _ in range(2):
        engine.update(0.1)
        evaluations.evaluate()
    evaluations._evaluator.evaluate = lambda *arguments: None
    evaluations.reevaluate_best()
    assert evaluations.best.score == 11.0


def test_an_unbeaten_earlier_best_is_not_reevaluated(engine):
    evaluations = evaluations_of(engine, [5.0], best=Best(8.0, "greedy"))
    engine.update(0.1)
    evaluations.evaluate()
    evaluations.reevaluate_best()  # a second evaluation would run out of scripted scores
    assert evaluations.best.score == 8.0


@pytest.mark.parametrize(
    ("means", "again", "best", "score"),
    [
        ([985.0, 500.0], [700.0, 980.0], "earlier", 981.0),  # one lucky evaluation of this session was higher
        ([985.0], [979.0], "newest", 986.0),
        ([985.0], [1000.0], "earlier", 1001.0),  # the newest are the best of this session
        ([985.0, 500.0], [700.0, math.nan], "first", 701.0),
        ([985.0, 500.0], [1200.0, 980.0], "first", 1201.0),
    ],
)
def test_an_overtaken_earlier_best_gets_a_rematch(engine, confirming, means, again, best, score):
    run, weights = confirming([3.0], [979.0]), {}
    engine.update(0.1)
    weights["earlier"] = engine.capture().variables["policy/kernel"]
    run.evaluations.evaluate()
    assert run.evaluations.confirm()
    run = confirming([*means, *again], [600.0], run.folder.adopt_best(tiny_record()))
    for name in ("first", "newest")[-len(means) :]:
        engine.update(0.1)
        weights[name] = engine.capture().variables["policy/kernel"]
        run.evaluations.evaluate()
    assert run.evaluations.reevaluate_best()
    assert (run.evaluations.best.score, run.evaluations.best.confirmed) == (score, False)
    assert np.array_equal(load(run.folder.best).variables["policy/kernel"], weights[best])
    assert run.evaluations.confirm()
    assert load(run.folder.best).record.best.score == 600.0
    assert np.array_equal(load(run.folder.best).variables["policy/kernel"], weights[best])


def test_a_non_finite_evaluation_is_never_the_best(engine):
    evaluations, bests = evaluations_of(engine, [math.nan, 10.0, math.nan]), []
    for _ in range(3):
        engine.update(0.1)
        evaluations.evaluate()
        bests.append(evaluations.best.score)
    assert bests == [None, 11.0, 11.0]


def test_non_finite_weights_are_not_evaluated(engine):
    engine.update(0.1)
    state = engine.capture()
    state.variables["policy/kernel"][...] = math.nan
    engine.capture = lambda: state
    evaluations = evaluations_of(engine, [10.0])
    evaluations.evaluate()
    assert evaluations.best.score is None


# The final score


@pytest.fixture
def confirming(engine, tmp_path):
    """Builds evaluations with rematches and a confirmation, their checkpoints and their reports."""

    def make(means, alone, record=None):
        folder = CheckpointFolder(tmp_path)
        record = record or tiny_record()
        saver, reported = Saver(folder, record, 60.0, print), []
        reporter = SimpleNamespace(
            report_evaluation=ignored,
            report_reevaluation=ignored,
            report_confirmation=lambda found, state, policy: reported.append((found.mean, policy)),
        )
        evaluator = ScriptedEvaluator(means, alone)
        evaluations = make_evaluations.make_evaluations(record, evaluator, engine, folder, saver, reporter)
        return SimpleNamespace(evaluations=evaluations, evaluator=evaluator, reported=reported, folder=folder)

    return make


@pytest.mark.parametrize(
    ("means", "version", "policy"),
    [
        ([70.0], 1, "greedy"),  # a single evaluation has chosen the policy
        ([3.0, 1413.2], 2, "sample"),  # the newest weights are the best, by luck
        ([3.0, 70.0, 9.0, 70.0], 2, "greedy"),  # the rematch, the last of these, was a selection too
        ([3.0, 70.0, 9.0, 5.0], 3, "sample"),
    ],
)
def test_the_final_score_is_from_games_not_used_for_selection(engine, confirming, means, version, policy):
    run, weights = confirming(means, [979.0]), []
    for _ in range(min(3, len(means))):
        engine.update(0.1)
        weights.append(engine.capture().variables["policy/kernel"])
        run.evaluations.evaluate()
    run.evaluations.reevaluate_best()
    assert not load(run.folder.best).record.best.confirmed
    assert run.evaluations.confirm()
    assert run.reported == [(979.0, policy)]
    best = load(run.folder.best)
    assert (best.record.best.score, best.record.best.policy, best.record.best.confirmed) == (979.0, policy, True)
    assert np.array_equal(best.variables["policy/kernel"], weights[version - 1])
    assert (run.evaluations.best.score, run.evaluations.best.confirmed) == (979.0, True)
    assert not run.evaluations.confirm()  # once is enough


def test_a_score_above_a_confirmed_one_is_unconfirmed(engine):
    evaluations = evaluations_of(engine, [10.0], best=Best(8.0, "greedy", confirmed=True))
    engine.update(0.1)
    evaluations.evaluate()
    assert (evaluations.best.score, evaluations.best.confirmed) == (11.0, False)


def test_a_confirmed_best_is_not_confirmed_again(engine):
    evaluations = evaluations_of(engine, [5.0], best=Best(8.0, "greedy", confirmed=True))
    engine.update(0.1)
    evaluations.evaluate()
    assert not evaluations.confirm()
    assert evaluations.best.score == 8.0


def test_the_next_session_confirms_an_interrupted_sessions_best(engine, confirming):
    run = confirming([70.0], [])
    engine.update(0.1)
    run.evaluations.evaluate()  # then Ctrl-C
    before = load(run.folder.best)
    resumed = run.folder.adopt_best(tiny_record())
    assert (resumed.best.score, resumed.best.confirmed) == (70.0, False)
    run = confirming([9.0], [20.0], resumed)
    engine.update(0.1)
    run.evaluations.evaluate()
    assert run.evaluations.confirm()
    ((policy, _),) = run.evaluator.played
    best = load(run.folder.best)
    assert (best.record.best.score, best.record.best.confirmed, policy) == (20.0, True, "greedy")
    for name, value in before.variables.items():
        assert np.array_equal(best.variables[name], value)
    assert run.folder.adopt_best(tiny_record()).best.confirmed


@pytest.mark.parametrize(("again", "best"), [(50.0, "newest"), (88.0, "earlier")])
def test_an_interrupted_sessions_lucky_best_keeps_no_better_weights_out(engine, confirming, again, best):
    run, weights = confirming([3.0, 95.0], []), {}
    for _ in range(2):
        engine.update(0.1)
        weights["earlier"] = engine.capture().variables["policy/kernel"]
        run.evaluations.evaluate()  # then Ctrl-C
    run = confirming([80.0, again], [79.0], run.folder.adopt_best(tiny_record()))
    engine.update(0.1)
    weights["newest"] = engine.capture().variables["policy/kernel"]
    run.evaluations.evaluate()
    assert run.evaluations.reevaluate_best()
    assert np.array_equal(load(run.folder.best).variables["policy/kernel"], weights[best])
    assert run.evaluations.confirm()
    assert np.array_equal(load(run.folder.best).variables["policy/kernel"], weights[best])


@pytest.mark.parametrize("id", ["MyEnv()", "gymnasium.envs.classic_control:CartPole-v1"])  # as with a wad of one's own
def test_an_earlier_best_of_a_game_named_by_the_user_is_confirmed_and_gets_a_rematch(engine, confirming, id):
    record = tiny_record()
    config, scenario = replace(record.config, scenario=id), replace(record.scenario, game=GymnasiumSpec(id=id))
    record = record._replace(config=config, scenario=scenario)
    run = confirming([70.0], [], record)
    engine.update(0.1)
    run.evaluations.evaluate()  # then Ctrl-C
    resumed = run.folder.adopt_best(record)
    run = confirming([9.0], [20.0], resumed)
    engine.update(0.1)
    run.evaluations.evaluate()
    assert run.evaluations.confirm()
    run = confirming([90.0, 95.0], [30.0], run.folder.adopt_best(record))
    engine.update(0.1)
    run.evaluations.evaluate()
    assert run.evaluations.reevaluate_best()
    assert run.evaluations.best.score == 96.0  # of the earlier best


@pytest.mark.parametrize("alone", [[], [math.nan], [math.inf]])
def test_without_a_finite_score_the_best_stays_unconfirmed(engine, confirming, alone):
    run = confirming([70.0], alone)
    engine.update(0.1)
    run.evaluations.evaluate()
    assert not run.evaluations.confirm()
    assert (run.evaluations.best.score, run.evaluations.best.confirmed, run.reported) == (70.0, False, [])


def test_a_confirmation_stops_on_interrupt_or_after_a_time_limit(engine, monkeypatch):
    stops, clock = [], [100.0]
    evaluations = evaluations_of(engine, [70.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    evaluations._evaluator.play = lambda policy, episodes, stop: stops.append(stop)
    evaluations._longest = 100.0
    engine.update(0.1)
    evaluations.evaluate()
    interrupt = threading.Event()
    assert not evaluations.confirm(interrupt)
    over = []
    for clock[0] in (399.0, 401.0):
        over.append(stops[0].is_set())
    clock[0] = 399.0
    interrupt.set()
    assert [*over, stops[0].is_set()] == [False, True, True]
