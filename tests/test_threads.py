"""The threads engine: worker identities, counters, errors, and non-finite updates."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import PullLog, actor, finish, model, network

from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.engines.threads import make_threads_engine
from doom_a3c.engines.updates import MAX_NON_FINITE, DivergedError
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.config import Config

play = partial(actor, frame_skip=1, cut_off=(False,), pay=lambda action: 1.0)


def run_of(count, make_actor=play, config=None, make_network=network, unblock=lambda: None):
    run = SimpleNamespace(progress=Progress(), model=model(optimizer=Adam, kind=PullLog))
    run.engine = make_threads_engine(
        config=config or Config(frames=200 * count),
        model=run.model,
        make_actor=make_actor,
        make_network=make_network,
        progress=run.progress,
        logs=[None] * count,
        unblock=unblock,
    )
    return run


def test_each_of_sixteen_workers_has_its_own_identity():
    seen = []

    def make_network(name):
        made = network(name)
        made.version = int(name.removeprefix("worker_"))  # tells the policies apart until the first pull
        return made

    def make_actor(index, policy):
        decision = policy(np.zeros((2, 6, 6, 1), np.uint8), np.ones(2, np.float32), policy.initial_state(2))
        seen.append((index, decision.version, threading.current_thread().name))
        return play(index, policy)

    run = run_of(16, make_actor, Config(frames=800), make_network)
    finish(run.engine)
    assert sorted(seen) == [(index, index, f"worker_{index}") for index in range(16)]
    assert run.model.pulled <= {(f"worker_{index}", f"worker_{index}") for index in range(16)}
    assert run.progress.frames >= 800
    assert run.progress.steps == 8 * run.progress.updates == run.progress.frames
    assert run.model.version == run.progress.updates
    assert run.progress.episodes == pytest.approx(run.progress.steps / 3, rel=0.1)
    assert set(run.progress.scores) == {3.0}


@pytest.mark.parametrize(("epochs", "minibatches"), [(3, 1), (2, 2), (1, 2)])
def test_every_update_uses_the_weights_of_the_one_before(epochs, minibatches):
    networks, versions = [], []

    def make_network(name):
        networks.append(network(name))
        return networks[-1]

    config = Config(frames=64, epochs=epochs, minibatches=minibatches)
    run = run_of(1, config=config, make_network=make_network)
    apply = run.model.apply
    run.model.apply = lambda *arguments: versions.append(networks[0].version) or apply(*arguments)
    finish(run.engine)
    assert epochs * minibatches * run.progress.steps == 8 * run.progress.updates
    assert versions == list(range(run.progress.updates))


def test_a_workers_error_stops_the_others_and_is_raised():
    def make_actor(index, policy):
        if index == 1:
            raise RuntimeError("no game for worker 1")
        return play(index, policy)

    run = run_of(3, make_actor, Config())
    with pytest.raises(RuntimeError, match="no game for worker 1"):
        finish(run.engine)
    assert run.engine.threads.alive() == []


def test_many_non_finite_updates_end_the_run_and_none_is_applied():
    run = run_of(1, partial(play, pay=lambda action: float("nan")))
    before = run.model.snapshot()
    with pytest.raises(DivergedError, match=r"not finite.*: basic .* rewards that are not finite"):
        finish(run.engine)
    after = run.model.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert run.progress.faults["non_finite_update"] == run.progress.faults["reward_not_finite"] == MAX_NON_FINITE
    assert run.progress.updates == run.model.version == 0


def spoilt(index, policy, spoil):
    """Returns an actor whose rollouts have NaN rewards where `spoil()` [B] is true, called once per rollout."""
    whole = play(index, policy)

    def rollout():
        played = Actor.play_rollout(whole)
        rewards = np.where(spoil(), np.nan, played.rollout.rewards).astype(np.float32)
        return played._replace(rollout=played.rollout._replace(rewards=rewards))

    whole.play_rollout = rollout
    return whole


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (15, 2)])
def test_training_skips_a_bad_rollout(epochs, minibatches):
    rollouts, each = iter([True] + [False] * 1000), epochs * minibatches
    config = Config(frames=48, epochs=epochs, minibatches=minibatches)
    run = run_of(1, partial(spoilt, spoil=lambda: next(rollouts)), config)
    finish(run.engine)
    assert run.progress.faults == {"non_finite_update": each}
    assert run.progress.updates == (run.progress.steps / 8 - 1) * each
    assert all(np.isfinite(value).all() for value in run.model.snapshot().values())


def test_one_game_that_always_pays_nan_ends_the_run():
    run = run_of(1, partial(spoilt, spoil=lambda: [True, False]), Config(frames=2000, epochs=3, minibatches=2))
    with pytest.raises(DivergedError, match=f"{MAX_NON_FINITE} rollouts were not finite"):
        finish(run.engine)
    assert run.progress.faults == {"non_finite_update": 3 * MAX_NON_FINITE}


def test_a_rollback_ends_learning_from_the_current_rollout():
    run, versions = run_of(1, config=Config(frames=24, epochs=5)), []
    before, apply = run.model.snapshot(), run.model.apply

    def rolled_back(*arguments):
        versions.append(apply(*arguments))
        if len(versions) == 2:
            run.model.roll_back(before)
        return versions[-1]

    run.model.apply = rolled_back
    finish(run.engine)
    assert run.progress.steps == 3 * 8
    assert run.progress.updates == 2 + 5 + 5


def test_a_rollout_played_during_a_rollback_only_counts():
    played = []

    def make_actor(index, policy):
        made = play(index, policy)

        def rollout():
            played.append(Actor.play_rollout(made))
            if len(played) == 2:
                run.model.roll_back(run.model.snapshot())
            return played[-1]

        made.play_rollout = rollout
        return made

    run = run_of(1, make_actor, config=Config(frames=24, epochs=5))
    finish(run.engine)
    assert run.progress.steps == 3 * 8
    assert run.progress.updates == 5 + 5


@pytest.mark.parametrize(("frames", "updates"), [(8, 5), (10**9, 2)])
def test_a_stop_but_no_budget_ends_learning_from_a_rollout(frames, updates):
    run = run_of(1, config=Config(frames=frames, epochs=5))
    apply = run.model.apply

    def stopped(*arguments):
        before = apply(*arguments)
        if before == 1:
            run.engine.threads._stop()
        return before

    run.model.apply = stopped
    finish(run.engine)
    assert run.progress.updates == updates


def test_a_stuck_worker_is_unblocked():
    stuck, release = threading.Event(), threading.Event()

    def make_actor(index, policy):
        made = play(index, policy)
        made.play_rollout = lambda: stuck.set() or (release.wait(30) and Actor.play_rollout(made))
        return made

    run = run_of(1, make_actor, unblock=release.set)
    run.engine.start()
    assert stuck.wait(30)
    run.engine.threads.stop(patience=0.5)
    assert run.engine.threads.alive() == []
    run.engine.check()


def test_a_rollout_cut_off_by_a_stop_is_not_counted():
    begun, go_on = threading.Event(), threading.Event()

    def pause():
        begun.set()
        go_on.wait(30)

    run = run_of(1, partial(play, before_step=pause), unblock=go_on.set)
    run.engine.start()
    assert begun.wait(30)
    run.engine.threads.stop(patience=0.1)
    assert run.engine.threads.alive() == []
    assert run.engine.capture().counters == Progress().counters()
