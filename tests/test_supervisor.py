"""Game servers that die, hang or fail, and their replacements."""

import os
import re
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
from toys import Counter, Slow, Troubled, counters, one_step

from benchmarks.common.processes import alive, family, servers, until
from doom_a3c.envs.processes import client as process
from doom_a3c.envs.processes import retries
from doom_a3c.envs.processes.client import GameProcess, ProcessError, RemoteError, get_fork_server
from doom_a3c.envs.processes.ends import End
from doom_a3c.envs.processes.retries import GamesError
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.interface import CUT_SHORT, FAULTS


@pytest.fixture
def vector(closing):
    """Makes vector environments, and closes them afterwards."""
    return lambda games, processes=2, **options: closing(ProcessVectorEnv(games, processes, **options))


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_lost_episode_ends_with_its_last_known_observation(vector, rows):
    env = vector([partial(Counter, 0, 3), partial(Counter, 1, 2), partial(Troubled, 2, "exit", 2)], 1, rows=rows)
    env.reset(seed=0)
    before = one_step(env)[0].copy()
    infos = one_step(env)[4]
    np.testing.assert_array_equal(np.stack(infos["final_obs"]), before)


def test_a_value_that_does_not_fit_its_space_is_an_error(vector):
    env = vector([partial(Troubled, 0, "shape")])
    env.reset(seed=0)
    one_step(env)
    with pytest.raises(RemoteError, match=r"shape \(1,\) in a space of shape \(4,\)"):
        one_step(env)


def test_servers_take_turns_and_return_them_after_an_error(vector, monkeypatch):
    turns, running, most = threading.Semaphore(1), [], []
    ask, answer = GameProcess.ask, GameProcess.answer

    def note_ask(server, method, *arguments):
        if method == "step":
            running.append(server)
            most.append(len(running))
        ask(server, method, *arguments)

    def note_answer(server, *arguments):
        result = answer(server, *arguments)
        if server in running:
            running.remove(server)
        return result

    monkeypatch.setattr(GameProcess, "ask", note_ask)
    monkeypatch.setattr(GameProcess, "answer", note_answer)
    monkeypatch.setattr(ProcessVectorEnv, "_find_turns", lambda self, method: turns)
    env = vector([partial(Troubled, 0, "shape"), *counters(2)], 3)
    env.reset(seed=0)
    one_step(env)
    assert most == [1, 1, 1]
    with pytest.raises(RemoteError):
        one_step(env)
    assert turns.acquire(blocking=False)
    assert not turns.acquire(blocking=False)


def test_released_games_that_were_starting_announce_no_retries(vector, capfd):
    supervisor = vector(counters(1))._supervisor
    supervisor.release()
    assert supervisor.replace((0,), ProcessError("server_died", End()), "prepare") == []
    assert capfd.readouterr().err == ""


def test_games_survive_a_fork_server_that_dies_during_a_start(vector):
    env = vector(counters(4))
    env.reset(seed=0)
    fork_server = get_fork_server()
    number = env._supervisor._servers[1]._number + 1
    (fork_server.root / str(number)).mkdir()  # as left by one that dies halfway through a start
    fork_server._process.kill()
    os.kill(env._supervisor._servers[0].pid, signal.SIGKILL)
    infos = one_step(env)[4]
    assert set(kinds_met(infos)) == {"server_died"}
    assert one_step(env)[0][:2, 2].tolist() == [1, 1]


def kinds_met(infos):
    return [kind for kinds in infos.get(FAULTS, ()) for kind in kinds or ()]


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGKILL, "server_died"), (signal.SIGSTOP, "server_hung")])
def test_a_dead_or_hung_server_is_replaced_and_its_episodes_cut(vector, monkeypatch, number, kind):
    monkeypatch.setattr(process, "ANSWER_SECONDS", 1.0)
    env = vector(counters(4))
    env.reset(seed=0)
    before = one_step(env)[0]
    os.kill(env._supervisor._servers[1].pid, number)
    seen, rewards, terminated, truncated, infos = one_step(env)
    assert kinds_met(infos) == [kind]
    assert (truncated.tolist(), terminated.any()) == ([False, False, True, True], False)
    assert infos["final_info"][CUT_SHORT].tolist() == [False, False, True, True]
    np.testing.assert_array_equal(np.stack(infos["final_obs"][2:]), before[2:])
    assert rewards.tolist() == [2, 2, 0, 0]
    assert seen[:, 2].tolist() == [2, 2, 0, 0]
    assert (seen[2:, 1] != before[2:, 1]).any()  # not the same episodes again
    assert one_step(env)[0][:, 2].tolist() == [0, 0, 1, 1]


def test_a_server_that_keeps_dying_ends_the_games_with_its_error(monkeypatch):
    monkeypatch.setattr(retries, "PAUSES", (0.0, 0.1))
    with pytest.raises(GamesError, match="server_died: no reactor, no game"):
        ProcessVectorEnv([partial(Troubled, 0, "exit", 0)]).reset()
    assert servers(os.getpid()) == []


def test_retries_of_failing_starts_are_announced_once(monkeypatch, capsys):
    monkeypatch.setattr(retries, "PAUSES", (0.0, 0.1, 0.1))
    monkeypatch.setattr(retries, "_ended_alike", lambda failures: False)  # as if engines hung
    with pytest.raises(GamesError):
        ProcessVectorEnv([partial(Troubled, 0, "exit", 0)]).reset()
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"no reactor, no game.* until \d\d:\d\d:\d\d$", line)


def test_user_errors_in_several_servers_leave_none_running():
    with pytest.raises(UserError, match="no such level"):
        ProcessVectorEnv([partial(Troubled, game, "mistake", 0) for game in range(2)], 2)
    assert servers(os.getpid()) == []


def test_an_unpicklable_value_is_an_error_and_not_a_death(vector):
    env = vector([partial(Troubled, 0, "unpicklable")])
    env.reset(seed=0)
    one_step(env)
    with pytest.raises(RemoteError, match="pickle"):
        one_step(env)


@pytest.mark.process
def test_slow_games_are_not_taken_for_dead(vector, monkeypatch):
    monkeypatch.setattr(process, "ANSWER_SECONDS", 2.5)
    env = vector([partial(Slow, game) for game in range(3)], 1)
    env.reset(seed=0)
    assert kinds_met(one_step(env)[4]) == []


def test_a_reset_uses_its_seeds_even_if_a_server_has_died(vector):
    env = vector(counters(4))
    first, _ = env.reset(seed=3)
    os.kill(env._supervisor._servers[0].pid, signal.SIGKILL)
    again, infos = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    assert kinds_met(infos) == ["server_died"]


@pytest.mark.parametrize("trouble", ["SIGSEGV", "SIGKILL", "exit", "SIGTERM", "SIGINT"])
def test_a_server_killed_by_its_game_is_replaced(vector, trouble):
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


class Crashing:
    def __init__(self, wire):
        wire.close()  # as every process does shortly before its end is visible
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGSEGV)


def test_the_signal_that_ends_a_slowly_dying_server_is_named():
    with pytest.raises(ProcessError, match=r"server_died.*SIGSEGV"):
        GameProcess(Crashing).answer()


def test_release_frees_a_thread_that_waits_for_games(vector):
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
    for _ in range(3):  # later steps end their episodes too
        assert one_step(env)[3].all()


def test_a_new_fork_server_replaces_a_dead_one(vector):
    env = vector(counters(4))
    env.reset(seed=0)
    get_fork_server()._process.kill()
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
def test_servers_end_with_their_owner(stopped, root):
    script = (
        "import sys; sys.path.append('tests'); from toys import Counter; import os, time\n"
        "from doom_a3c.envs.processes.vectors import ProcessVectorEnv\n"
        "from doom_a3c.envs.processes.client import get_fork_server\n"
        "env = ProcessVectorEnv([Counter] * 4, 2); env.reset()\n"
        "print(get_fork_server().root, flush=True); time.sleep(60)"
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


def test_closing_ends_a_stepping_thread_cleanly(vector):
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
