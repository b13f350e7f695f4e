"""The queue engine: what it counts and learns from, and how stale that is."""

import itertools
import threading
import time
from functools import partial

import numpy as np
import pytest
from fakes import (
    ACTIONS,
    FRAME_SKIP,
    SPEC,
    STEPS,
    actor,
    caught,
    changed,
    finish,
    model,
    network,
    queue_runs,
    until,
)

from doom_a3c.agent.policy import Decision, Policy
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.queue import RemotePolicy
from doom_a3c.engines.threads import make_threads_engine
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.config import Config

SMALL = Config(engine="queue", workers=1, envs_per_worker=2, rollout_length=4, discount=0.9, frames=10**9)


class Diary(Progress):
    """Records the rollouts and lag of every update; `on_steps` is called whenever a rollout has been counted."""

    def __init__(self):
        super().__init__()
        self.batches, self.lags, self.on_steps = [[]], [], lambda: None

    def add_steps(self, steps, frames, scores, faults, *sums):
        super().add_steps(steps, frames, scores, faults, *sums)
        self.batches[-1].append(steps)
        self.on_steps()

    def add_update(self, entropy, lag):
        super().add_update(entropy, lag)
        self.lags.append(lag)
        self.batches.append([])


class Patient(Channel):
    """Hands out items only once `least` are waiting; records what it handed out."""

    def __init__(self, capacity, least):
        super().__init__(capacity)
        self.least, self.taken = least, []

    def take(self, low, high):
        self.taken.append(super().take(max(low, self.least), high))
        return self.taken[-1]


@pytest.fixture
def build():
    """Builds queue engines on tiny games, with diaries; stops them even if the test fails."""
    with queue_runs(Diary) as make:
        yield make


# Counting and learning


def test_steps_count_once_and_the_run_ends_at_its_budget(build):
    run = build(changed(SMALL, frames=480, max_batch=STEPS))
    finish(run.engine)
    assert run.progress.frames == 480
    assert run.progress.steps == 160  # three frames a step
    assert run.progress.updates == run.model.version == 20
    assert run.progress.episodes == 2 * (80 // 3)
    assert 3 <= min(run.progress.scores) <= max(run.progress.scores) <= 9
    assert not run.unblocked.is_set()


def test_game_threads_predictors_and_trainers_share_the_work(build):
    begin = threading.Event()

    def make_actor(index, policy):
        begin.wait(30)
        return actor(index, policy)

    run = build(changed(SMALL, workers=4, predictors=2, trainers=2, frames=3600, max_batch=STEPS), make_actor)
    run.engine.start()
    networks = ["predictor_0", "predictor_1", "trainer_0", "trainer_1"]
    assert run.engine.threads.alive() == [*(f"games_{i}" for i in range(4)), *networks]
    begin.set()
    until(lambda: run.engine.threads.alive() == [], "the end", seconds=60)
    run.engine.check()
    assert run.model.pulled == {(name, name) for name in networks}
    assert 1200 <= run.progress.steps <= 1200 + STEPS
    assert run.progress.frames == 3 * run.progress.steps
    assert run.progress.updates == run.model.version == run.progress.steps // STEPS
    assert run.progress.episodes == pytest.approx(run.progress.steps / 3, abs=2 * 4)
    assert all(np.isfinite(value).all() for value in run.model.snapshot().values())


@pytest.mark.parametrize(
    ("limits", "rollouts"),
    [
        ({"max_batch": 1}, 1),  # at least one rollout
        ({"max_batch": 31}, 3),
        ({"max_batch": 1024}, 4),  # as many as fit in the queue
        ({"max_batch": 16, "accumulate": 2}, 4),
    ],
)
def test_an_update_takes_waiting_rollouts_up_to_max_batch(build, limits, rollouts):
    config = changed(SMALL, **limits, queue_size=4, frames=3 * FRAME_SKIP * rollouts * STEPS)
    run = build(config, rollouts=Patient(4, least=4))
    finish(run.engine)
    assert run.progress.batches == [[STEPS] * rollouts] * 3 + [[]]
    assert run.engine.metrics().training_batch == rollouts * STEPS


@pytest.mark.parametrize(("epochs", "minibatches"), [(3, 1), (1, 2), (3, 2)])
def test_every_minibatch_of_every_epoch_is_an_update(build, epochs, minibatches):
    config = changed(SMALL, frames=480, max_batch=STEPS, epochs=epochs, minibatches=minibatches)
    run = build(config)
    finish(run.engine)
    assert run.progress.steps == 160
    assert run.progress.updates == run.model.version == 20 * epochs * minibatches


@pytest.mark.parametrize(("frames", "updates"), [(24, 5), (10**9, 2)])
def test_a_stop_cuts_a_batch_short_but_a_budget_does_not(build, frames, updates):
    run = build(changed(SMALL, frames=frames, max_batch=STEPS, epochs=5))
    apply = run.model.apply

    def stopped(*arguments):
        before = apply(*arguments)
        if before == 1:
            run.engine.threads._stop()
        return before

    run.model.apply = stopped
    finish(run.engine)
    assert run.progress.updates == updates


def test_rollouts_queued_at_a_roll_back_are_counted_not_learned(build):
    run = build(changed(SMALL, frames=12 * FRAME_SKIP * STEPS, max_batch=STEPS, queue_size=4))
    before, apply = run.model.snapshot(), run.model.apply

    def rolled_back(*arguments):
        version = apply(*arguments)
        if version == 1:
            until(lambda: len(run.queues.rollouts) == 4)
            run.model.roll_back(before)
        return version

    run.model.apply = rolled_back
    finish(run.engine)
    assert run.progress.steps == 12 * STEPS
    assert 3 <= run.progress.updates <= 12 - 4
    since = run.model.since
    assert since == 3  # two updates and the roll-back
    assert all(lag <= version - since for version, lag in enumerate(run.progress.lags[2:], start=since))


def test_an_update_waits_for_min_batch(build):
    slow = partial(actor, before_step=lambda: time.sleep(0.002))
    run = build(changed(SMALL, min_batch=2 * STEPS + 1, frames=3 * FRAME_SKIP * 4 * STEPS), slow)
    finish(run.engine)
    assert len(run.progress.batches) >= 4
    assert all(len(batch) >= 3 for batch in run.progress.batches[:-1])


def test_game_threads_get_the_answers_to_their_own_observations(build):
    # One network call serves the requests of all threads: of two games each, or of one to value a truncation.
    requests = Patient(3, least=3)
    run = build(changed(SMALL, workers=3, queue_size=30, min_batch=2**20), requests=requests)  # it never learns
    run.engine.start()
    until(lambda: len(run.queues.rollouts) >= 18)
    rollouts = [run.queues.rollouts.take(1, 1)[0].rollout for _ in range(18)]
    run.engine.stop()
    run.engine.check()
    assert {tuple(len(request.resets) for request in taken) for taken in requests.taken} >= {(2, 2, 2), (1, 1, 1)}
    for owner in range(3):
        alone = actor(owner, Policy(network("alone")))
        mine = [rollout for rollout in rollouts if rollout.observations[0, 0, 0, 0, 0] == owner]
        assert len(mine) >= 2
        for rollout in mine:
            expected = alone.play_rollout().rollout
            np.testing.assert_array_equal(rollout.observations, expected.observations)
            np.testing.assert_array_equal(rollout.actions, expected.actions)
            np.testing.assert_allclose(rollout.values, expected.values, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(rollout.log_probs, expected.log_probs, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(rollout.next_values, expected.next_values, rtol=1e-4, atol=1e-6)
            for state, other in zip(rollout.core_state, expected.core_state, strict=True):
                np.testing.assert_allclose(state, other, rtol=1e-4, atol=1e-6)
        alone.close()


@pytest.mark.parametrize(("vtrace", "minibatches"), [(True, 1), (False, 1), (False, 2)])
def test_the_first_updates_equal_the_threads_engines(build, vtrace, minibatches):
    # A budget of one rollout: both engines end after the updates that learn from it.
    budget = {"frames": FRAME_SKIP * STEPS, "max_batch": STEPS}
    config = changed(SMALL, vtrace=vtrace, learning_rate=1e-2, accumulate=1, minibatches=minibatches, **budget)
    queue = build(config)
    before = queue.model.snapshot()
    finish(queue.engine)
    shared, progress = model(), Progress()
    threads = make_threads_engine(
        config=changed(config, engine="threads"),
        model=shared,
        make_actor=actor,
        make_network=network,
        progress=progress,
        logs=[None],
        unblock=lambda: None,
        example=np.zeros((2, 6, 6, 1), np.uint8),
    )
    finish(threads)
    assert queue.model.version == shared.version == minibatches
    assert queue.progress.episodes == progress.episodes == 2
    after, expected = queue.model.snapshot(), shared.snapshot()
    assert after.keys() == expected.keys()
    for name, value in expected.items():
        change = np.abs(value - before[name]).max()
        assert change > 0 or "momentum" in name
        np.testing.assert_allclose(after[name], value, rtol=0, atol=max(1e-4 * change, 1e-7), err_msg=name)


# Stale weights


def test_a_rollout_is_as_old_as_its_oldest_answer():
    requests = Channel(1)
    policy = RemotePolicy(requests, ACTIONS, network("remote").initial_state)
    after = tuple(np.full((2, SPEC.core_size), number, np.float32) for number in (1, 2))

    def answer(versions):
        for version in versions:
            [request] = requests.take(1, 1)
            request.answer.put(Decision(np.zeros((2, 3), np.float32), np.ones(2, np.float32), after, version))

    # Four steps each, and then the bootstrap value.
    lives = [[8, 5, 7, 9, 9], [10, 11, 12, 10, 12], [12, 12, 12, 12, 12]]
    thread, errors = caught(answer, itertools.chain(*lives))
    player = actor(0, policy, length=100)
    played = [player.play_rollout() for _ in lives]
    thread.join(30)
    assert errors == [None]
    assert [one.version for one in played] == [5, 10, 12]
    for before, one in zip([policy.initial_state(2), after, after], played, strict=True):
        np.testing.assert_array_equal(one.rollout.core_state, before)
        np.testing.assert_array_equal(one.rollout.next_values, np.ones((4, 2)))
        np.testing.assert_allclose(one.rollout.log_probs, np.full((4, 2), -np.log(3)), rtol=1e-6)


def test_lag_counts_the_updates_since_the_rollout_began(build):
    run = build(changed(SMALL, queue_size=4, max_batch=STEPS, frames=FRAME_SKIP * 8 * STEPS))
    # The first update waits for four more rollouts, all played with the initial weights.
    run.progress.on_steps = lambda: run.progress.lags or until(lambda: len(run.queues.rollouts) == 4)
    finish(run.engine)
    assert run.progress.lags[:5] == [0, 1, 2, 3, 4]
    assert len(run.progress.lags) == 8
    assert run.progress.lag == run.progress.lags[-1]


def test_predictors_answer_with_the_newest_weights(build):
    # A rollout begins once the previous one is queued, which needs the one before that to be in training.
    run = build(changed(SMALL, queue_size=1, max_batch=STEPS, frames=FRAME_SKIP * 40 * STEPS))
    finish(run.engine)
    assert len(run.progress.lags) == 40
    assert max(run.progress.lags) <= 2
