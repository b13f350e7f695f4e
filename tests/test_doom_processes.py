"""ViZDoom engines that die, hang or do not start, and the traces they leave."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from doom_games import BASIC, GAMES, SCENARIO
from fakes import complaint
from wad_files import text_map, wad_of

from benchmarks.common.processes import engines, family, kill, left_over, parent, servers, until
from doom_a3c.agent.player import read_faults
from doom_a3c.envs import registry
from doom_a3c.envs.doom import engine_process as doom_process
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.remote_recorder import RemoteVideoRecorder
from doom_a3c.envs.processes import retries
from doom_a3c.envs.processes.ends import _BY_SIGNAL as KILLED
from doom_a3c.envs.processes.ends import diagnose_engine
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.retries import GamesError
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.settings.interface import CUT_SHORT, FAULTS


@pytest.fixture
def env(closing):
    return closing(DoomEnv(*BASIC))


@pytest.mark.parametrize(("harm", "kind"), [(signal.SIGKILL, "engine_died"), (signal.SIGSTOP, "engine_hung")])
def test_a_dead_or_hung_engine_ends_the_episode_and_is_replaced(env, monkeypatch, harm, kind):
    env.reset(seed=1)
    env.step(0)
    os.kill(env._process.pid, harm)
    with monkeypatch.context() as patch:  # not for the next start: it may take longer on a busy machine
        patch.setattr(doom_process, "ANSWER_SECONDS", 1.0)
        *_, terminated, truncated, info = env.step(0)
    assert (terminated, truncated, info) == (False, True, {CUT_SHORT: True, FAULTS: [kind]})
    env.reset()
    assert env.step(0)[1] == -4


def test_engines_leave_no_processes_memory_or_files_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for vector in (LocalVectorEnv(GAMES * 2), ProcessVectorEnv(GAMES * 4, 2)):
        vector.reset(seed=1)
        games = engines(os.getpid())
        assert len(games) == vector.num_envs
        vector.close()
        assert left_over(games, games.values()) == []
    assert os.listdir(tmp_path) == []


SCRIPT = """
import os, sys, time
sys.path.append("tests")
from functools import partial
from doom_a3c.settings import catalog
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.settings.interface import CUT_SHORT, FAULTS
basic = catalog.find("basic")
env = {make}([partial(DoomEnv, basic.game, basic.observation)] * 2)
env.reset(seed=1)
print("playing", flush=True)
for _ in range(600):
    env.step([0, 0])
    time.sleep(0.1)
"""


def start_player(root, folder, make):
    """Starts a process that plays two games, with its temporary files in `folder`."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", SCRIPT.format(make=make)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environment)
    assert owner.stdout.readline() == b"playing\n"
    return owner


@pytest.mark.parametrize("make", ["LocalVectorEnv", "ProcessVectorEnv"])
@pytest.mark.parametrize("engine_too", [False, True])
def test_kill_9_of_the_owner_ends_its_engines(root, tmp_path, make, engine_too):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    owner = start_player(root, tmp_path / "link", make)
    games, helpers = engines(owner.pid), family(owner.pid)
    segments = [name for name in os.listdir("/dev/shm") if name.endswith(tuple(games.values()))]
    assert (len(games), len(segments)) == (2, 6)
    if engine_too:  # an engine killed on its own leaves its shared memory
        kill(next(iter(games)))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert until(lambda: not left_over(helpers, games.values()), 5)
    assert until(lambda: not os.listdir(tmp_path / "real"), 5)


@pytest.mark.parametrize("harm", ["servers stopped", "fork server stopped", "servers killed"])
def test_nothing_outlives_an_owner_whose_servers_hang_or_died(root, tmp_path, harm):
    owner = start_player(root, tmp_path, "ProcessVectorEnv")
    processes, games = family(owner.pid), engines(owner.pid)
    old_servers = servers(owner.pid)
    fork_server = parent(old_servers[0])
    for pid in [fork_server] if harm == "fork server stopped" else old_servers:
        kill(pid, signal.SIGKILL if harm == "servers killed" else signal.SIGSTOP)
    if harm != "fork server stopped":
        kill(fork_server)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    leftover = () if harm == "servers killed" else games.values()  # no process is left to remove their memory
    assert until(lambda: not left_over(processes, leftover), 5)
    for path in Path("/dev/shm").glob("ViZDoom*"):
        if path.name.endswith(tuple(games.values())):
            path.unlink()


def test_orphaned_shared_memory_is_removed_when_the_run_ends(root, tmp_path):
    """Even if its fork server has died and another one has replaced it."""
    owner = start_player(root, tmp_path, "ProcessVectorEnv")
    orphan = Path("/dev/shm/ViZDoomMQCtrNobodys")
    orphan.touch()
    time.sleep(1.5)
    try:
        old_servers = servers(owner.pid)
        kill(parent(old_servers[0]))
        kill(old_servers[0])  # its replacement comes from a new fork server
        assert until(lambda: [pid for pid in servers(owner.pid) if pid not in old_servers], 20)
        owner.kill()
        owner.wait()
        owner.stdout.close()
        assert until(lambda: not orphan.exists(), 5)
    finally:
        orphan.unlink(missing_ok=True)


@pytest.mark.process
@pytest.mark.parametrize(("harm", "kind"), [(signal.SIGKILL, "engine_died"), (signal.SIGSTOP, "engine_hung")])
def test_a_servers_games_survive_a_dead_or_hung_engine(harm, kind):
    vector = ProcessVectorEnv(GAMES * 2)
    vector.reset(seed=[1, 2])
    vector.step(np.array([0, 0]))
    kill(max(engines(os.getpid())), harm)
    *_, truncated, infos = vector.step(np.array([0, 0]))
    assert read_faults(infos) == [kind]
    assert truncated.sum() in (1, 2)  # all games of a server are lost if its caller is blocked for good
    assert vector.step(np.array([0, 0]))[1].tolist() == [-4, -4]
    assert len(engines(os.getpid())) == 2
    vector.close()


def test_a_dead_server_is_noticed_while_its_engines_live():
    vector = ProcessVectorEnv(GAMES * 2)
    vector.reset(seed=[1, 2])
    (server,) = servers(os.getpid())
    games = engines(os.getpid())
    kill(server)
    infos = vector.step(np.array([0, 0]))[4]
    assert read_faults(infos) == ["server_died"]  # and not "server_hung"
    assert not set(games) & set(engines(os.getpid()))
    vector.close()


@pytest.mark.parametrize("wait", [0.0, 0.02, 0.05, 0.1, 0.15])
def test_engines_killed_at_startup_are_replaced(wait):
    vector = ProcessVectorEnv(GAMES, prepare=True)
    newborn = until(lambda: engines(os.getpid()))
    time.sleep(wait)
    for pid in newborn:
        kill(pid)
    _, infos = vector.reset(seed=1)
    assert len(read_faults(infos)) == 1
    assert vector.step(np.array([0]))[1].tolist() == [-4]
    vector.close()


class Reaper(threading.Thread):
    """Kills the first `count` engines as soon as they start."""

    def __init__(self, count):
        super().__init__(daemon=True)
        self.killed, self._count = set(), count

    def run(self):
        deadline = time.monotonic() + 60
        while len(self.killed) < self._count and time.monotonic() < deadline:
            for pid in set(engines(os.getpid())) - self.killed:
                kill(pid)
                self.killed.add(pid)
            time.sleep(0.005)


def test_repeated_kills_at_startup_are_retried(monkeypatch):
    monkeypatch.setattr(retries, "PAUSES", [pause / 10 for pause in retries.PAUSES])
    assert sum(retries.PAUSES) * 10 >= 120
    assert list(retries.PAUSES) == sorted(retries.PAUSES)
    reaper = Reaper(8)
    reaper.start()
    vector = ProcessVectorEnv(GAMES, prepare=True)
    _, infos = vector.reset(seed=1)
    assert len(read_faults(infos)) == len(reaper.killed) == 8
    assert vector.step(np.array([0]))[1].tolist() == [-4]
    vector.close()


def test_endless_kills_at_startup_end_with_an_error(monkeypatch):
    monkeypatch.setattr(retries, "PAUSES", (0.0, 0.1))
    reaper = Reaper(3)
    reaper.start()
    vector = ProcessVectorEnv(GAMES, prepare=True)
    assert "the engine was killed as it started" in complaint(vector.reset)
    vector.close()


def broken(folder, kind):
    """Returns a game whose level the engine cannot play."""
    level = text_map("MAP01", 1)
    name, text = level[1]
    lumps = {
        "a thing's parent": [("DECORATE", b"actor Thing : NoSuchParent 12000 { }"), *level],
        "a setting": [("MAPINFO", b'map MAP01 "x" { sky1 = }\nnosuch {'), *level],
        "a number": [("MAPINFO", b'map MAP01 "x"\n{ levelnum = banana }'), *level],
        "a text": [level[0], (name, text + b"thing { x = ; }"), level[2]],
        "a vertex": [level[0], (name, text.replace(b"v2 = 1", b"v2 = 99")), level[2]],
        "its end": level[:2],
    }
    (folder / "mine.wad").write_bytes(wad_of(*lumps[kind]))
    return replace(SCENARIO.game, wad=str(folder / "mine.wad")), SCENARIO.observation


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("a thing's parent", "Parent type 'NoSuchParent' not found"),
        ("a setting", '"mine.wad:MAPINFO" line 2: Unknown property'),
        ("a number", "reading MAPINFO"),
        ("a text", "Expected ';' but got '}' instead"),
        ("a vertex", "invalid vertices: 0 and/or 99"),
        ("its end", "check the level in an editor"),
    ],
)
def test_a_level_that_crashes_the_engine_is_named_at_once(tmp_path, monkeypatch, kind, words):
    """The error comes without a long retry and quotes the engine."""
    monkeypatch.setattr(retries, "PAUSES", (0.0, 600.0))  # the second is never reached
    vector = ProcessVectorEnv([partial(DoomEnv, *broken(tmp_path, kind))], prepare=True)
    message = complaint(vector.wait_for_one)
    assert "map01 of mine.wad" in message
    assert words in message
    assert "SIGSEGV" not in message
    vector.close()


def test_every_entry_point_reports_a_crashing_level_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "PAUSES", (0.0, 0.0, 600.0))
    game = broken(tmp_path, "a text")
    (tmp_path / "mine.cfg").write_text("available_buttons = { ATTACK }\n")
    vector = ProcessVectorEnv([partial(DoomEnv, *game)])
    level = str(tmp_path / "mine.wad")
    entry_points = {
        "a first reset": vector.reset,
        "films": partial(RemoteVideoRecorder, *game, "320x240"),
        "games in this process": partial(registry.make_vec, level, 2, processes=0),
        "one game in this process": partial(gymnasium.make, "doom_a3c/Basic-v0", scenario=level),
    }
    messages = {name: complaint(start) for name, start in entry_points.items()}
    assert len(set(messages.values())) == 1, messages
    with pytest.raises(GamesError) as failure:
        vector.reset()
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)
    vector.close()
    assert servers(os.getpid()) == []


@pytest.mark.parametrize(
    ("files", "said", "words", "by_itself"),
    [
        ({"vizdoom-crash.log": "System BUS error (signal 7)\n"}, KILLED, "/dev/shm", True),
        ({"log": "VIZ_SMInit: Failed to create shared memory.\n"}, "", "/dev/shm", True),
        ({"vizdoom-crash.log": "Segmentation fault (signal 11)\n"}, KILLED, "check the level in an editor", True),
        ({"log": "V_Init\nterminate called after throwing\n"}, KILLED, "check the level in an editor", True),
        ({"log": "V_Init: allocate screen.\n"}, KILLED, "killed", False),
        ({"log": "V_Init: allocate screen.\n"}, "", "V_Init: allocate screen.", True),
        ({"log": "Script error, line 1:\n\x1b[31mOops\x07\n"}, "", "Script error, line 1: [31mOops", True),
    ],
)
def test_leftover_files_tell_how_an_engine_died_at_startup(tmp_path, files, said, words, by_itself):
    arguments = "-iwad\n/a/freedoom2.wad\n-file\n/a b/mine.wad\n+map\nmap01\n"
    for name, text in {"arguments": arguments, **files}.items():
        (tmp_path / name).write_text(text)
    end = diagnose_engine(tmp_path, said)
    assert words in end.words
    assert end.by_itself == by_itself
    assert end.words.isprintable()
    assert ("map01 of mine.wad" in end.words) == end.of_level
    (tmp_path / "arguments").unlink()
    assert not diagnose_engine(tmp_path, said).of_level


def test_the_engine_log_does_not_grow_with_every_episode(env):
    sizes = []
    for seed in range(3):
        env.reset(seed=seed)
        sizes.append((env._process.folder / "log").stat().st_size)
    assert 0 < max(sizes) < 500
