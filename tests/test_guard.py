"""Holding on: a collapsed score sends a run back to its best weights; the step size follows the KL divergence."""

from types import SimpleNamespace

import numpy as np
import pytest
from fakes import actor as play
from fakes import changed, model, network
from run_fakes import ScriptedEngine

from doom_a3c.engines import updates
from doom_a3c.engines.engine import LocalEngine
from doom_a3c.engines.thread_group import ThreadGroup
from doom_a3c.engines.threads import threads_engine
from doom_a3c.engines.updates import COLLAPSED, StepFactor, Updater
from doom_a3c.record.progress import Progress
from doom_a3c.run import guard
from doom_a3c.run.guard import Guard
from doom_a3c.settings.config import Config

GAMES = 4


class Engine(ScriptedEngine):
    """A scripted engine that can be sent back as a local one can."""

    def roll_back(self, state):
        threads = ThreadGroup({}, lambda: None, lambda: None)
        LocalEngine(threads, self.model, self.progress).roll_back(state)


@pytest.fixture
def run(monkeypatch):
    """A guard that always looks, and what it watches over."""
    monkeypatch.setattr(guard, "SECONDS", 0.0)
    engine, told = Engine(), []

    def play(*scores):
        """Plays a hundred episodes, updates, and has the guard look."""
        engine.progress.add_steps(100, 400, np.resize(scores, 100).tolist(), [])
        engine.update(1.0)
        watch.look()

    watch = Guard(engine, engine.progress, 0.5, GAMES, told.append)
    return SimpleNamespace(engine=engine, progress=engine.progress, play=play, told=told)


def weights(engine):
    return np.concatenate([value.ravel() for value in engine.model.snapshot().values()])


def test_a_collapse_takes_the_run_back_to_its_best_weights_and_optimizer(run):
    run.play(10.0)
    run.play(50.0)
    best, updates_then = weights(run.engine), run.engine.model.version
    run.play(31.0)  # less than half of the gain is lost
    assert run.progress.faults == {}
    run.play(29.0)
    np.testing.assert_array_equal(weights(run.engine), best)
    assert run.progress.faults == {COLLAPSED: 1}
    assert run.engine.model.version == run.progress.updates == updates_then + 2  # what is counted stays
    assert run.progress.episodes == 400
    assert run.told == [
        "the mean score fell from 50.0 to 29.0: back to the weights of 800 frames, with 1/2 of the step size"
    ]


def test_a_mean_of_episodes_from_before_the_roll_back_says_nothing(run):
    for score in (10.0, 50.0, 20.0):
        run.play(score)
    run.play(20.0)  # the episodes that were running when the weights went back are among these
    assert run.progress.faults == {COLLAPSED: 1}
    run.play(20.0)
    assert run.progress.faults == {COLLAPSED: 2}
    assert run.told[-1].endswith("with 1/4 of the step size")


def test_noise_is_no_collapse(run):
    run.play(-100.0, 100.0)
    run.play(-100.0, 106.0)
    run.play(-100.0, 94.0)
    assert run.progress.faults == {}


def test_a_resumed_run_knows_what_the_score_was_at_first(run):
    run.play(10.0)
    run.play(50.0)
    told = []
    watch = Guard(run.engine, run.progress, 0.5, GAMES, told.append)
    watch.look()
    run.progress.add_steps(100, 400, [31.0] * 100, [])
    watch.look()
    assert told == []
    run.progress.add_steps(100, 400, [29.0] * 100, [])
    watch.look()
    assert len(told) == 1


def test_a_share_of_0_never_goes_back(run):
    told = []
    watch = Guard(run.engine, run.progress, 0.0, GAMES, told.append)
    for score in (10.0, 50.0, 0.0):
        run.progress.add_steps(100, 400, [score] * 100, [])
        watch.look()
    assert run.progress.faults == {}


# The step size


def test_every_collapse_halves_the_step_size():
    rates, progress, shared = [], Progress(), model()
    shared.apply = lambda gradients, rate: rates.append(rate) or 0
    updater = Updater(changed(Config(), learning_rate=0.1), shared, progress, None)
    gradients = SimpleNamespace(gradients=[], metrics=SimpleNamespace(entropy=1.0), finite=True, kl=0.0)
    for _ in range(3):
        updater.apply(gradients, 0)
        progress.add_fault(COLLAPSED)
    assert rates == pytest.approx([0.1, 0.05, 0.025])


def test_the_step_factor_falls_with_a_large_divergence_and_rises_again_to_one():
    factor = StepFactor(0.01)
    assert factor.value == 0.1
    for _ in range(10):
        factor.after(0.001)
    factor.after(0.015)
    assert factor.value == 1.0
    factor.after(0.021)
    factor.after(float("nan"))
    assert factor.value == pytest.approx(1 / 1.5**2)
    factor.after(0.006)
    assert factor.value == pytest.approx(1 / 1.5**2)
    for _ in range(5):
        factor.after(0.004)
    assert factor.value == 1.0
    for _ in range(100):
        factor.after(1.0)
    assert factor.value == StepFactor.LEAST
    factor = StepFactor(None)
    factor.after(1.0)
    assert factor.value == 1.0


def test_the_last_pass_decides_about_the_step_size(monkeypatch):
    seen = []

    class Noting(StepFactor):
        def after(self, kl):
            seen.append(kl)

    monkeypatch.setattr(updates, "StepFactor", Noting)
    progress = Progress()
    engine = threads_engine(
        config=changed(Config(frames=200), passes=3, learning_rate=0.3),
        model=model(),
        make_actor=lambda index, policy: play(index, policy, frame_skip=1, pay=float),
        make_network=network,
        progress=progress,
        loggers=[None],
        unblock=lambda: None,
    )
    engine.start()
    while engine.threads.alive():
        engine.check()
    assert 3 * len(seen) == progress.updates
    assert max(seen) > 1e-6  # what two updates have changed; before the first there is no difference
