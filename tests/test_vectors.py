"""Vectors of games, in this process and in others: Gymnasium's contract, and what befalls servers."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from toys import Counter, Nested, Slow, Troubled

from benchmarks.processes import alive, family, servers, until
from doom_a3c.envs import process, supervisor
from doom_a3c.envs.process import RemoteError, the_keeper
from doom_a3c.envs.supervisor import GamesError
from doom_a3c.envs.vectors import LocalVectorEnv, ProcessVectorEnv
from doom_a3c.settings import UserError

KINDS = {
    "local": LocalVectorEnv,
    "process": ProcessVectorEnv,
    "processes": partial(ProcessVectorEnv, processes=2),
    "rows": partial(ProcessVectorEnv, processes=3, rows=3, prepare=True),
}


@pytest.fixture
def vector(request):
    """Makes vectors; closes them."""
    made = []

    def make(games, kind="processes", **options):
        made.append(KINDS[kind](games, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def counters(count=3, make=Counter, **options):
    return [partial(make, game, **options) for game in range(count)]


every_kind = pytest.mark.parametrize("kind", KINDS)
out_of_process = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "local"])


# Gymnasium's contract


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
def test_games_play_alike_wherever_they_live(vector, kind, make):
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
    assert (env.reset()[0][:, 1] != by_number).any()  # the games' own streams go on
    np.testing.assert_array_equal(env.reset(seed=[5, None, 7])[0][[0, 2], 1], by_number[[0, 2]])


@every_kind
def test_options_reach_the_games_and_a_mask_chooses_them(vector, kind):
    env = vector(counters(), kind)
    _, infos = env.reset(seed=0, options={"map": 7})
    assert infos["map"].tolist() == [7, 7, 7]
    before = env.step(np.array([0, 1, 2]))[0]
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert after[:, 2].tolist() == [1, 0, 1]
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


@out_of_process
def test_wrong_arguments_are_told_and_change_nothing(vector, kind):
    env = vector(counters(), kind)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="2 seeds for 3 games"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="3 bools"):
        env.reset(options={"reset_mask": np.array([True])})
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"actions of shape \(2,\) for 3 games"):
        env.step(np.array([1, 2]))
    assert env.step(np.array([0, 1, 2]))[0][:, 2].tolist() == [1, 1, 1]


@out_of_process
def test_a_closed_vector_says_so_at_once_and_closes_again(vector, kind):
    env = vector(counters(), kind)
    env.reset(seed=1)
    env.close()
    env.close()
    for call in (env.reset, partial(env.step, np.array([0, 1, 2]))):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
            call()


@out_of_process
def test_a_pickled_vector_is_one_of_new_games(vector, kind):
    env = vector(counters(), kind)
    first, _ = env.reset(seed=3)
    env.step(np.array([0, 1, 2]))
    again = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(again.reset(seed=3)[0], first)
    again.close()


def test_games_of_other_spaces_do_not_make_a_vector():
    for processes in (1, 2):
        with pytest.raises(RemoteError, match="equal spaces"):
            ProcessVectorEnv([Counter, Nested], processes)


def test_an_exception_in_a_game_reaches_the_caller_and_closes_the_vector(vector):
    env = vector([*counters(3), partial(Troubled, 3)])
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    with pytest.raises(RemoteError, match=r"(?s)toys\.py.*RuntimeError: game 3 broke"):
        env.step(np.zeros(4, int))
    assert env.closed


def test_the_newest_observations_stay_where_they_are(vector):
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


# What befalls servers


def one_step(env):
    return env.step(np.zeros(env.num_envs, int))


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_the_final_observation_of_a_lost_episode_is_the_one_before(vector, rows):
    env = vector([partial(Counter, 0, 3), partial(Counter, 1, 2), partial(Troubled, 2, "exit", 2)], "process", rows=rows)
    env.reset(seed=0)
    before = one_step(env)[0].copy()
    infos = one_step(env)[4]
    np.testing.assert_array_equal(np.stack(infos["final_obs"]), before)


def test_a_value_of_another_shape_than_the_space_is_an_error(vector):
    env = vector([partial(Troubled, 0, "shape")])
    env.reset(seed=0)
    one_step(env)
    with pytest.raises(RemoteError, match=r"shape \(1,\) in a space of shape \(4,\)"):
        one_step(env)


def test_a_keeper_that_dies_while_it_starts_a_server_is_survived(vector):
    env = vector(counters(4))
    env.reset(seed=0)
    keeper = the_keeper()
    number = env._supervisor._servers[1]._number + 1
    (keeper.root / str(number)).mkdir()  # as one leaves it that dies between two of its steps
    keeper._process.kill()
    os.kill(env._supervisor._servers[0].pid, signal.SIGKILL)
    infos = one_step(env)[4]
    assert set(kinds_met(infos)) == {"server_died"}
    assert one_step(env)[0][:2, 2].tolist() == [1, 1]


def kinds_met(infos):
    return [kind for kinds in infos.get("faults", ()) for kind in kinds or ()]


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGKILL, "server_died"), (signal.SIGSTOP, "server_hung")])
def test_a_server_that_is_gone_is_replaced_and_its_episodes_are_cut(vector, monkeypatch, number, kind):
    monkeypatch.setattr(process, "ANSWER_SECONDS", 1.0)
    env = vector(counters(4))
    env.reset(seed=0)
    before = one_step(env)[0]
    os.kill(env._supervisor._servers[1].pid, number)
    seen, rewards, terminated, truncated, infos = one_step(env)
    assert kinds_met(infos) == [kind]
    assert (truncated.tolist(), terminated.any()) == ([False, False, True, True], False)
    assert infos["final_info"]["cut_short"].tolist() == [False, False, True, True]
    np.testing.assert_array_equal(np.stack(infos["final_obs"][2:]), before[2:])
    assert rewards.tolist() == [2, 2, 0, 0]
    assert seen[:, 2].tolist() == [2, 2, 0, 0]
    assert (seen[2:, 1] != before[2:, 1]).any()  # not the same episodes over again
    assert one_step(env)[0][:, 2].tolist() == [0, 0, 1, 1]


def test_a_server_that_dies_again_and_again_ends_the_games_with_its_last_words(monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES", (0.0, 0.1))
    with pytest.raises(GamesError, match=r"^the games do not start: server_died: no reactor, no game$"):
        ProcessVectorEnv([partial(Troubled, 0, "exit", 0)]).reset()
    assert servers(os.getpid()) == []


def test_mistakes_of_several_servers_leave_none_behind():
    with pytest.raises(UserError, match="no such level"):
        ProcessVectorEnv([partial(Troubled, game, "mistake", 0) for game in range(2)], 2)
    assert servers(os.getpid()) == []


def test_what_cannot_be_sent_is_an_error_and_not_a_death(vector):
    env = vector([partial(Troubled, 0, "unpicklable")])
    env.reset(seed=0)
    one_step(env)
    with pytest.raises(RemoteError, match="pickle"):
        one_step(env)


def test_slow_games_are_not_taken_for_dead(vector, monkeypatch):
    monkeypatch.setattr(process, "ANSWER_SECONDS", 2.5)
    env = vector([partial(Slow, game) for game in range(3)], "process")
    env.reset(seed=0)
    assert kinds_met(one_step(env)[4]) == []


def test_a_reset_plays_its_seeds_even_if_its_server_has_died(vector):
    env = vector(counters(4))
    first, _ = env.reset(seed=3)
    os.kill(env._supervisor._servers[0].pid, signal.SIGKILL)
    again, infos = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    assert kinds_met(infos) == ["server_died"]


@pytest.mark.parametrize("trouble", ["SIGSEGV", "SIGKILL", "exit", "SIGTERM", "SIGINT"])
def test_a_game_that_takes_its_server_along_is_survived(vector, trouble):
    env = vector([partial(Counter, 0), partial(Troubled, 1, trouble)])
    env.reset(seed=0)
    one_step(env)
    *_, truncated, infos = one_step(env)
    assert truncated.tolist() == [False, True]
    assert kinds_met(infos) == ["server_died"]
    assert one_step(env)[0][:, 2].tolist() == [0, 1]


def test_prepared_servers_that_die_before_the_reset_are_replaced(vector):
    env = vector(counters(4), prepare=True)
    for server in env._supervisor._servers:
        os.kill(server.pid, signal.SIGKILL)
    _, infos = env.reset(seed=0)
    assert kinds_met(infos) == ["server_died"] * 2
    assert one_step(env)[0][:, 2].tolist() == [1] * 4


def test_a_thread_that_waits_for_games_is_released(vector):
    env = vector([partial(Troubled, 0, "sleep"), Counter])
    env.reset(seed=0)
    one_step(env)
    results = []
    thread = threading.Thread(target=lambda: results.append(one_step(env)))
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive()
    env.release()
    thread.join(5)
    assert not thread.is_alive()
    assert results[0][3].all()
    for _ in range(3):  # whoever plays on comes to its end
        assert one_step(env)[3].all()


def test_another_keeper_takes_over_when_one_dies(vector):
    env = vector(counters(4))
    env.reset(seed=0)
    the_keeper()._process.kill()
    one_step(env)  # servers outlive it
    pids = [server.pid for server in env._supervisor._servers]
    os.kill(pids[0], signal.SIGSTOP)  # one that cannot end by itself
    os.kill(pids[1], signal.SIGKILL)
    env._supervisor._servers[0].end()
    seen = one_step(env)[0]
    assert seen[:, 2].tolist() == [0, 0, 0, 0]
    assert until(lambda: not any(map(alive, pids)))
    assert one_step(env)[0][:, 2].tolist() == [1] * 4


@pytest.mark.parametrize("stopped", [False, True])
def test_servers_go_with_their_owner(stopped, root):
    script = (
        "import sys; sys.path.append('tests'); from toys import Counter; import os, time\n"
        "from doom_a3c.envs.vectors import ProcessVectorEnv; from doom_a3c.envs.process import the_keeper\n"
        "env = ProcessVectorEnv([Counter] * 4, 2); env.reset()\n"
        "print(the_keeper().root, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root)
    folder = Path(owner.stdout.readline().strip())
    pids, helpers = servers(owner.pid), family(owner.pid)
    assert len(pids) == 2
    if stopped:
        os.kill(pids[0], signal.SIGSTOP)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert until(lambda: not any(map(alive, helpers)) and not folder.exists(), 5)


def test_closing_while_another_thread_steps_ends_that_thread_in_order(vector):
    for _ in range(10):
        env = vector(counters(4))
        env.reset(seed=0)
        ends = []

        def play(env=env, ends=ends):
            try:
                while True:
                    one_step(env)
            except BaseException as error:
                ends.append(type(error))

        thread = threading.Thread(target=play)
        thread.start()
        time.sleep(0.05)
        env.close()
        thread.join(10)
        assert ends == [gymnasium.error.ClosedEnvironmentError]
    assert servers(os.getpid()) == []
