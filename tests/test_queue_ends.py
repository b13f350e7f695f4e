"""The queue engine ends promptly after any failure."""

import threading
import time
import traceback
from functools import partial

import numpy as np
import pytest
from fakes import ACTIONS, INPUTS, SPEC, STEPS, actor, changed, network, queue_runs, until

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.engines.thread_group import ClosedError
from doom_a3c.engines.updates import MAX_NON_FINITE, DivergedError
from doom_a3c.settings.config import Config

SMALL = Config(engine="queue", workers=1, envs_per_worker=2, rollout_length=4, discount=0.9, frames=10**9)


@pytest.fixture
def build():
    """Builds queue engines of tiny games; ends them even if the test fails."""
    with queue_runs() as make:
        yield make


def test_stopping_is_prompt_while_games_wait_for_the_learner(build):
    run = build(changed(SMALL, workers=3, queue_size=2, min_batch=2**20))
    run.engine.start()
    until(lambda: len(run.queues.rollouts) == 2)
    time.sleep(0.3)
    assert len(run.queues.rollouts) == 2  # so the games wait
    assert run.engine.metrics().rollouts == 2
    run.engine.stop()
    assert run.engine.threads.alive() == []
    run.engine.check()
    assert not run.unblocked.is_set()
    assert run.progress.updates == run.model.version == 0


def test_a_hanging_game_is_unblocked(build):
    hangs, release = threading.Event(), threading.Event()

    def hang():
        hangs.set()
        release.wait(30)

    run = build(SMALL, partial(actor, before_step=hang), unblock=release.set)
    run.engine.start()
    assert hangs.wait(30)
    run.engine.threads.stop(patience=0.5)
    assert run.engine.threads.alive() == []
    run.engine.check()
    assert release.is_set()


def test_stopping_twice_or_before_the_start_is_harmless(build):
    run = build(SMALL)
    run.engine.stop()
    run.engine.stop()
    run.engine.check()
    assert run.engine.threads.alive() == []
    run = build(SMALL)
    run.engine.start()
    until(lambda: run.progress.updates > 1)
    for _ in range(2):
        run.engine.stop()
        assert run.engine.threads.alive() == []
        run.engine.check()
    assert not run.unblocked.is_set()


def test_closing_the_channels_ends_the_engine_without_error(build):
    run = build(changed(SMALL, workers=2))
    run.engine.start()
    until(lambda: run.progress.updates > 1)
    run.queues.requests.close()
    until(lambda: run.engine.threads.alive() == [])
    run.engine.check()
    with pytest.raises(ClosedError):
        run.queues.rollouts.take(1, 1)


class Broken(ACNetwork):
    """Can neither predict nor learn."""

    def unroll(self, observations, resets, core_state):
        raise RuntimeError("the network broke")


def break_game():
    raise RuntimeError("the game broke")


def no_game(index, policy):
    raise RuntimeError("there is no game")


def broken(role):
    return lambda name: Broken(SPEC, INPUTS, ACTIONS, 1, name) if name.startswith(role) else network(name)


@pytest.mark.parametrize(
    ("pieces", "message", "place"),
    [
        ({"make_actor": partial(actor, before_step=break_game)}, "the game broke", "break_game"),
        ({"make_actor": no_game}, "there is no game", "no_game"),
        ({"make_network": broken("trainer")}, "the network broke", "compute_gradients"),
        ({"make_network": broken("predictor")}, "the network broke", "_step"),
    ],
)
def test_an_error_in_any_thread_ends_all_and_reaches_the_caller(build, pieces, message, place):
    run = build(changed(SMALL, workers=2, trainers=2, predictors=2), **pieces)
    run.engine.start()
    until(lambda: run.engine.threads.alive() == [])  # without a call of stop
    with pytest.raises(RuntimeError, match=message) as raised:
        run.engine.check()
    assert place in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    run.engine.stop()
    assert run.model.version == 0


def test_nan_rewards_end_the_run_without_changing_the_weights(build):
    run = build(changed(SMALL, max_batch=STEPS), partial(actor, pay=lambda action: float("nan")))
    before = run.model.snapshot()
    run.engine.start()
    until(lambda: run.engine.threads.alive() == [])
    with pytest.raises(DivergedError, match="not finite"):
        run.engine.check()
    after = run.model.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert run.progress.faults["non_finite_update"] == MAX_NON_FINITE
    assert run.progress.updates == run.model.version == 0
