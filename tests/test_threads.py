"""The threads engine and the run around it: identities, errors, the non-finite guard, evaluation shares."""

import threading
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from doom_a3c.config import Config
from doom_a3c.engines.threads import ThreadsEngine, Worker
from doom_a3c.engines.updates import MAX_NON_FINITE, DivergedError, Updater
from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.evaluation import Evaluator
from doom_a3c.model import GlobalModel
from doom_a3c.networks import ACNetwork, Inputs
from doom_a3c.optimizers import Adam
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Actor
from doom_a3c.scenarios import Network

SPEC = Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4)


class Tape(gymnasium.Env):
    """Pays `reward` a step and ends after `length` steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, reward=1.0, length=3):
        self.reward, self.length = reward, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros((6, 6, 1), np.uint8), {}

    def step(self, action):
        self.time += 1
        return np.full((6, 6, 1), self.time, np.uint8), self.reward, self.time >= self.length, False, {}


def network(name):
    return ACNetwork(SPEC, Inputs((6, 6, 1), 0), 3, 1, name)


def actor(index, policy, reward=1.0):
    env = LocalVectorEnv([lambda: Tape(reward)] * 2)
    seed = np.random.SeedSequence([1, index])
    return Actor(env, policy, rollout_length=4, discount=0.9, reward_scale=1.0, seed=seed)


def model():
    shared = network("global")
    return GlobalModel(shared, Adam(shared.parameters))


def workers(count, make_actor, config=None):
    run = SimpleNamespace(stop=threading.Event(), progress=Progress(), model=model())
    config = config or Config(frame_skip=1, frames=200 * count)
    run.workers = [
        Worker(
            index,
            config=config,
            model=run.model,
            network=network(f"worker_{index}"),
            make_actor=make_actor,
            progress=run.progress,
            updates=Updater(config, run.model, run.progress, None),
            stop=run.stop,
        )
        for index in range(count)
    ]
    run.engine = ThreadsEngine(run.workers, run.stop, unblock=lambda: None)
    return run


def finish(run):
    run.engine.start()
    for thread in run.engine._threads:
        thread.join(60)
    run.engine.stop()
    run.engine.check()


def test_sixteen_workers_have_sixteen_identities_and_all_count():
    seen = []

    def make_actor(index, policy):
        seen.append((index, policy._network.name, threading.current_thread().name))
        return actor(index, policy)

    run = workers(16, make_actor)
    finish(run)
    assert sorted(seen) == [(i, f"worker_{i}", f"worker_{i}") for i in range(16)]
    assert run.progress.frames >= 3200
    assert run.progress.steps == 8 * run.progress.updates == run.progress.frames
    assert run.model.version == run.progress.updates
    assert run.progress.episodes == pytest.approx(run.progress.steps / 3, rel=0.1)
    assert set(run.progress.scores) == {3.0}


def test_the_first_error_of_a_worker_reaches_the_caller_and_stops_the_others():
    def make_actor(index, policy):
        if index == 1:
            raise RuntimeError("no game for worker 1")
        return actor(index, policy)

    run = workers(3, make_actor, Config(frame_skip=1))
    with pytest.raises(RuntimeError, match="no game for worker 1"):
        finish(run)
    assert not [thread for thread in run.engine._threads if thread.is_alive()]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("games-")]


def test_non_finite_updates_are_counted_never_applied_and_end_the_run_when_many():
    run = workers(1, lambda index, policy: actor(index, policy, reward=float("nan")))
    before = run.model.snapshot()
    with pytest.raises(DivergedError, match="not finite"):
        finish(run)
    after = run.model.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert run.progress.faults == {"non_finite_update": MAX_NON_FINITE}
    assert run.progress.updates == run.model.version == 0


def test_one_bad_rollout_is_skipped_and_training_goes_on():
    def make_actor(index, policy):
        whole = actor(index, policy)
        rollouts = iter([True] + [False] * 1000)

        def rollout():
            played = Actor.rollout(whole)
            return played._replace(rewards=played.rewards * np.nan) if next(rollouts) else played

        whole.rollout = rollout
        return whole

    run = workers(1, make_actor)
    finish(run)
    assert run.progress.faults == {"non_finite_update": 1}
    assert run.progress.updates == run.progress.steps / 8 - 1
    assert all(np.isfinite(value).all() for value in run.model.snapshot().values())


def test_a_stuck_worker_is_unblocked():
    release = threading.Event()

    def make_actor(index, policy):
        stuck = actor(index, policy)
        stuck.rollout = lambda: release.wait(30) and Actor.rollout(stuck)
        return stuck

    run = workers(1, make_actor)
    run.engine = ThreadsEngine(run.workers, run.stop, unblock=release.set)
    run.engine.start()
    run.engine.stop(patience=0.5)
    assert not run.engine._threads[0].is_alive()


def test_evaluation_gives_each_game_its_share_so_that_short_episodes_are_not_favoured():
    lengths = [2, 9, 2, 9]
    env = LocalVectorEnv([lambda length=length: Tape(1.0, length) for length in lengths])
    evaluator = Evaluator(env, network("evaluator"), np.random.SeedSequence(1))
    greedy, sampled = evaluator.evaluate(6)
    evaluator.close()
    assert greedy == sampled
    assert (greedy.mean, greedy.min, greedy.max, greedy.episodes) == (5.5, 2.0, 9.0, 6)


def test_faults_of_evaluation_are_told():
    env = LocalVectorEnv([partial(Tape, 1.0, 2)] * 2)
    play, faults = env.step, []

    def step(actions):
        *results, infos = play(actions)
        return *results, {**infos, "faults": [["server_died"], None]}

    env.step = step
    evaluator = Evaluator(env, network("evaluator"), np.random.SeedSequence(1), 0.0, faults.extend)
    evaluator.evaluate(1)
    evaluator.close()
    assert faults == ["server_died"] * 2


def test_evaluation_gives_up_when_told_to():
    stop = threading.Event()
    stop.set()
    evaluator = Evaluator(LocalVectorEnv([Tape] * 2), network("evaluator"), np.random.SeedSequence(1))
    assert evaluator.evaluate(3, stop) is None
    evaluator.close()
