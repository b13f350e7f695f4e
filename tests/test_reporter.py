"""Reports: the status shown to people, the points logged over a run, and the lines about evaluations."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import changed
from run_fakes import Audience, ScriptedEngine

from doom_a3c.record.metrics.loggers import flatten
from doom_a3c.run import reporter as module
from doom_a3c.run.checkpoints.run_record import Best
from doom_a3c.run.evaluator import Evaluation, summarize
from doom_a3c.run.reporter import ConfirmedMetrics, EpisodeCurve, EvaluationMetrics, LeagueMetrics, Reporter, RunMetrics
from doom_a3c.settings.config import Config


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def reported(clock):
    """A reporter with its engine and audience; the run's budget is 10,000 frames and a minute."""
    return _reported(changed(Config(), frames=10_000, minutes=1.0, learning_rate=0.2, final_learning_rate=0.1))


@pytest.fixture
def long(clock):
    """The same for a run of a million frames without a time limit."""
    return _reported(changed(Config(), frames=1_000_000))


def _reported(config, *, rated=False):
    engine, audience = ScriptedEngine(), Audience()
    return SimpleNamespace(
        reporter=Reporter(config, engine.progress, engine, audience, audience, rated=rated),
        engine=engine,
        progress=engine.progress,
        audience=audience,
    )


def statuses(reported, clock, steps):
    """Starts learning; returns the status after each step, which is a second and the frames since the last step."""
    reported.engine.update()
    for second, frames in steps:
        clock.now = 1000.0 + second
        reported.progress.add_steps(0, frames, [], [])
        reported.reporter.report(second, Best())
    return reported.audience.statuses


def rates(reported, clock, steps):
    return [status.frames_per_second for status in statuses(reported, clock, steps)]


def test_the_frame_rate_first_covers_two_seconds(reported, clock):
    measured = rates(reported, clock, ((0, 0), (1, 300), (2, 100), (3, 5000), (6, 3000)))
    assert measured == [None, None, 200.0, 200.0, 1400.0]
    logged = [metrics.frames_per_second for metrics, _ in reported.audience.points if isinstance(metrics, RunMetrics)]
    assert logged == measured


def test_the_frame_rate_soon_covers_the_last_half_minute(reported, clock):
    measured = rates(reported, clock, ((second, 300 if second <= 45 else 600) for second in range(0, 90, 3)))
    assert measured[1:16] == [100.0] * 15
    assert measured[20] == 150.0  # five of the ten batches in half a minute
    assert measured[25:] == [200.0] * 5


@pytest.mark.parametrize("ticks", [1, 11, 14, 27, 450])
def test_the_frame_rate_is_steady_at_any_batch_interval(reported, clock, ticks):
    measured = rates(reported, clock, ((tick / 10, 0 if tick % ticks else 2048) for tick in range(20 * ticks + 60)))
    known = [rate for rate in measured if rate is not None]
    assert len(known) >= 40
    assert known == pytest.approx([20480 / ticks] * len(known))


def test_the_rate_and_time_left_recover_after_a_stall(long, clock):
    measured = statuses(long, clock, ((second, 300) for second in [*range(0, 300, 3), *range(380, 410, 3)]))
    last, first, *after = measured[99:]
    assert first.frames_per_second == pytest.approx(300 / 83)
    assert [status.frames_per_second for status in after] == [100.0] * 9
    assert first.seconds_left == pytest.approx(last.seconds_left * 299 / 219, rel=0.01)


def test_the_time_left_is_unknown_at_first_and_kept_in_a_stall(long, clock):
    measured = statuses(long, clock, ((0, 0), (10, 100), (20, 100), (100, 0)))
    assert [status.seconds_left for status in measured] == [None, None, *[pytest.approx(999_800 / 10)] * 2]
    assert measured[-1].frames_per_second == 0.0


def test_the_rate_restarts_when_frames_go_back(reported, clock):
    measured = rates(reported, clock, ((0, 5000), (10, 1000), (20, -4000), (23, 600), (26, 600)))
    assert measured == [None, 100.0, 100.0, 200.0, 200.0]


def test_a_resumed_run_has_no_rate_before_its_first_update(reported, clock):
    reported.engine.update()
    resumed = Reporter(Config(), reported.progress, reported.engine, reported.audience, reported.audience)
    for clock.now in (1000.0, 1010.0, 1020.0):
        reported.progress.add_steps(0, 1000, [], [])
        resumed.report(0.0, Best())
    assert reported.audience.statuses[-1].frames_per_second is None


def test_the_rate_is_not_zero_between_batches(reported, clock):
    steps = ((0, 0), (4, 0), (8, 800), (11, 0), (16, 1600), (75, 0), (76, 0), (96, 800), (99, 0))
    # Zero after a minute without frames; the next batch counts for the 80 seconds since the one before.
    assert rates(reported, clock, steps) == [None, None, 100.0, 100.0, 150.0, 150.0, 0.0, 10.0, 10.0]


def test_nothing_is_estimated_before_a_run_learns(reported, clock):
    for clock.now in (1000.0, 1010.0, 1020.0):
        reported.progress.add_steps(0, 1, [], [])
        reported.reporter.report(0.0, Best())
    reported.engine.update()
    for clock.now in (1021.0, 1023.0, 1024.0):
        reported.progress.add_steps(0, 100, [], [])
        reported.reporter.report(0.0, Best())
    statuses = reported.audience.statuses
    assert [status.frames_per_second for status in statuses] == [None] * 4 + [50.0] * 2
    assert [status.seconds_left for status in statuses] == [60.0] * 6  # the minute of the budget, which needs no estimate


def test_the_time_left_follows_the_nearest_budget(reported, clock):
    left = []
    reported.engine.update()
    for clock.now, frames in ((1000.0, 0), (1010.0, 1000), (1020.0, 1000), (1030.0, 7000)):
        reported.progress.add_steps(0, frames, [], [])
        reported.reporter.report(clock.now - 1000, Best())
        left.append(reported.audience.statuses[-1].seconds_left)
    # The minute, until only 1,000 frames are left, at a rate of 9,000 frames in 30 seconds.
    assert left == [60.0, 50.0, 40.0, pytest.approx(1000 / 300)]
    assert [status.share for status in reported.audience.statuses] == [0.0, 1 / 6, 1 / 3, 0.9]


def test_a_budget_of_episodes_has_a_time_left(clock):
    reported = _reported(changed(Config(), frames=1_000_000, episodes=100))
    reported.progress.restore(reported.progress.counters()._replace(episodes=40))
    reported.reporter = Reporter(
        reported.reporter._config, reported.progress, reported.engine, reported.audience, reported.audience
    )
    reported.engine.update()
    for clock.now, episodes in ((1000.0, 0), (1010.0, 5), (1020.0, 15), (1030.0, 40)):
        reported.progress.add_steps(0, 100, [1.0] * episodes, [])
        reported.reporter.report(clock.now - 1000, Best())
    # At 20 episodes in 20 s, then all; the million of frames is a day away.
    assert [status.seconds_left for status in reported.audience.statuses] == [None, 110.0, 40.0, 0.0]


def test_the_status_has_all_known_figures(reported):
    reported.engine.update()
    reported.progress.add_steps(10, 40, [2.0] * 100, ["engine_died"])
    reported.reporter.report(6.0, Best(3.5))
    (status,) = reported.audience.statuses
    assert (status.frames, status.frame_budget, status.episodes) == (40, 10_000, 100)
    assert (status.mean_score, status.evaluation, status.best_evaluation, status.entropy) == (2.0, None, 3.5, 1.0)
    assert (status.means, status.gif) == ([2.0], None)
    assert (status.engine, status.faults) == ("3 hosts", {"engine_died": 1})


def test_figures_not_known_yet_are_none_in_the_status(reported):
    reported.reporter.report(0.0, Best())
    (status,) = reported.audience.statuses
    unknown = (status.frames_per_second, status.mean_score, status.evaluation, status.best_evaluation, status.entropy)
    assert unknown == (None,) * 5
    assert (status.share, status.frames, list(status.means)) == (0.0, 0, [])


def test_a_run_past_its_budget_is_done_and_has_no_time_left(long, clock):
    *_, last = statuses(long, clock, ((0, 0), (10, 100), (20, 1_000_000)))
    assert (last.share, last.seconds_left, last.frames) == (1.0, 0.0, 1_000_100)


def test_the_status_has_the_newest_evaluation_and_gif(reported):
    gifs = iter([Path("first.gif"), Path("second.gif")])
    audience = reported.audience
    reporter = Reporter(Config(), reported.progress, reported.engine, audience, audience, newest_gif=lambda: next(gifs))
    for better, worse in ((3.0, 1.0), (-2.0, -4.0)):
        reporter.report_evaluation(Evaluation(summarize([worse]), summarize([better])), reported.engine.capture(), False)
        reporter.report(0.0, Best(3.0, confirmed=True))
    shown = [
        (status.evaluation.sampled, status.best_evaluation, status.confirmed, status.gif) for status in audience.statuses
    ]
    assert shown == [(3.0, 3.0, True, Path("first.gif")), (-2.0, 3.0, True, Path("second.gif"))]


def test_a_point_has_scheduled_values_and_engine_metrics(reported):
    reported.progress.add_steps(10, 5000, [2.0], ["engine_died"])
    reported.reporter.report(0.0, Best())
    assert reported.audience.points == []  # nothing has been learned yet
    reported.engine.update()
    reported.reporter.report(0.0, Best())
    (metrics, frames), _, engine = reported.audience.points
    assert frames == 5000
    assert isinstance(metrics, RunMetrics)
    assert (metrics.episodes, metrics.updates, metrics.policy_lag, metrics.entropy) == (1, 1, 0, 1.0)
    assert metrics.learning_rate == pytest.approx(0.15)
    assert (metrics.entropy_cost, metrics.epsilon) == (None, None)  # they are constant
    assert (metrics.reward, metrics.maximum_reward) == (None, None)  # the mean is over 100 episodes
    assert metrics.faults == {"engine_died": 1}
    assert engine == ({"hosts": 3}, 5000)


def test_scores_are_also_logged_over_episodes(reported):
    reported.engine.update()
    reported.progress.add_steps(10, 40, [*range(100)], [])
    reported.reporter.report(0.0, Best())
    curve, (metrics, frames), *_ = reported.audience.points
    assert curve == (EpisodeCurve(49.5, 99.0), 100)
    assert (metrics.reward, metrics.maximum_reward, frames) == (49.5, 99.0, 40)


def test_stable_baselines3_metric_names_get_matching_values(reported):
    reported.progress.add_steps(1000, 4000, [], [])
    resumed = Reporter(Config(), reported.progress, reported.engine, reported.audience, reported.audience)
    reported.progress.add_steps(500, 2000, [*range(150)], [], lengths=[*range(1, 151)])
    reported.engine.update()
    resumed.report(4.0, Best())
    (shared,) = (dict(flatten(metrics)) for metrics, _ in reported.audience.points if "rollout" in str(metrics))
    assert shared == {
        "rollout.ep_rew_mean": 99.5,  # of the last 100
        "rollout.ep_len_mean": 100.5,
        "time.fps": 125.0,  # steps, not frames, of this session
        "train.learning_rate": 1e-4,
    }


def test_an_earlier_sessions_mean_is_not_logged_as_new(reported):
    reported.progress.add_steps(10, 40, [5.0] * 120, [], lengths=[3] * 120)
    resumed = Reporter(Config(), reported.progress, reported.engine, reported.audience, reported.audience)
    reported.engine.update()
    for counted, new in ((0, 0), (1, 1), (130, 100)):
        reported.progress.add_steps(10, 40, [7.0] * counted, [], lengths=[9] * counted)
        resumed.report(1.0, Best())
        status = reported.audience.statuses[-1]
        assert (status.mean_of, status.mean_new) == (100, new)
        reported.audience.points.clear()
        resumed.log_end(1.0)
        points = [one for one, _ in reported.audience.points]
        (metrics,) = (one for one in points if isinstance(one, RunMetrics))
        (rollout,) = (one["rollout"] for one in points if isinstance(one, dict) and "rollout" in one)
        for mean in (metrics.reward, metrics.training_score, metrics.maximum_reward, *rollout):
            assert (mean is not None) == (new > 0)
        assert any(isinstance(one, EpisodeCurve) for one in points) == (new > 0)


def test_a_one_second_session_logs_a_rate_at_its_end(reported, clock):
    assert rates(reported, clock, [(0, 0), (1, 500)]) == [None, None]
    reported.audience.points.clear()
    reported.reporter.log_end(1.0)
    (metrics,) = (one for one, _ in reported.audience.points if isinstance(one, RunMetrics))
    assert metrics.frames_per_second == pytest.approx(500)


def test_points_are_rate_limited_but_statuses_are_not(reported, clock):
    reported.engine.update()
    for clock.now in (1000.0, 1000.5, 1000.9, 1001.0, 1001.9):
        reported.reporter.report(clock.now - 1000, Best())
    assert len(reported.audience.points) == 2 * 3  # the run's, the Stable-Baselines3 names' and the engine's, twice
    assert len(reported.audience.statuses) == 5


def test_an_evaluation_is_logged_and_printed(reported):
    evaluation = Evaluation(summarize([1.0, 3.0]), summarize([-10.0, -30.0]))
    reported.progress.add_steps(10, 12_345, [], [])
    state = reported.engine.capture()
    reported.progress.add_steps(10, 1000, [], [])  # while it was evaluated
    for is_best in (True, False):
        reported.reporter.report_evaluation(evaluation, state, is_best)
        reported.reporter.report_reevaluation(evaluation, is_best)
    spreads = ({"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0}, {"mean": -20.0, "std": 10.0, "min": -30.0, "max": -10.0})
    assert reported.audience.points == [(EvaluationMetrics(2.0, *spreads), 12_345)] * 2
    scored = "greedy 2.00 +- 1.00, sampled -20.0 +- 10.0, 2 episodes each"
    first, stays, second, replaced = reported.audience.lines
    assert all(scored in line for line in (first, stays, second, replaced))
    assert all("12,345 frames" in line for line in (first, second))
    assert ("highest so far" in first, "highest so far" in second) == (True, False)
    assert stays != replaced


def test_a_rating_is_logged_and_printed_as_one(clock):
    reported = _reported(Config(), rated=True)
    evaluation = Evaluation(summarize([400.0, 0.0]), summarize([0.0, 0.0]))
    reported.reporter.report_evaluation(evaluation, reported.engine.capture(), is_best=True)
    assert (LeagueMetrics(200.0), 0) in reported.audience.points
    (line,) = reported.audience.lines
    assert line.startswith("rating at 0 frames: greedy 200")
    reported.reporter.report(0.0, Best())
    assert reported.audience.statuses[-1].rated


def test_a_confirmed_score_is_logged_and_printed(reported):
    reported.progress.add_steps(10, 12_345, [], [])
    reported.reporter.report_confirmation(summarize([223.0, 1735.0]), reported.engine.capture(), "greedy")
    assert reported.audience.points == [(ConfirmedMetrics(979.0), 12_345)]
    (line,) = reported.audience.lines
    assert all(token in line for token in ("12,345 frames", "2 new games", "greedy 979.0 +- 756.0"))
