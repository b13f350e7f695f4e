"""A collapsed score rolls a run back to its best weights; the step size follows the KL divergence."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import actor as play
from fakes import changed, finish, model, network, queue_runs
from run_fakes import ScriptedEngine, run_record, settings

from doom_a3c.agent.learner import Gradients, LearnerMetrics, PolicyChange
from doom_a3c.agent.model import MAX_HALVINGS
from doom_a3c.agent.player import Episode
from doom_a3c.agent.start_order import StartOrder
from doom_a3c.algorithm import step_size
from doom_a3c.engines.local import LocalEngine, capture_state
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.threads import make_threads_engine
from doom_a3c.engines.update_log import StepMetrics, UpdateLog
from doom_a3c.engines.updates import SharedStepSize, Updater
from doom_a3c.envs.games import make_game_factory
from doom_a3c.record.metrics.counters import WINDOW
from doom_a3c.record.metrics.loggers import NullLogger
from doom_a3c.record.metrics.progress import COLLAPSED, Progress
from doom_a3c.record.metrics.rate_limiter import RateLimiter
from doom_a3c.run import guard
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import begin_run, continue_run
from doom_a3c.run.guard import PAIRS, CollapseGuard
from doom_a3c.run.session import build_session
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import Schedule

CONFIG = Config(workers=2, envs_per_worker=2, rollout_length=5)
UNDER_WAY, ENOUGH = 20, WINDOW + 4  # steps in flight; episodes: one window, and one per game


class Silent(NullLogger):
    """A logger that writes nothing."""

    def metrics(self, metrics, count):
        pass

    def close(self):
        pass


class Engine(ScriptedEngine):
    """A scripted engine that rolls back as a local one does."""

    step_size = SharedStepSize(0.0)

    def roll_back(self, state):
        threads = ThreadGroup({}, lambda: None, lambda: None)
        LocalEngine(threads, self.model, self.progress, self.step_size).roll_back(state)


@pytest.fixture
def run(monkeypatch):
    """A guard that acts on every check, with its engine, its messages and its saves."""
    monkeypatch.setattr(guard, "SECONDS", 0.0)
    engine, messages, saved = Engine(), [], []

    def make_guard(config=CONFIG):
        return CollapseGuard(
            engine, engine.progress, config, messages.append, lambda: saved.append((len(messages), engine.capture()))
        )

    watch = make_guard()

    def play(*scores, episodes=ENOUGH, steps=UNDER_WAY):
        """Updates once, checks, adds episodes, and checks again."""
        engine.update(1.0)
        watch.check()
        engine.progress.add_steps(steps, 4 * steps, np.resize(scores, episodes).tolist(), [])
        watch.check()

    watch.check()
    namespace = {"engine": engine, "progress": engine.progress, "messages": messages, "saved": saved}
    return SimpleNamespace(play=play, watch=watch, make_guard=make_guard, **namespace)


def weights(engine):
    return np.concatenate([value.ravel() for value in engine.model.snapshot().values()])


def test_a_collapse_restores_the_weights_of_the_best_episodes(run):
    run.play(10.0)
    run.play(50.0)
    best = weights(run.engine)
    for score in (60.0, 31.0, 29.0):
        run.play(score)
    assert run.progress.faults == {}  # only one of the last two windows has lost half of the gain
    run.play(30.0)  # exactly half
    np.testing.assert_array_equal(weights(run.engine), best)
    assert run.progress.faults == {COLLAPSED: 1}
    assert run.progress.updates == 6  # counters are kept
    assert run.engine.model.version == run.engine.model.since == 7
    (message,) = run.messages
    assert "from 50.0 to 30.0" in message
    assert "160 frames" in message
    ((messages_before, state),) = run.saved  # saved before the message
    assert (messages_before, state.counters.faults) == (0, {COLLAPSED: 1})
    assert all(np.array_equal(value, state.variables[name]) for name, value in run.engine.model.snapshot().items())


def test_a_run_worse_than_its_start_goes_back_to_it(run):
    start = weights(run.engine)
    run.play(-170.0)
    for _ in range(2):
        run.play(-300.0)
    assert run.progress.faults == {}  # it may still improve
    run.play(-300.0)
    np.testing.assert_array_equal(weights(run.engine), start)
    (message,) = run.messages
    assert "from -170.0 to -300.0" in message
    for score in (-180.0, -100.0, -100.0, 50.0):
        run.play(score)
    assert run.progress.faults == {COLLAPSED: 1}


def test_a_roll_back_gives_an_unlearned_run_time_again(run):
    run.play(0.0)
    for _ in range(5):
        run.play(-50.0)
    assert run.progress.faults == {COLLAPSED: 1}
    run.play(-50.0)
    assert run.progress.faults == {COLLAPSED: 2}


def test_a_sessions_first_episodes_set_its_starting_score(run):
    run.play(-150.0, episodes=WINDOW, steps=0)
    for _ in range(PAIRS + 1):
        run.play(-300.0)
    (message,) = run.messages
    assert "from -150.0 to -300.0" in message


def test_a_policy_that_does_not_change_is_not_rolled_back(run):
    """One episode in five is stuck until the time-out. Games that begin together end the others first, then these."""
    config = changed(CONFIG, envs_per_worker=24, rollout_length=32)
    watch, random, games = run.make_guard(config), np.random.default_rng(0), config.env_count
    left, scores, order = np.zeros(games, int), np.zeros(games), StartOrder(games)

    def begin(over):
        for game in np.flatnonzero(over):
            left[game], scores[game] = (525, -0.2) if random.random() < 0.2 else (random.integers(40, 150), 0.95)

    begin(np.ones(games, bool))
    watch.check()
    for _ in range(80):
        ended, counted = [], []
        for _ in range(config.rollout_length):
            left -= 1
            over = left == 0
            episodes = [Episode(scores[game], 0, 0.0, game, 0.0) for game in np.flatnonzero(over)]
            ended += episodes
            counted += order(SimpleNamespace(episodes=episodes, terminated=over, truncated=over))
            begin(over)
        run.progress.add_steps(
            games * config.rollout_length, 0, [each.score for each in ended], [], [each.score for each in counted]
        )
        watch.check()
    assert run.progress.episodes > 600
    assert run.progress.faults == {}


@pytest.mark.parametrize(("first", "faults"), [(0.0, {COLLAPSED: 1}), (80.0, {})])
def test_a_resumed_run_can_lose_its_earlier_gains(run, first, faults):
    run.progress.add_steps(0, 0, [*[first] * WINDOW, *[80.0] * WINDOW], [])
    watch = run.make_guard()
    watch.check()
    for score in (80.0, 10.0, 10.0):
        run.progress.add_steps(UNDER_WAY, 80, [score] * ENOUGH, [])
        watch.check()
    assert run.progress.faults == faults


def test_another_games_scores_do_not_set_the_start(run):
    run.progress.add_steps(0, 0, [-500.0] * WINDOW, [])
    record = begin_run(catalog.find("cartpole"), CONFIG)._replace(counters=run.progress.counters())
    run.progress.restore(continue_run(record, catalog.find("basic"), CONFIG).counters)
    watch = run.make_guard()
    watch.check()
    for score in (20.0, 480.0, 480.0, 10.0, 10.0):
        run.progress.add_steps(UNDER_WAY, 80, [score] * ENOUGH, [])
        watch.check()
    assert run.progress.faults == {COLLAPSED: 1}
    assert next(run.progress.full_means()) == 20.0


def test_non_finite_scores_do_not_fill_a_window(run):
    run.progress.add_steps(0, 0, [80.0] * WINDOW, [])
    watch = run.make_guard()
    watch.check()
    run.progress.add_steps(0, 0, [*[np.nan] * (WINDOW - 1), 10.0], [])  # all but one of the newest 100 are older
    watch.check()
    for score in (10.0, 10.0, 10.0, 10.0):
        run.progress.add_steps(UNDER_WAY, 80, [score] * ENOUGH, [])
        watch.check()
    assert run.progress.faults[COLLAPSED] == 0


def test_untried_weights_are_not_the_best(run):
    run.play(10.0)
    run.play(50.0)
    best = weights(run.engine)
    run.play(50.0)
    run.engine.update(1.0)  # spoils them
    run.watch.check()
    run.play(20.0)
    run.play(20.0)
    np.testing.assert_array_equal(weights(run.engine), best)


def test_ups_and_downs_while_learning_are_not_a_collapse(run):
    for score in (22.0, 22.0, 119.0, 49.0, 46.0, 91.0, 297.0, 297.0, 500.0, 260.0, 240.0):
        run.play(score)
    assert run.progress.faults == {}


def test_episodes_begun_before_the_last_window_are_ignored(run):
    for score in (10.0, 50.0, 50.0, 20.0, 20.0):
        run.play(score)
    assert run.progress.faults == {COLLAPSED: 1}
    run.play(20.0)
    run.play(20.0, episodes=ENOUGH - 1)  # one may have begun before the last window ended
    run.play(20.0, episodes=0)
    assert run.progress.faults == {COLLAPSED: 1}
    run.play(20.0, episodes=1)
    assert run.progress.faults == {COLLAPSED: 2}
    run.play(20.0)
    run.play(20.0, steps=UNDER_WAY - 1)  # rollouts may have been in flight
    assert run.progress.faults == {COLLAPSED: 2}
    run.play(20.0, steps=1)
    assert run.progress.faults == {COLLAPSED: 3}


@pytest.mark.parametrize(
    ("changes", "steps"), [({}, 20), ({"engine": "queue", "queue_size": 3}, 50), ({"envs_per_worker": 1, "workers": 1}, 5)]
)
def test_steps_in_flight_count_played_and_queued_rollouts(changes, steps):
    assert changed(CONFIG, **changes).steps_in_flight == steps


def test_noise_is_not_a_collapse(run):
    for best in (100.0, 106.0, 106.0, 94.0, 94.0):
        run.play(-100.0, best)
    assert run.progress.faults == {}


@pytest.mark.parametrize(("after", "faults"), [(-209.0, {}), (-211.0, {COLLAPSED: 1})])
def test_four_standard_errors_are_noise(run, after, faults):
    run.play(-300.0, 0.0)  # mean -150, standard deviation 150: the standard error of 100 scores is 15
    for _ in range(PAIRS + 1):
        run.play(after)
    assert run.progress.faults == faults


def test_the_noise_is_that_of_the_widest_window(run):
    run.play(0.0)
    for _ in range(PAIRS + 1):
        run.play(-230.0, 170.0)  # mean -30, standard deviation 200: up to 80 is noise
    assert run.progress.faults == {}


def test_a_run_that_recovers_is_not_rolled_back(run):
    run.play(10.0)
    for _ in range(2):
        for score in (*[0.0] * PAIRS, 10.0):
            run.play(score)
    run.play(50.0)
    assert run.progress.faults == {}


def test_a_gain_within_the_noise_cannot_be_lost(run):
    for score in (0.0, 20.0, 20.0):  # standard deviation 100: up to 40 is noise
        run.play(score - 100.0, score + 100.0)
    for _ in range(PAIRS):
        run.play(-100.0)
    assert run.progress.faults == {}
    run.play(-100.0)
    assert run.progress.faults == {COLLAPSED: 1}


def test_the_guard_gives_up_after_the_maximum_of_halvings(run):
    for score in (10.0, 50.0, 50.0):
        run.play(score)
    for _ in range(2 * MAX_HALVINGS + 6):
        run.play(20.0)
    assert run.progress.faults == {COLLAPSED: MAX_HALVINGS}
    assert len(run.messages) == MAX_HALVINGS


def test_a_rollback_drop_of_0_disables_the_guard(run):
    watch = run.make_guard(changed(CONFIG, rollback_drop=0.0))
    for score in (10.0, 50.0, 50.0, 0.0, 0.0):
        run.progress.add_steps(UNDER_WAY, 80, [score] * ENOUGH, [])
        watch.check()
    assert run.progress.faults == {}


def cartpole_session(tmp_path, *, log=lambda line: None, variables=None, halvings=0, **limits):
    """Returns a cartpole session without periodic evaluations and without logs."""
    scenario, config = settings("cartpole")
    folders = {name: str(tmp_path) for name in ("models_dir", "frames_dir", "logs_dir")}
    config = changed(config, **limits, evaluate_every=0.0, evaluation_episodes=1, **folders)
    record = run_record()._replace(scenario=scenario, config=config)
    record = record._replace(counters=record.counters._replace(halvings=halvings))
    view = SimpleNamespace(show=lambda status: None, log=log, set_phase=lambda describe: None)
    games = make_game_factory(scenario.game, scenario.observation, config.game_processes)
    return build_session(record, games, CheckpointFolder(tmp_path), variables, view, lambda *_: Silent())


def test_a_session_runs_the_guard_and_restores_its_halvings(tmp_path, monkeypatch):
    looks = []

    def look(watch):
        looks.append(watch)

    monkeypatch.setattr(CollapseGuard, "check", look)
    limits = {"workers": 1, "envs_per_worker": 2, "frames": 2000}
    with cartpole_session(tmp_path, **limits) as session:
        variables = session.training._engine.capture().variables
        session.training.run()
    assert looks
    with cartpole_session(tmp_path, variables=variables, halvings=3, **limits) as session:
        assert session.training._engine._model.rate_share == 0.125
        assert session.training._engine.capture().counters.halvings == 3


@pytest.mark.parametrize(("scenario", "halvings"), [("cartpole", 3), ("basic", 0)])
def test_a_run_on_another_game_starts_at_the_full_step_size(scenario, halvings):
    counters = Progress().counters()._replace(halvings=3, faults={COLLAPSED: 3})
    record = begin_run(catalog.find("cartpole"), CONFIG)._replace(counters=counters)
    assert continue_run(record, catalog.find(scenario), CONFIG).counters.halvings == halvings


def test_another_games_collapses_do_not_count_to_the_limit(run):
    run.progress.restore(run.progress.counters()._replace(faults={COLLAPSED: MAX_HALVINGS}))
    for score in (10.0, 50.0, 50.0, 20.0, 20.0):
        run.play(score)
    assert len(run.messages) == 1


def test_a_run_with_a_ruined_policy_rolls_back_and_learns(tmp_path, monkeypatch):
    look, ruined, messages = CollapseGuard.check, [], []

    def look_and_ruin(watch):
        look(watch)
        if watch._progress.faults[COLLAPSED] and watch._progress.mean_score > 195.0:
            session.stopping.end("learned")
        elif not ruined and watch._best is not None and watch._best.window.mean > 60.0:
            ruined.append(watch)
            state = watch._engine.capture()
            # It ignores the cart, always takes one action, and no gradient can change that.
            blind = {"actor/hidden1/kernel": 0.0, "actor/hidden1/bias": 1.0, "policy/kernel": [200.0, 0.0]}
            spoils = {name: np.full_like(state.variables[name], value) for name, value in blind.items()}
            watch._engine._model.restore({**state.variables, **spoils}, state.counters.updates)

    monkeypatch.setattr(guard, "SECONDS", 0.0)
    monkeypatch.setattr(CollapseGuard, "check", look_and_ruin)
    with cartpole_session(tmp_path, log=messages.append, workers=2, envs_per_worker=4, frames=500_000) as session:
        result = session.training.run()
    assert ruined
    assert result.stopped_by == "learned"
    assert any("back to the weights of" in line for line in messages)


# The step size


def test_every_roll_back_halves_the_step_size():
    shared = model()
    before, changes = shared.snapshot(), []
    for _ in range(3):
        shared.apply([1.0 + 0 * parameter for parameter in shared.network.parameters], 0.1)
        changes.append(before["value/kernel"] - shared.snapshot()["value/kernel"])
        shared.roll_back(before)
    np.testing.assert_allclose(changes[1], changes[0] / 2, rtol=1e-3)
    np.testing.assert_allclose(changes[2], changes[0] / 4, rtol=1e-3)
    assert capture_state(shared, Progress()).counters.updates == 3  # roll-backs are not updates
    shared.halvings = 10**6  # nothing overflows
    shared.apply([1.0 + 0 * parameter for parameter in shared.network.parameters], 0.1)


def trained(config, loggers, shared=None):
    """Trains a model to the budget with one worker per logger; returns the progress."""
    progress = Progress()
    engine = make_threads_engine(
        config=config,
        model=shared or model(),
        make_actor=lambda index, policy: play(index, policy, frame_skip=1, pay=float),
        make_network=network,
        progress=progress,
        logs=[logger and UpdateLog(logger) for logger in loggers],
        unblock=lambda: None,
    )
    finish(engine)
    return progress


def test_the_step_factor_falls_with_large_kl_and_recovers_to_1():
    factor = SharedStepSize(0.01)
    assert factor.value == 0.1
    for _ in range(10):
        factor.adapt(0.001, 1.0)
    factor.adapt(0.015, 1.0)
    assert factor.value == 1.0
    factor.adapt(0.021, 1.0)
    factor.adapt(float("nan"), 1.0)
    assert factor.value == pytest.approx(1 / 1.5**2)
    factor.adapt(0.006, 1.0)
    assert factor.value == pytest.approx(1 / 1.5**2)
    for _ in range(5):
        factor.adapt(0.004, 1.0)
    assert factor.value == 1.0
    for _ in range(100):
        factor.adapt(1.0, 1.0)
    assert factor.value == step_size.LEAST
    factor = SharedStepSize(0.0)
    factor.adapt(1.0, 1.0)
    assert factor.value == 1.0


def test_a_roll_back_resets_the_step_factor(run):
    factor = run.engine.step_size = SharedStepSize(0.01, threads=2)
    for kl in (*[0.0] * 10, 1.0, 1.0, 0.0):
        factor.adapt(kl, 1.0)
    run.engine.roll_back(run.engine.capture())
    assert factor.value == 0.1
    factor.adapt(0.0, 1.0)
    assert factor.value == pytest.approx(0.15)  # in full, as at the start


def test_discarded_weights_do_not_affect_the_step_factor(run):
    config, factor = changed(CONFIG, epochs=2, target_kl=0.01), SharedStepSize(0.01, threads=2)
    updater = Updater(config, run.engine.model, run.progress, factor, None)
    run.engine.roll_back(run.engine.capture())
    zeros = [0 * parameter for parameter in run.engine.model.network.parameters]
    gradients = Gradients(zeros, LearnerMetrics(*[0.0] * 6), True, PolicyChange(5.0, 0.0, 0.0))
    updater.apply(gradients, 0, last=True)
    assert (factor.value, run.progress.updates) == (0.1, 0)
    updater.apply(gradients, run.engine.model.since, last=True)
    assert (factor.value < 0.1, run.progress.updates) == (True, 1)


def test_the_kl_target_scales_with_the_scheduled_step_size():
    factor = SharedStepSize(0.01)
    factor.adapt(0.002, 0.5)  # of a target of 0.005
    assert factor.value == pytest.approx(0.15)
    factor.adapt(0.009, 0.5)
    assert factor.value == pytest.approx(0.15)
    factor.adapt(0.011, 0.5)
    assert factor.value == pytest.approx(0.1)


def test_a_factor_change_is_spread_over_all_threads():
    factor = SharedStepSize(0.01, threads=4)
    factor.adapt(0.001, 1.0)
    assert factor.value == pytest.approx(0.15)  # in full, since it starts small
    factor.adapt(1.0, 1.0)
    assert factor.value == pytest.approx(0.1 * 1.5**0.75)
    for _ in range(4):
        factor.adapt(0.001, 1.0)
    assert factor.value == pytest.approx(0.1 * 1.5**1.75)


@pytest.mark.parametrize("changes", [{"engine": "cluster"}, {"epsilon": 0.1}, {"epochs": 1}])
def test_a_kl_target_is_ignored_with_one_update_per_rollout(changes):
    config = changed(Config(), **{"epochs": 3, "target_kl": 0.01, **changes})
    assert config.updates_per_rollout == 1
    assert SharedStepSize.from_config(config).value == 1.0


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"minibatches": 2}])
def test_a_kl_target_acts_with_several_updates_per_rollout(changes):
    config = changed(Config(), **{"epochs": 1, "target_kl": 0.01, **changes})
    assert SharedStepSize.from_config(config).value == step_size.FIRST


def test_a_schedules_share_is_relative_to_its_maximum():
    assert Schedule(0.0).share(5, 10) == 1.0
    assert Schedule(0.2, 0.0).share(5, 10) == 0.5
    assert Schedule(0.1, 0.2).share(0, 10) == 0.5


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_all_learning_threads_share_one_step_factor(monkeypatch, engine):
    calls, adapt = [], SharedStepSize.adapt
    monkeypatch.setattr(SharedStepSize, "adapt", lambda factor, kl, share: calls.append((threading.get_ident(), factor)))
    config = changed(Config(frames=500), engine=engine, workers=2, trainers=2, epochs=3, target_kl=0.01)
    if engine == "threads":
        trained(config, [None, None])
    else:
        with queue_runs() as make:
            finish(make(config, partial(play, pay=float)).engine)
    threads, factors = (set(column) for column in zip(*calls, strict=True))
    assert (len(threads), len(factors)) == (2, 1)
    factor = factors.pop()
    adapt(factor, 1.0, 1.0)
    assert factor.value == pytest.approx(0.1 / 1.5**0.5)


def test_roll_backs_lower_the_kl_target(monkeypatch):
    shares = []
    monkeypatch.setattr(SharedStepSize, "adapt", lambda factor, kl, share: shares.append(share))
    shared = model()
    shared.halvings = 2
    trained(changed(Config(frames=100), epochs=3), [None], shared)
    assert set(shares) == {0.25}


def test_a_rollouts_last_kl_sets_the_step_size_and_is_logged(monkeypatch):
    seen, shares, logged = [], [], []

    class Noting(Silent):
        def metrics(self, metrics, count):
            if isinstance(metrics, StepMetrics):
                logged.append(metrics.kl)

    def adapt(factor, kl, share):
        seen.append(kl)
        shares.append(share)

    monkeypatch.setattr(SharedStepSize, "adapt", adapt)
    monkeypatch.setattr(RateLimiter, "allow", lambda limiter: True)
    config = changed(Config(frames=200), epochs=3, learning_rate=0.3, final_learning_rate=0.0)
    progress = trained(config, [Noting()])
    assert 3 * len(seen) == progress.updates
    assert max(seen) > 1e-6  # the change of two updates; before the first there is none
    assert logged == seen
    assert 1.0 > shares[0] > shares[-1] == 0.0
