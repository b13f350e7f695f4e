"""The run around an engine: what ends it and what it saves."""

import dataclasses
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import changed, network
from run_fakes import Audience, Listener, ScriptedEngine, ScriptedEvaluator, tiny_record

from doom_a3c.cli import ending, train
from doom_a3c.cli.streams import OutputLostError
from doom_a3c.engines.updates import DivergedError
from doom_a3c.record.metrics.counters import WINDOW, EvaluationPoint
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run import training
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best
from doom_a3c.run.evaluations import Evaluations
from doom_a3c.run.learning_watch import LearningWatch
from doom_a3c.run.reporter import Reporter, RunMetrics
from doom_a3c.run.saver import Saver
from doom_a3c.run.training import StoppingRule, Training
from doom_a3c.settings.config import Config


@pytest.fixture
def make_run(tmp_path):
    def make(config, engine=None, evaluator=None, every=0.0, expected=None):
        """Returns a run of a scripted engine, with an evaluation every `every` seconds, and its parts."""
        engine = engine or ScriptedEngine()
        audience, progress = Audience(), engine.progress
        saver = Saver(CheckpointFolder(tmp_path), tiny_record(), config.checkpoint_every, audience.log)
        evaluations = Evaluations(
            evaluator or ScriptedEvaluator(),
            episodes=1,
            every=every,
            capture=engine.capture,
            listener=Listener(),
            best=Best(),
        )
        stopping = StoppingRule(config, progress)
        reporter = Reporter(config, progress, engine, audience, audience)
        watch = LearningWatch(config, expected, progress, (), audience.log, stopping.end)
        parts = {"evaluations": evaluations, "saver": saver, "reporter": reporter, "stopping": stopping, "watch": watch}
        run = Training(engine, progress=progress, **parts)
        parts = {"progress": progress, "stopping": stopping, "audience": audience, "evaluations": evaluations}
        return SimpleNamespace(run=run.run, engine=engine, **parts)

    return make


def make_session(progress, record, gifs=Path("g")):
    """Returns the parts of a session that its summary and results use."""
    folders = {"checkpoints": CheckpointFolder(Path("models/run-1")), "gifs": gifs, "logs": Path("l")}
    return SimpleNamespace(progress=progress, record=record, **folders)


def test_the_target_score_ends_a_run(make_run):
    run = make_run(Config(target_score=50.0), ScriptedEngine([10.0, 49.0, 60.0, 99.0]))
    assert run.run().stopped_by == "target_score"
    assert run.progress.mean_score == 60.0
    assert run.engine.stops


def test_a_run_that_has_learned_ends_before_its_budget(make_run):
    class Learning(ScriptedEngine):
        def check(self):  # the main thread calls it
            super().check()
            self.update(0.1)  # evaluations wait for new weights

    evaluator = ScriptedEvaluator([10.0, 81.0, 79.0, *[82.0] * 1000], alone=[82.0])
    run = make_run(Config(until_learned=True), Learning(), evaluator, every=0.01, expected=80.0)
    result = run.run()
    assert result.stopped_by == "until_learned"
    assert [point.score for point in result.evaluations[:5]] == [11.0, 82.0, 80.0, 83.0, 83.0]
    assert (result.best_evaluation, result.confirmed) == (82.0, True)
    assert len([line for line in run.audience.lines if line.startswith("learned: ")]) == 1


def test_the_best_is_reevaluated_at_the_end_and_saved(make_run, tmp_path):
    run = make_run(Config(frames=120), evaluator=ScriptedEvaluator([10.0, 5.0, 1.0]))
    run.evaluations.evaluate()
    run.engine.update(0.1)
    assert run.run().best_evaluation == 6.0
    assert load(tmp_path / "last.ckpt").record.best.score == 6.0


def test_a_signal_during_the_last_evaluation_skips_the_rematch(make_run, monkeypatch):
    run = make_run(Config(frames=120), evaluator=ScriptedEvaluator([10.0]))
    run.evaluations.evaluate()
    run.engine.update(0.1)

    def interrupted(state, stop):
        run.stopping.interrupt("SIGINT")

    monkeypatch.setattr(run.evaluations, "_evaluate_state", interrupted)
    monkeypatch.setattr(run.evaluations, "reevaluate_best", lambda stop: pytest.fail("played once more"))
    assert run.run().best_evaluation == 11.0


def test_the_final_score_is_from_games_that_did_not_select_it(make_run, tmp_path):
    run = make_run(Config(frames=120), evaluator=ScriptedEvaluator([1413.2], alone=[979.0]))
    run.engine.update(0.1)
    result = run.run()
    assert (result.best_evaluation, result.confirmed) == (979.0, True)
    best = load(tmp_path / "last.ckpt").record.best
    assert (best.score, best.confirmed) == (979.0, True)
    assert (run.audience.statuses[-1].best_evaluation, run.audience.statuses[-1].confirmed) == (979.0, True)


def test_an_interrupted_run_reports_its_best_as_not_confirmed(make_run):
    run = make_run(Config(frames=120), evaluator=ScriptedEvaluator([1413.2], alone=[979.0]))
    run.engine.update(0.1)
    run.evaluations.evaluate()
    run.stopping.interrupt("SIGINT")
    result = run.run()
    assert (result.best_evaluation, result.confirmed) == (1414.2, False)
    session = make_session(run.progress, tiny_record())
    ending.print_summary(session, result, 1.0, run.audience)
    assert "best evaluation 1414.2 (not confirmed" in run.audience.lines[0]


def test_budgets_a_time_limit_and_a_signal_each_end_a_run(make_run):
    run = make_run(Config(frames=120))
    assert run.run().stopped_by == "frames"
    assert run.progress.frames == 120
    run = make_run(Config(episodes=250))
    assert run.run().stopped_by == "episodes"
    assert run.progress.episodes == 300  # the engine plays a hundred at a time
    assert make_run(Config(minutes=0.005)).run().stopped_by == "minutes"
    run = make_run(Config())
    run.stopping.interrupt("SIGTERM")
    assert run.run().stopped_by == "SIGTERM"


def test_a_signal_aborts_the_final_evaluation(make_run):
    class Endless:
        network, began = network("evaluator"), threading.Event()

        def evaluate(self, episodes, stop):
            self.began.set()
            assert stop.wait(30)

    run = make_run(Config(frames=40), evaluator=Endless())
    run.engine.update()
    signal = threading.Thread(target=lambda: Endless.began.wait(30) and run.stopping.interrupt("SIGINT"))
    signal.start()
    result = run.run()
    assert (result.stopped_by, result.best_evaluation) == ("frames", None)
    signal.join()


def test_a_hung_evaluation_is_abandoned_at_the_end(make_run, monkeypatch):
    monkeypatch.setattr(training, "PATIENCE_SECONDS", 0.1)

    class Hung:
        def __init__(self):
            self.network, self.began, self.released, self.calls = (
                network("evaluator"),
                threading.Event(),
                threading.Event(),
                0,
            )

        def evaluate(self, episodes, stop):
            self.calls += 1
            self.began.set()
            assert self.released.wait(30)

        def release(self):
            self.released.set()

    hung = Hung()
    run = make_run(Config(frames=400), evaluator=hung, every=0.01)
    run.engine.update()
    result = run.run()
    assert hung.began.is_set()
    assert hung.released.is_set()
    assert (result.stopped_by, result.best_evaluation, hung.calls) == ("frames", None, 1)


def test_an_engine_error_still_stops_the_engine_and_saves(make_run, tmp_path):
    run = make_run(Config(), ScriptedEngine(error=RuntimeError("worker 3 broke")))
    with pytest.raises(RuntimeError, match="worker 3 broke"):
        run.run()
    assert run.engine.stops
    assert load(tmp_path / "last.ckpt").record.counters.frames == 0


def test_a_run_is_saved_even_if_its_engine_fails_to_stop(make_run, tmp_path, monkeypatch):
    def fail(engine):
        raise RuntimeError("a game would not let go")

    monkeypatch.setattr(ScriptedEngine, "stop", fail)
    run = make_run(Config(target_score=0.0), ScriptedEngine())
    with pytest.raises(RuntimeError, match="let go"):
        run.run()
    assert (tmp_path / "last.ckpt").exists()


def test_an_evaluation_error_ends_the_run(make_run, tmp_path):
    run = make_run(Config(frames=8000), evaluator=ScriptedEvaluator(means=[]), every=0.01)
    with pytest.raises(IndexError):  # the script has no first line
        run.run()
    assert run.progress.frames < 8000
    assert run.engine.stops
    assert load(tmp_path / "last.ckpt").record.counters.frames == run.progress.frames


def test_the_last_checkpoint_includes_the_final_evaluation(make_run, tmp_path):
    run = make_run(Config(frames=40), evaluator=ScriptedEvaluator([70.0]))
    run.engine.update()
    assert run.run().best_evaluation == 70.0
    record = load(tmp_path / "last.ckpt").record
    assert (record.best, record.counters) == (
        Best().add(EvaluationPoint(40, 70.0, 0.0, 69.0, 0.0), True),
        run.progress.counters(),
    )


def test_the_end_of_a_run_is_logged_right_after_another_point(make_run):
    run = make_run(Config(frames=120))
    run.engine.update()
    run.run()
    counts = [count for metrics, count in run.audience.points if isinstance(metrics, RunMetrics)]
    assert (counts[0], counts[-1]) == (40, 120)


def test_a_run_saves_when_due_and_reports_throughout(make_run, tmp_path):
    seen = []

    class Watched(ScriptedEngine):
        def check(self):
            seen.append((tmp_path / "last.ckpt").exists())
            super().check()

    run = make_run(Config(frames=120, checkpoint_every=0.01), Watched())
    run.run()
    assert seen[:2] == [True, True]
    assert [status.frames for status in run.audience.statuses] == [
        40,
        80,
        120,
        120,
    ]  # the last one includes the last evaluation


def test_an_earlier_sessions_fault_is_not_a_divergence(make_run):
    run = make_run(Config())
    run.progress.add_fault("non_finite_update")
    run.stopping.interrupt("SIGINT")
    assert run.run().stopped_by == "SIGINT"


def test_a_session_without_a_finite_update_has_diverged(make_run):
    class Failing(ScriptedEngine):
        def check(self):
            super().check()
            self.progress.add_fault("non_finite_update")

    with pytest.raises(DivergedError, match="no update of this session was finite"):
        make_run(Config(frames=120), Failing()).run()


# The stopping rule alone


@pytest.fixture
def progress():
    progress = Progress()
    progress.add_steps(100, 400, [10.0] * 99, [])
    return progress


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({}, None),
        ({"frames": 401, "episodes": 100, "minutes": 1.01, "target_score": 10.0}, None),  # the mean is over 100 episodes
        ({"frames": 400}, "frames"),
        ({"episodes": 99}, "episodes"),
        ({"minutes": 1.0}, "minutes"),
        ({"frames": 400, "episodes": 99, "minutes": 1.0}, "frames"),
    ],
)
def test_a_session_ends_at_its_first_limit(progress, limits, reason):
    assert StoppingRule(changed(Config(), **limits), progress).reason(60.0) == reason


def test_episodes_waiting_for_older_ones_reach_no_target_score():
    progress = Progress()
    rule = StoppingRule(changed(Config(), target_score=50.0), progress)
    progress.add_steps(100, 400, [90.0] * WINDOW, [], [])  # as in basic, where a quick kill is short and scores high
    assert rule.reason(0.0) is None
    progress.add_steps(100, 400, [], [], [90.0] * WINDOW)
    assert rule.reason(0.0) == "target_score"


def test_an_interrupt_outranks_the_score_which_outranks_a_budget(progress):
    rule = StoppingRule(changed(Config(), target_score=10.0, frames=1, workers=2, envs_per_worker=8), progress)
    assert rule.reason(0.0) == "frames"
    progress.add_steps(1, 4, [10.0], [])
    assert rule.reason(0.0) == "target_score"
    assert not rule.interrupted.is_set()
    rule.interrupt("SIGHUP")
    assert rule.reason(0.0) == "SIGHUP"
    assert rule.interrupted.is_set()


@pytest.mark.parametrize(
    ("stopped_by", "changes", "flags"),
    [
        ("frames", {}, None),
        ("SIGINT", {}, "--resume run-1"),
        ("minutes", {"logger": "csv", "models_dir": "my models"}, "--resume run-1 --models-dir 'my models' --logger csv"),
        ("SIGINT", {"logger": "wandb", "wandb_project": "p"}, "--resume run-1 --logger wandb --wandb-project p"),
        ("until_learned", {}, "--resume run-1 --no-until-learned"),
        ("SIGINT", {"opponents": "past"}, "--resume run-1"),
        ("SIGINT", {"opponents": "my old.ckpt"}, "--resume run-1 --opponents 'my old.ckpt'"),
    ],
)
def test_a_run_that_ends_early_prints_its_resume_command(make_run, stopped_by, changes, flags):
    run, record = make_run(Config(frames=120)), tiny_record(name="run-1")
    record = record._replace(config=dataclasses.replace(record.config, **changes))
    session = make_session(run.progress, record)
    ending.print_summary(session, run.run()._replace(stopped_by=stopped_by), 1.0, run.audience)
    resuming = [line.partition("train.py ")[2] for line in run.audience.lines if "--resume" in line]
    assert resuming == ([] if flags is None else [flags])


def resume_progress(episodes, score=10.0):
    """Returns a session's progress and record; earlier sessions played `episodes` episodes."""
    progress = Progress()
    progress.add_steps(100, 400, [score] * episodes, [])
    record = tiny_record()._replace(counters=progress.counters())
    progress.restore(record.counters)
    return progress, record


RESULT = training.Result("frames", 1.0, 400.0, 500.0, True, [])


def summarize_session(progress, record):
    """Returns the line of a session's summary on how it ended, and those on episodes that the mean leaves out."""
    audience = Audience()
    ending.print_summary(make_session(progress, record), RESULT, 1.0, audience)
    (ended,) = (line for line in audience.lines if line.startswith("ended by "))
    return ended, [line for line in audience.lines if line.startswith("the mean leaves out")]


@pytest.mark.parametrize(("new", "words"), [(0, "10.0 (0 of"), (3, "10.6 (3 of"), (100, "30.0,")])
def test_the_summary_says_how_much_of_the_mean_is_new(new, words):
    progress, record = resume_progress(120)
    progress.add_steps(100, 400, [30.0] * new, [])
    ended, _ = summarize_session(progress, record)
    assert f"mean of the last 100 {words}" in ended
    summary = ending.summary_dict(make_session(progress, record), RESULT, 1.0)
    assert summary["mean_100_new_episodes"] == new


@pytest.mark.parametrize(
    ("earlier", "counted", "waiting", "said"),
    [
        (0, 0, 3, True),  # there is no mean
        (0, 97, 3, True),
        (0, 100, 0, False),
        (0, 104, 25, True),
        (0, 104, 24, False),  # few next to a hundred
        (0, 174_964, 160, False),  # few next to all
        (174_964, 1, 48, True),
        (1332, 0, 48, True),
        (1332, 60, 0, False),
    ],
)
def test_the_summary_counts_left_out_episodes_if_it_matters(earlier, counted, waiting, said):
    progress, record = resume_progress(earlier)
    progress.add_steps(100, 400, [10.0] * counted, [])
    progress.add_steps(100, 400, [5.0] * waiting, [], [])
    _, lines = summarize_session(progress, record)
    assert len(lines) == said
    assert not said or f"{waiting} of this session's {counted + waiting} " in lines[0]


def test_the_scores_file_has_every_finished_episode_after_resume(tmp_path):
    progress, record = resume_progress(3)
    progress.add_steps(100, 400, [5.0] * 2, [], [])
    ending.write_results(make_session(progress, record, tmp_path), RESULT, 1.0, None, Audience())
    resumed = Progress()
    resumed.restore(progress.counters())
    resumed.add_steps(100, 400, [7.0], [])
    ending.write_results(make_session(resumed, record, tmp_path), RESULT, 1.0, None, Audience())
    rows = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()[1:]]
    assert [(row[0], row[2]) for row in rows] == [
        (str(at), score) for at, score in enumerate(["10.0", "10.0", "10.0", "5.0", "5.0", "7.0"], 1)
    ]


def test_scores_are_written_even_if_the_summary_cannot_be(tmp_path):
    progress, record = resume_progress(3)
    with pytest.raises(OutputLostError, match="the model is saved"):
        ending.write_results(make_session(progress, record, tmp_path), RESULT, 1.0, str(tmp_path), Audience())
    assert (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize(
    ("signals", "echo_seconds", "ended"),
    [
        ([signal.SIGTERM] * 3, 30, []),  # timeout sends it twice
        ([signal.SIGTERM] * 2, 0, [signal.SIGTERM]),
        ([signal.SIGINT] * 2, 30, [signal.SIGINT]),
        ([signal.SIGTERM, signal.SIGINT], 30, [signal.SIGINT]),
        ([signal.SIGINT, signal.SIGTERM], 30, [signal.SIGTERM]),
    ],
)
def test_only_a_repeated_sigterm_is_not_a_second_signal(signals, echo_seconds, ended, monkeypatch):
    monkeypatch.setattr(train.command, "ECHO_SECONDS", echo_seconds)
    first, ends = [], []
    with train.command.end_by_signals("train.py"):  # which restores the handlers
        received = train.command.handle_signals(first.append, ends.append)
        for number in signals:
            signal.raise_signal(number)
    assert first == received == signals[:1]
    assert ends == ended


@pytest.mark.parametrize(
    ("frames", "words"), [(None, "nothing was saved"), (0, "last.ckpt is of frame 0"), (4096, "of frame 4,096")]
)
def test_a_second_ctrl_c_reports_how_much_is_saved(frames, words, make_run, monkeypatch):
    lines, folder = [], Path("models")
    monkeypatch.setattr(train.command, "end_at_once", lambda number, line: lines.append(line))
    checkpoints = SimpleNamespace(last=folder / "last.ckpt", saved={} if frames is None else {folder / "last.ckpt": frames})
    with train.command.end_by_signals("train.py"):  # which restores the handlers
        received = train._handle_signals(make_run(Config()).stopping, True, checkpoints)
        signal.raise_signal(signal.SIGINT)
        assert lines == []
        signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGINT]
    assert words in lines[0]
