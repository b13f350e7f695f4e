"""The Doom environment and its engines, on real ViZDoom."""

import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import vizdoom
from gymnasium.utils.env_checker import check_env

from benchmarks.processes import engines, family, kill, left_over, parent, servers, until
from doom_a3c import catalog
from doom_a3c.envs import doom_process, supervisor
from doom_a3c.envs.doom import DoomEnv
from doom_a3c.envs.doom_recorder import DoomVideoRecorder
from doom_a3c.envs.doom_setup import button_actions, check, shipped_game
from doom_a3c.envs.pixels import preprocess
from doom_a3c.envs.remote_recorder import RemoteVideoRecorder
from doom_a3c.envs.supervisor import GamesError
from doom_a3c.envs.vectors import LocalVectorEnv, ProcessVectorEnv
from doom_a3c.rollouts import met_faults
from doom_a3c.scenarios import DoomSpec
from doom_a3c.settings import UserError
from doom_a3c.wads import maps_in

SCENARIO = catalog.find("basic")
BASIC = SCENARIO.game, SCENARIO.observation
GAMES = [partial(DoomEnv, *BASIC)]


@pytest.fixture
def env():
    env = DoomEnv(*BASIC)
    yield env
    env.close()


def played(env, seed, actions):
    """Returns the first observation, the rewards and the way an episode of fixed actions ends."""
    first, _ = env.reset(seed=seed)
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        if terminated or truncated:
            break
    return first, rewards, terminated, truncated


def test_gymnasiums_checker_passes(env):
    check_env(env, skip_render_check=True)


def test_a_time_out_is_a_truncation_after_300_tics(env):
    _, rewards, terminated, truncated = played(env, 1, [0] * 100)
    assert (terminated, truncated) == (False, True)
    assert len(rewards) == 75
    assert sum(rewards) == -300


def test_a_kill_is_a_termination():
    env = DoomEnv(*BASIC)
    random = np.random.default_rng(0)
    endings = [played(env, seed, random.integers(3, size=100))[1:] for seed in range(12)]
    env.close()
    killed = [rewards for rewards, terminated, truncated in endings if terminated and not truncated]
    assert killed, "no random episode hit the monster"
    assert all(max(rewards) > 80 for rewards in killed)


def test_rewards_are_summed_over_the_skipped_frames(env):
    env.reset(seed=1)
    assert env.step(0)[1] == -4


def test_seed_and_actions_decide_everything(env):
    actions = np.random.default_rng(1).integers(3, size=40)
    first = played(env, 7, actions)
    again = played(env, 7, actions)
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert len({DoomEnv_screen(env, seed).tobytes() for seed in range(4)}) > 1


def DoomEnv_screen(env, seed):
    return env.reset(seed=seed)[0]


def test_the_picture_is_cropped_scaled_and_not_blank(env):
    observation, _ = env.reset(seed=3)
    assert observation.shape == (84, 84, 1)
    assert observation.dtype == np.uint8
    assert observation.std() > 5
    screen = np.zeros((120, 160), np.uint8)
    screen[10:-10, 30:-30] = 255
    assert preprocess(screen, SCENARIO.observation).min() == 255


def test_colour_stack_and_variables_reach_the_observation():
    observation = replace(SCENARIO.observation, color=True, stack=2, size=(40, 50))
    game = replace(SCENARIO.game, variables=("AMMO2", "HEALTH"), variable_scales=(0.02, 0.01))
    env = DoomEnv(game, observation)
    seen, _ = env.reset(seed=1)
    assert seen["pixels"].shape == (40, 50, 6)
    assert np.array_equal(seen["pixels"][..., :3], seen["pixels"][..., 3:])  # the first frame, not zeros
    assert np.allclose(seen["variables"], [1.0, 1.0])
    for _ in range(6):
        before = seen
        seen = env.step(2)[0]
        assert np.array_equal(seen["pixels"][..., :3], before["pixels"][..., 3:])
    assert seen["variables"][0] < 1.0  # shots cost ammunition
    env.close()


def test_buttons_single_combined_and_listed():
    buttons = [vizdoom.Button.MOVE_LEFT, vizdoom.Button.ATTACK, vizdoom.Button.TURN_LEFT_RIGHT_DELTA]
    game = DoomSpec(config="basic.cfg")
    assert button_actions(game, buttons) == [[1, 0, 0], [0, 1, 0]]
    combined = button_actions(replace(game, buttons="combinations"), buttons)
    assert combined == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert button_actions(replace(game, buttons=["ATTACK", ["MOVE_LEFT", "ATTACK"]]), buttons) == [[0, 1, 0], [1, 1, 0]]
    with pytest.raises(UserError, match=r"did you mean ATTACK"):
        button_actions(replace(game, buttons=["ATACK"]), buttons)
    many = [button for button in vizdoom.Button.__members__.values() if not vizdoom.is_delta_button(button)][:8]
    with pytest.raises(UserError, match="256 combinations"):
        button_actions(replace(game, buttons="combinations"), many)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"render_hd": True}}, "did you mean render_hud"),
        ({"settings": {"render_hud": "yes"}}, "does not fit"),
        ({"variables": ("HELTH",), "variable_scales": (1.0,)}, "did you mean HEALTH"),
    ],
)
def test_mistakes_in_the_game_table_name_what_is_right(change, message):
    with pytest.raises(UserError, match=message):
        check(replace(SCENARIO.game, **change), SCENARIO.observation)


def test_a_broken_cfg_is_named_with_its_line(tmp_path):
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = basic.wad\nliving_rewrd = -1\n")
    with pytest.raises(UserError, match="living_rewrd"):
        check(DoomSpec(config=str(tmp_path / "mine.cfg")), SCENARIO.observation)


def test_the_recorder_shows_the_same_episode_every_frame(env):
    recorder = DoomVideoRecorder(*BASIC)
    _, info = env.reset(seed=5)
    frames = recorder.reset(info["seed"])
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(0)
        frames += recorder.step(0, ended)
        total, ended = total + reward, terminated or truncated
    assert recorder.get_score() == total
    assert len(frames) == 300  # a frame a tic, the last one before the end included
    assert frames[0].shape == (240, 320, 3)
    recorder.close()


@pytest.mark.parametrize(("harm", "kind"), [(signal.SIGKILL, "engine_died"), (signal.SIGSTOP, "engine_hung")])
def test_a_dead_or_hung_engine_ends_the_episode_and_is_replaced(env, monkeypatch, harm, kind):
    monkeypatch.setattr(doom_process, "ANSWER_SECONDS", 1.0)
    env.reset(seed=1)
    env.step(0)
    os.kill(env._process.pid, harm)
    *_, terminated, truncated, info = env.step(0)
    assert (terminated, truncated, info) == (False, True, {"cut_short": True, "faults": [kind]})
    env.reset()
    assert env.step(0)[1] == -4


def test_engines_leave_nothing_behind_and_write_nothing_here(tmp_path, monkeypatch):
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
from doom_a3c import catalog
from doom_a3c.envs.doom import DoomEnv
from doom_a3c.envs.vectors import LocalVectorEnv, ProcessVectorEnv
basic = catalog.find("basic")
env = {make}([partial(DoomEnv, basic.game, basic.observation)] * 2)
env.reset(seed=1)
print("playing", flush=True)
time.sleep(60)
"""


def playing(root, folder, make):
    """Starts a process that plays two games and keeps what it has for the time being in a folder."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", SCRIPT.format(make=make)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environment)
    assert owner.stdout.readline() == b"playing\n"
    return owner


@pytest.mark.parametrize("make", ["LocalVectorEnv", "ProcessVectorEnv"])
@pytest.mark.parametrize("engine_too", [False, True])
def test_kill_9_of_the_owner_takes_the_engines_along(root, tmp_path, make, engine_too):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    owner = playing(root, tmp_path / "link", make)
    games, helpers = engines(owner.pid), family(owner.pid)
    segments = [name for name in os.listdir("/dev/shm") if name.endswith(tuple(games.values()))]
    assert (len(games), len(segments)) == (2, 6)
    if engine_too:  # one that dies by itself leaves its shared memory
        kill(next(iter(games)))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert until(lambda: not left_over(helpers, games.values()), 5)
    assert until(lambda: not os.listdir(tmp_path / "real"), 5)


@pytest.mark.parametrize("harm", ["servers stopped", "keeper stopped", "servers killed"])
def test_nothing_outlives_its_owner_whatever_else_is_stopped_or_dead(root, tmp_path, harm):
    owner = playing(root, tmp_path, "ProcessVectorEnv")
    processes, games = family(owner.pid), engines(owner.pid)
    homes = servers(owner.pid)
    keeper = parent(homes[0])
    for pid in [keeper] if harm == "keeper stopped" else homes:
        kill(pid, signal.SIGKILL if harm == "servers killed" else signal.SIGSTOP)
    if harm != "keeper stopped":
        kill(keeper)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    leftover = () if harm == "servers killed" else games.values()  # nobody is left who could remove their memory
    assert until(lambda: not left_over(processes, leftover), 5)
    for path in Path("/dev/shm").glob("ViZDoom*"):
        if path.name.endswith(tuple(games.values())):
            path.unlink()


def test_vector_of_games_resets_in_the_step_that_ends_an_episode():
    vector = ProcessVectorEnv(GAMES * 2)
    vector.reset(seed=[1, 2])
    for _ in range(75):
        observations, _, terminated, truncated, infos = vector.step(np.array([0, 1]))
    assert truncated.all()
    assert not terminated.any()
    assert all(final.shape == (84, 84, 1) for final in infos["final_obs"])
    assert not np.array_equal(infos["final_obs"][0], observations[0])
    vector.close()


@pytest.mark.parametrize(("harm", "kind"), [(signal.SIGKILL, "engine_died"), (signal.SIGSTOP, "engine_hung")])
def test_the_games_of_a_server_go_on_when_an_engine_does_not(harm, kind):
    vector = ProcessVectorEnv(GAMES * 2)
    vector.reset(seed=[1, 2])
    vector.step(np.array([0, 0]))
    kill(max(engines(os.getpid())), harm)
    *_, truncated, infos = vector.step(np.array([0, 0]))
    assert met_faults(infos) == [kind]
    assert truncated.sum() in (1, 2)  # all of a server's games go where its caller is blocked for good
    assert vector.step(np.array([0, 0]))[1].tolist() == [-4, -4]
    assert len(engines(os.getpid())) == 2
    vector.close()


def test_the_death_of_a_server_is_noticed_though_its_engines_live():
    vector = ProcessVectorEnv(GAMES * 2)
    vector.reset(seed=[1, 2])
    (server,) = servers(os.getpid())
    games = engines(os.getpid())
    kill(server)
    start = time.monotonic()
    infos = vector.step(np.array([0, 0]))[4]
    assert met_faults(infos) == ["server_died"]
    assert time.monotonic() - start < 15  # and not as one that hangs, after 20
    assert not set(games) & set(engines(os.getpid()))
    vector.close()


@pytest.mark.parametrize("wait", [0.0, 0.02, 0.05, 0.1, 0.15])
def test_engines_that_die_newborn_are_replaced(wait):
    vector = ProcessVectorEnv(GAMES, prepare=True)
    newborn = until(lambda: engines(os.getpid()))
    time.sleep(wait)
    for pid in newborn:
        kill(pid)
    _, infos = vector.reset(seed=1)
    assert len(met_faults(infos)) == 1
    assert vector.step(np.array([0]))[1].tolist() == [-4]
    vector.close()


def changed(**settings):
    return replace(SCENARIO.game, settings={**SCENARIO.game.settings, **settings}), SCENARIO.observation


def test_what_the_engine_says_last_is_told_when_it_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES", (0.0, 0.1))
    launcher = tmp_path / "launcher"
    launcher.write_text("#!/bin/sh\necho no reactor, no game\nexit 1\n")
    launcher.chmod(0o700)
    game = changed(vizdoom_path=str(launcher))
    vector = ProcessVectorEnv([partial(DoomEnv, *game)])
    words = r"^the games do not start: (?!the games)[\w: ]+: no reactor, no game$"
    for start in (vector.reset, partial(RemoteVideoRecorder, *game)):
        with pytest.raises(GamesError, match=words) as told:
            start()
        assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)
    vector.close()
    assert servers(os.getpid()) == []


def test_a_wad_that_is_no_game_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSES", (0.0, 0.1))
    (tmp_path / "broken.wad").write_bytes(b"IWAD" + bytes(8))
    vector = ProcessVectorEnv([partial(DoomEnv, *changed(doom_game_path=str(tmp_path / "broken.wad")))])
    with pytest.raises(GamesError):
        vector.reset()
    vector.close()


def test_a_wad_that_a_cfg_names_is_looked_at_too(tmp_path):
    (tmp_path / "empty.wad").touch()
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = empty.wad\navailable_buttons = { ATTACK }\n")
    with pytest.raises(UserError, match=r"empty\.wad is no whole WAD"):
        check(DoomSpec(config=str(tmp_path / "mine.cfg")), SCENARIO.observation)


def test_maps_are_looked_for_in_archives_too(tmp_path):
    with zipfile.ZipFile(tmp_path / "mine.pk3", "w") as archive:
        archive.writestr("maps/map07.wad", b"")
        archive.write(shipped_game("freedoom2.wad").parent / "scenarios" / "basic.wad", "inner.wad")
    assert maps_in(tmp_path / "mine.pk3") == ["MAP07", "MAP01"]
    (tmp_path / "mine.cfg").write_text("doom_scenario_path = mine.pk3\ndoom_map = map77\navailable_buttons = { ATTACK }\n")
    game = DoomSpec(config=str(tmp_path / "mine.cfg"))
    with pytest.raises(UserError, match=r"no map 'map77' in mine\.pk3, which has map07, map01"):
        check(game, SCENARIO.observation)
    (tmp_path / "mine.pk3").write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(UserError, match=r"mine\.pk3 is no whole archive"):
        check(game, SCENARIO.observation)


def test_a_map_that_does_not_exist_is_told_before_anything_starts():
    with pytest.raises(UserError, match=r"no map 'map77'.*map01"):
        check(replace(SCENARIO.game, map="map77"), SCENARIO.observation)


def test_an_environment_can_be_pickled(env):
    again = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(again.reset(seed=3)[0], env.reset(seed=3)[0])
    again.close()
