"""The queue engine: its channels, what it counts and learns, and that it ends promptly whatever goes wrong."""

import itertools
import threading
import time
import traceback
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from fakes import changed

from doom_a3c.config import Config
from doom_a3c.engines.channel import Channel, ClosedError
from doom_a3c.engines.queue import Answer, QueueEngine, RemotePolicy
from doom_a3c.engines.threads import ThreadsEngine, Worker
from doom_a3c.engines.updates import MAX_NON_FINITE, DivergedError, Updater
from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.model import GlobalModel
from doom_a3c.networks import ACNetwork, Inputs
from doom_a3c.optimizers import RMSProp
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Actor, Policy
from doom_a3c.scenarios import Network

SPEC = Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4)
DECISIONS = 8  # of a rollout: 2 games, 4 decisions
SMALL = Config(engine="queue", workers=1, games=2, rollout_length=4, frame_skip=3, discount=0.9, frames=10**9)


class Tape(gymnasium.Env):
    """Shows its owner, the time and the last action in noise; pays by the action; episodes end and are cut off in turn."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, owner, episode, reward=1.0, before_step=lambda: None):
        self.owner, self.episode, self.reward, self.before_step = owner, episode, reward, before_step

    def see(self, action):
        pixels = np.random.default_rng([self.owner, self.time, action]).integers(256, size=(6, 6, 1), dtype=np.uint8)
        pixels[0, 0] = self.owner
        return pixels

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.episode = 0, self.episode + 1
        return self.see(9), {}

    def step(self, action):
        self.before_step()
        self.time += 1
        ended, cut = self.time >= 3, self.episode % 2 == 0
        return self.see(int(action)), self.reward * (1 + int(action)), ended and not cut, ended and cut, {}


class Diary(Progress):
    """Notes the rollouts and the lag of every update; `on_steps` is called whenever a rollout has been counted."""

    def __init__(self):
        super().__init__()
        self.batches, self.lags, self.on_steps = [[]], [], lambda: None

    def add_steps(self, steps, frames, scores, faults):
        super().add_steps(steps, frames, scores, faults)
        self.batches[-1].append(steps)
        self.on_steps()

    def add_update(self, entropy, lag):
        super().add_update(entropy, lag)
        self.lags.append(lag)
        self.batches.append([])


class Ledger(GlobalModel):
    """Notes who has pulled its weights."""

    def __init__(self):
        shared = network("global")
        super().__init__(shared, RMSProp(shared.parameters))
        self.pulled = set()

    def pull(self, network):
        self.pulled.add(network.name)
        return super().pull(network)


def network(name):
    return ACNetwork(SPEC, Inputs((6, 6, 1), 0), 3, 1, name)


def actor(index, policy, **game):
    env = LocalVectorEnv([partial(Tape, index, episode, **game) for episode in range(2)])
    seed = np.random.SeedSequence([1, index])
    return Actor(env, policy, rollout_length=4, discount=0.9, reward_scale=1.0, seed=seed)


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def alive(run):
    pools = [thread for thread in threading.enumerate() if thread.name.startswith("games-")]
    return [thread.name for thread in (*run.engine._threads, *pools) if thread.is_alive()]


@pytest.fixture
def build():
    """Builds queue engines of tiny games; ends them, whatever the test does."""
    runs = []

    def make(config, make_actor=actor, make_network=network):
        run = SimpleNamespace(config=config, progress=Diary(), model=Ledger(), unblocked=threading.Event())
        run.engine = QueueEngine(
            config=config,
            model=run.model,
            games=[partial(make_actor, index) for index in range(config.workers)],
            make_network=make_network,
            progress=run.progress,
            summaries=[None] * config.trainers,
            unblock=run.unblocked.set,
        )
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.engine.stop()


def finish(run):
    run.engine.start()
    for thread in run.engine._threads:
        if thread.name.startswith(("trainer", "worker")):
            thread.join(60)
    run.engine.stop()
    run.engine.check()


# The channel


def caught(call, *arguments):
    """Starts a thread that appends the result of a call, or its ClosedError, to the list that is returned with it."""
    results = []

    def run():
        try:
            results.append(call(*arguments))
        except ClosedError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def test_a_channel_keeps_the_order_and_hands_out_at_most_high():
    channel = Channel(10)
    for item in range(5):
        channel.put(item)
    assert len(channel) == 5
    assert channel.take(1, 3) == [0, 1, 2]
    assert channel.take(1, 9) == [3, 4]
    assert len(channel) == 0


def test_a_put_waits_until_there_is_room():
    channel = Channel(2)
    channel.put(0)
    channel.put(1)
    thread, results = caught(channel.put, 2)
    thread.join(0.1)
    assert thread.is_alive()
    assert len(channel) == 2
    assert channel.take(1, 1) == [0]
    thread.join(10)
    assert results == [None]
    assert channel.take(1, 3) == [1, 2]


def test_a_take_waits_for_low():
    channel = Channel(5)
    channel.put(0)
    thread, results = caught(channel.take, 3, 4)
    channel.put(1)
    thread.join(0.1)
    assert thread.is_alive()
    channel.put(2)
    thread.join(10)
    assert results == [[0, 1, 2]]


def test_closing_wakes_everyone_on_either_side():
    full, short = Channel(1), Channel(5)
    full.put(0)
    short.put(0)
    waiting = [caught(full.put, 1), caught(full.put, 2), caught(short.take, 2, 2), caught(short.take, 3, 3)]
    for thread, _ in waiting:
        thread.join(0.05)
        assert thread.is_alive()
    full.close()
    short.close()
    for thread, results in waiting:
        thread.join(10)
        assert [type(result) for result in results] == [ClosedError]


def test_a_closed_channel_takes_and_gives_nothing():
    channel = Channel(5)
    channel.put(0)
    channel.close()
    channel.close()
    with pytest.raises(ClosedError):
        channel.put(1)
    with pytest.raises(ClosedError):
        channel.take(1, 1)


def test_many_threads_lose_and_double_nothing():
    channel = Channel(3)

    def put(start):
        for item in range(start, start + 300):
            channel.put(item)

    def take():
        return [item for _ in range(200) for item in channel.take(1, 1)]

    putters, takers = [caught(put, 300 * i) for i in range(4)], [caught(take) for _ in range(6)]
    for thread, _ in (*putters, *takers):
        thread.join(30)
    taken = [results[0] for _, results in takers]
    assert sorted(itertools.chain(*taken)) == list(range(1200))
    for items in taken:
        for start in range(0, 1200, 300):  # of one putter's items, each taker gets the older first
            mine = [item for item in items if start <= item < start + 300]
            assert mine == sorted(mine)


# What is counted and learned


def test_everything_is_counted_once_and_the_run_ends_at_its_budget(build):
    run = build(changed(SMALL, frames=480, max_batch=DECISIONS))
    finish(run)
    assert run.progress.frames == 480
    assert run.progress.steps == 160  # three tics a decision
    assert run.progress.updates == run.model.version == 20
    assert run.progress.episodes == 2 * (80 // 3)
    assert 3 <= min(run.progress.scores) <= max(run.progress.scores) <= 9
    assert alive(run) == []
    assert not run.unblocked.is_set()


def test_several_game_threads_predictors_and_trainers_share_the_work(build):
    run = build(changed(SMALL, workers=4, predictors=2, trainers=2, frames=3600, max_batch=DECISIONS))
    names = [thread.name for thread in run.engine._threads]
    assert names == [*(f"games_{i}" for i in range(4)), "predictor_0", "predictor_1", "trainer_0", "trainer_1"]
    finish(run)
    assert run.model.pulled == {"predictor_0", "predictor_1", "trainer_0", "trainer_1"}
    assert 1200 <= run.progress.steps <= 1200 + DECISIONS
    assert run.progress.frames == 3 * run.progress.steps
    assert run.progress.updates == run.model.version == run.progress.steps // DECISIONS
    assert run.progress.episodes == pytest.approx(run.progress.steps / 3, abs=2 * 4)
    assert all(np.isfinite(value).all() for value in run.model.snapshot().values())
    assert alive(run) == []


@pytest.mark.parametrize(
    ("limits", "rollouts"),
    [
        ({"max_batch": 1}, 1),  # one rollout is the least
        ({"max_batch": 31}, 3),
        ({"max_batch": 1024}, 4),  # all that fit in the queue
        ({"max_batch": 16, "accumulate": 2}, 4),
    ],
)
def test_an_update_learns_from_what_waits_up_to_max_batch(build, limits, rollouts):
    run = build(changed(SMALL, **limits, queue_size=4, frames=3 * 3 * rollouts * DECISIONS))
    take = run.engine._rollouts.take

    def take_from_full_queue(low, high):
        until(lambda: len(run.engine._rollouts) == 4 or run.engine._stopping.is_set())
        return take(low, high)

    run.engine._rollouts.take = take_from_full_queue
    finish(run)
    assert run.progress.batches == [[DECISIONS] * rollouts] * 3 + [[]]
    assert run.engine.metrics()["Queue/Training Batch"] == rollouts * DECISIONS


def test_an_update_waits_for_min_batch(build):
    slow = partial(actor, before_step=lambda: time.sleep(0.002))
    run = build(changed(SMALL, min_batch=2 * DECISIONS + 1, frames=3 * 3 * 4 * DECISIONS), slow)
    finish(run)
    assert len(run.progress.batches) >= 4
    assert all(len(batch) >= 3 for batch in run.progress.batches[:-1])


def test_each_game_thread_gets_the_answers_to_its_own_observations(build):
    run = build(changed(SMALL, workers=3, queue_size=30, min_batch=2**20))  # which never learns
    requests, take, sizes = run.engine._requests, run.engine._requests.take, set()

    def take_from_all(low, high):
        """All threads' requests, of two games each or of one where a truncation is valued, in one call of the network."""
        until(lambda: len(requests) == 3 or run.engine._stopping.is_set())
        taken = take(low, high)
        sizes.add(tuple(len(request.resets) for request in taken))
        return taken

    requests.take = take_from_all
    run.engine.start()
    until(lambda: len(run.engine._rollouts) >= 18)
    rollouts = [run.engine._rollouts.take(1, 1)[0].rollout for _ in range(18)]
    run.engine.stop()
    run.engine.check()
    assert sizes >= {(2, 2, 2), (1, 1, 1)}
    for owner in range(3):
        alone = actor(owner, Policy(network("alone")))
        mine = [rollout for rollout in rollouts if rollout.observations[0, 0, 0, 0, 0] == owner]
        assert len(mine) >= 2
        for rollout in mine:
            expected = alone.rollout()
            np.testing.assert_array_equal(rollout.observations, expected.observations)
            np.testing.assert_array_equal(rollout.actions, expected.actions)
            for name in ("values", "next_values", "log_probs"):
                np.testing.assert_allclose(getattr(rollout, name), getattr(expected, name), rtol=1e-4, atol=1e-6)
            for state, other in zip(rollout.core_state, expected.core_state, strict=True):
                np.testing.assert_allclose(state, other, rtol=1e-4, atol=1e-6)
        alone.close()


@pytest.mark.parametrize("vtrace", [True, False])
def test_the_first_update_is_that_of_the_threads_engine(build, vtrace):
    # A budget of one rollout: both engines end after the update that learns from it.
    config = changed(SMALL, vtrace=vtrace, learning_rate=1e-2, accumulate=1, frames=3 * DECISIONS, max_batch=DECISIONS)
    queue = build(config)
    before = queue.model.snapshot()
    finish(queue)
    model, progress, stop = Ledger(), Progress(), threading.Event()
    config = changed(config, engine="threads")
    worker = Worker(
        0,
        config=config,
        model=model,
        network=network("worker_0"),
        make_actor=actor,
        progress=progress,
        updates=Updater(config, model, progress, None),
        stop=stop,
    )
    finish(SimpleNamespace(engine=ThreadsEngine([worker], stop, lambda: None)))
    assert queue.model.version == model.version == 1
    assert queue.progress.episodes == progress.episodes == 2
    after, expected = queue.model.snapshot(), model.snapshot()
    assert after.keys() == expected.keys()
    for name, value in expected.items():
        change = np.abs(value - before[name]).max()
        assert change > 0 or "momentum" in name
        np.testing.assert_allclose(after[name], value, rtol=0, atol=max(1e-4 * change, 1e-7), err_msg=name)


# Old weights


def test_a_rollout_is_as_old_as_the_oldest_answer_in_it():
    requests = Channel(1)
    policy = RemotePolicy(requests, lambda batch: ())
    for versions, newest, oldest in (([8, 5, 7], 9, 5), ([10, 11], 9, 9), ([12], 12, 12)):
        policy.take_oldest_version(newest)
        for version in versions:
            policy.answers.put(Answer(np.zeros((2, 3)), np.ones(2), (), version))
            logits, values, core_state = policy(np.zeros((2, 6)), np.ones(2), ())
            requests.take(1, 1)
            assert (logits.shape, values.tolist(), core_state) == ((2, 3), [1.0, 1.0], ())
        assert policy.take_oldest_version(newest) == oldest


def test_the_lag_of_an_update_counts_the_updates_since_its_rollout_was_begun(build):
    run = build(changed(SMALL, queue_size=4, max_batch=DECISIONS, frames=3 * 8 * DECISIONS))
    # The first update waits for four more rollouts, all of them played by the very first weights.
    run.progress.on_steps = lambda: run.progress.lags or until(lambda: len(run.engine._rollouts) == 4)
    finish(run)
    assert run.progress.lags[:5] == [0, 1, 2, 3, 4]
    assert len(run.progress.lags) == 8
    assert run.progress.lag == run.progress.lags[-1] > 0


def test_predictors_answer_by_the_newest_weights(build):
    # A rollout is begun when the one before it is queued, which it can be once that of two before is being learned from.
    run = build(changed(SMALL, queue_size=1, max_batch=DECISIONS, frames=3 * 40 * DECISIONS))
    finish(run)
    assert len(run.progress.lags) == 40
    assert max(run.progress.lags) <= 2


# Ends


def ends_within(seconds, run, **patience):
    start = time.monotonic()
    run.engine.stop(**patience)
    assert time.monotonic() - start < seconds
    assert alive(run) == []


def test_stopping_is_prompt_while_the_games_wait_for_a_learner_that_never_comes(build):
    run = build(changed(SMALL, workers=3, queue_size=2, min_batch=2**20))
    run.engine.start()
    until(lambda: len(run.engine._rollouts) == 2)
    time.sleep(0.3)
    assert len(run.engine._rollouts) == 2  # so the games wait
    assert run.engine.metrics()["Queue/Rollouts"] == 2
    ends_within(1, run)
    run.engine.check()
    assert not run.unblocked.is_set()
    assert run.progress.updates == run.model.version == 0


def test_a_hanging_game_is_unblocked(build):
    hangs, release = threading.Event(), threading.Event()

    def hang():
        hangs.set()
        release.wait(30)

    run = build(SMALL, partial(actor, before_step=hang))
    run.engine._unblock = release.set
    run.engine.start()
    assert hangs.wait(30)
    ends_within(2, run, patience=0.5)
    run.engine.check()
    assert release.is_set()


def test_stopping_twice_or_before_the_start_is_harmless(build):
    run = build(SMALL)
    run.engine.stop()
    run.engine.stop()
    run.engine.check()
    assert alive(run) == []
    run = build(SMALL)
    run.engine.start()
    until(lambda: run.progress.updates > 1)
    for _ in range(2):
        ends_within(2, run)
        run.engine.check()


class Broken(ACNetwork):
    """Neither predicts nor learns."""

    def unroll(self, observations, resets, core_state):
        raise RuntimeError("the network broke")


def break_game():
    raise RuntimeError("the game broke")


def no_game(index, policy):
    raise RuntimeError("there is no game")


def broken(role):
    return lambda name: (Broken if name.startswith(role) else ACNetwork)(SPEC, Inputs((6, 6, 1), 0), 3, 1, name)


@pytest.mark.parametrize(
    ("pieces", "message", "place"),
    [
        ({"make_actor": partial(actor, before_step=break_game)}, "the game broke", "break_game"),
        ({"make_actor": no_game}, "there is no game", "no_game"),
        ({"make_network": broken("trainer")}, "the network broke", "gradients"),
        ({"make_network": broken("predictor")}, "the network broke", "_predict"),
    ],
)
def test_an_error_in_any_thread_ends_all_and_reaches_the_caller_with_its_traceback(build, pieces, message, place):
    run = build(changed(SMALL, workers=2, trainers=2, predictors=2), **pieces)
    run.engine.start()
    until(lambda: alive(run) == [])  # without being told to stop
    with pytest.raises(RuntimeError, match=message) as raised:
        run.engine.check()
    assert place in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    run.engine.stop()
    assert run.model.version == 0


def test_rewards_that_are_no_numbers_end_the_run_and_change_nothing(build):
    run = build(changed(SMALL, max_batch=DECISIONS), partial(actor, reward=float("nan")))
    before = run.model.snapshot()
    run.engine.start()
    until(lambda: alive(run) == [])
    with pytest.raises(DivergedError, match="losses or gradients were not finite"):
        run.engine.check()
    after = run.model.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert run.progress.faults == {"non_finite_update": MAX_NON_FINITE}
    assert run.progress.updates == run.model.version == 0
