"""Vectors of games, in this process and in others: Gymnasium's contract."""

import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from toys import Counter, Nested, Troubled, counters

from doom_a3c.envs.processes.client import RemoteError
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv

KINDS = {
    "local": LocalVectorEnv,
    "process": ProcessVectorEnv,
    "processes": partial(ProcessVectorEnv, processes=2),
    "rows": partial(ProcessVectorEnv, processes=3, rows=3, prepare=True),
}


@pytest.fixture
def vector(closing):
    """Makes vectors; closes them."""
    return lambda games, kind="processes", **options: closing(KINDS[kind](games, **options))


every_kind = pytest.mark.parametrize("kind", KINDS)
out_of_process = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "local"])


@every_kind
def test_an_episode_ends_and_begins_in_one_step(vector, kind):
    env = vector([partial(Counter, 0, 3), partial(Counter, 1, 2), partial(Counter, 2, 2, truncates=True)], kind)
    first, infos = env.reset(seed=5)
    np.testing.assert_array_equal(first[:, [0, 2, 3]], [[0, 0, -1], [1, 0, -1], [2, 0, -1]])
    np.testing.assert_array_equal(infos["seed"], first[:, 1])
    env.step(np.array([0, 1, 2]))
    seen, rewards, terminated, truncated, infos = env.step(np.array([0, 1, 2]))
    np.testing.assert_array_equal(seen[:, [0, 2, 3]], [[0, 2, 0], [1, 0, -1], [2, 0, -1]])
    np.testing.assert_array_equal(rewards, [2.0, 2.0, 2.0])
    assert (terminated.tolist(), truncated.tolist()) == ([False, True, False], [False, False, True])
    assert infos["final_obs"][0] is None
    np.testing.assert_array_equal(infos["final_obs"][1], [1, first[1, 1], 2, 1])
    np.testing.assert_array_equal(infos["_final_obs"], [False, True, True])
    assert infos["seed"][1] == seen[1, 1] != first[1, 1]  # another episode
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    assert (env.single_action_space.n, env.observation_space.shape, env.num_envs) == (3, (3, 4), 3)


def text(value):
    """Returns nested values as a text that does not depend on the order of keys."""
    return f"{{{sorted((key, text(part)) for key, part in value.items())}}}" if isinstance(value, dict) else repr(value)


@every_kind
@pytest.mark.parametrize("make", [Counter, Nested])
def test_games_play_the_same_in_every_kind_of_vector(vector, kind, make):
    one, other = vector(counters(5, make), "local"), vector(counters(5, make), kind)
    random = np.random.default_rng(1)
    results = [env.reset(seed=[3, 1, 4, 1, 5]) for env in (one, other)]
    for _ in range(9):
        for mine, theirs in zip(*results, strict=True):
            assert text(mine) == text(theirs)
        actions = random.integers(3, size=5)
        results = [env.step(actions) for env in (one, other)]


@every_kind
def test_observations_are_not_changed_by_the_next_step(vector, kind):
    env = vector(counters(), kind)
    first, _ = env.reset(seed=0)
    copy = first.copy()
    env.step(np.array([0, 1, 2]))
    np.testing.assert_array_equal(first, copy)


@every_kind
def test_seeds_reach_their_games(vector, kind):
    env = vector(counters(), kind)
    by_number = env.reset(seed=5)[0][:, 1]
    np.testing.assert_array_equal(env.reset(seed=[5, 6, 7])[0][:, 1], by_number)
    np.testing.assert_array_equal(env.reset(seed=np.array([5, 6, 7], np.uint32))[0][:, 1], by_number)
    assert (env.reset()[0][:, 1] != by_number).any()  # the games' own random streams go on
    np.testing.assert_array_equal(env.reset(seed=[5, None, 7])[0][[0, 2], 1], by_number[[0, 2]])


@every_kind
def test_options_reach_the_games_and_a_mask_selects_them(vector, kind):
    env = vector(counters(), kind)
    _, infos = env.reset(seed=0, options={"map": 7})
    assert infos["map"].tolist() == [7, 7, 7]
    before = env.step(np.array([0, 1, 2]))[0]
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert after[:, 2].tolist() == [1, 0, 1]
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


@out_of_process
def test_wrong_arguments_raise_and_change_nothing(vector, kind):
    env = vector(counters(), kind)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="2 seeds for 3 games"):
        env.reset(seed=[1, 2])
    for seed in (-2, [1, None, -2]):
        with pytest.raises(ValueError, match="not -2"):
            env.reset(seed=seed)
    with pytest.raises(ValueError, match="3 bools"):
        env.reset(options={"reset_mask": np.array([True])})
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"actions of shape \(2,\) for 3 games"):
        env.step(np.array([1, 2]))
    assert env.step(np.array([0, 1, 2]))[0][:, 2].tolist() == [1, 1, 1]


@out_of_process
def test_a_closed_vector_raises_and_may_be_closed_again(vector, kind):
    env = vector(counters(), kind)
    env.reset(seed=1)
    env.close()
    env.close()
    for call in (env.reset, partial(env.step, np.array([0, 1, 2]))):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
            call()


@out_of_process
def test_unpickling_a_vector_makes_new_games(vector, kind):
    env = vector(counters(), kind)
    first, _ = env.reset(seed=3)
    env.step(np.array([0, 1, 2]))
    again = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(again.reset(seed=3)[0], first)
    again.close()


def test_games_with_different_spaces_are_refused():
    for processes in (1, 2):
        with pytest.raises(RemoteError, match="equal spaces"):
            ProcessVectorEnv([Counter, Nested], processes)


def test_an_exception_in_a_game_is_raised_and_closes_the_vector(vector):
    env = vector([*counters(3), partial(Troubled, 3)])
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    with pytest.raises(RemoteError, match=r"(?s)toys\.py.*RuntimeError: game 3 broke"):
        env.step(np.zeros(4, int))
    assert env.closed


def test_kept_observations_share_the_vectors_memory(vector):
    env = vector(counters(2), "process", rows=4, copy=False)
    first, _ = env.reset(seed=0)
    copies = [first.copy()]
    with pytest.raises(ValueError, match="1 observations are kept"):
        env.history(3)
    for rollout in range(3):
        for _ in range(3):
            newest = env.step(np.array([rollout, 1]))[0]
            copies.append(newest.copy())
        assert np.shares_memory(env.history(3), newest)
        np.testing.assert_array_equal(env.history(3), copies[-4:])
