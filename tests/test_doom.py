"""The Doom environment and its recorder, on real ViZDoom."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from doom_games import BASIC, GAMES, SCENARIO
from fakes import complaint
from gymnasium.utils.env_checker import check_env

from doom_a3c.envs.doom import env as doom
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.recorder import DoomVideoRecorder
from doom_a3c.envs.doom.variables import GameVariables
from doom_a3c.envs.pixels import preprocess
from doom_a3c.envs.processes.ends import EngineError
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.settings import catalog
from doom_a3c.settings.errors import UserError


@pytest.fixture
def env(closing):
    return closing(DoomEnv(*BASIC))


def play(env, seed, actions):
    """Plays fixed actions; returns the first observation, the rewards and how the episode ended."""
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
    _, rewards, terminated, truncated = play(env, 1, [0] * 100)
    assert (terminated, truncated) == (False, True)
    assert len(rewards) == 75
    assert sum(rewards) == -300


def test_killing_the_monster_terminates_the_episode():
    env = DoomEnv(*BASIC)
    random = np.random.default_rng(0)
    endings = [play(env, seed, random.integers(3, size=100))[1:] for seed in range(12)]
    env.close()
    killed = [rewards for rewards, terminated, truncated in endings if terminated and not truncated]
    assert killed, "no random episode hit the monster"
    assert all(max(rewards) > 80 for rewards in killed)


def test_rewards_are_summed_over_the_skipped_frames(env):
    env.reset(seed=1)
    assert env.step(0)[1] == -4


def test_seed_and_actions_determine_the_episode(env):
    actions = np.random.default_rng(1).integers(3, size=40)
    first = play(env, 7, actions)
    again = play(env, 7, actions)
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert len({first_screen(env, seed).tobytes() for seed in range(4)}) > 1


def test_a_renewed_engine_plays_the_same_episodes(env, monkeypatch):
    actions = np.random.default_rng(1).integers(3, size=40)
    before = play(env, 7, actions)
    engine = env._process
    monkeypatch.setattr(doom, "RENEWAL", 1)
    after = play(env, 7, actions)
    assert env._process is not engine
    assert not engine.instance
    assert np.array_equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("error", [UserError("there is no room"), EngineError("engine_died")])
def test_the_old_engine_plays_on_if_no_new_one_starts(env, monkeypatch, error):
    actions = np.random.default_rng(1).integers(3, size=40)
    before, engine = play(env, 7, actions), env._process

    def fail(*arguments):
        raise error

    monkeypatch.setattr(doom, "RENEWAL", 1)
    monkeypatch.setattr(doom, "start_engine", fail)
    assert play(env, 7, actions)[1:] == before[1:]
    assert env._process is engine


def starting_late(scenario, frames):
    """Returns an environment of a scenario whose player stands idle for some frames before each episode."""
    found = catalog.find(scenario)
    game = replace(found.game, settings={**found.game.settings, "episode_start_time": frames})
    return DoomEnv(game, found.observation)


def test_an_episode_that_ends_before_its_first_step_is_replaced_by_another(closing):
    env = closing(starting_late("take_cover", 190))
    drawn, used = [], []
    for seed in (0, 5):  # the player is hit before the first episode begins, but not before the second
        _, info = env.reset(seed=seed)
        assert env._process.game.get_episode_time() == 190
        drawn.append(int(np.random.default_rng(seed).integers(2**31)))
        used.append(info["seed"])
    assert (used[0] != drawn[0], used[1] == drawn[1]) == (True, True)


def test_a_level_that_ends_every_episode_at_once_is_named(closing):
    said = complaint(closing(starting_late("health_gathering", 700)).reset)
    assert all(word in said for word in ("health_gathering.wad", "before their first step", "700", "episode_start_time"))


def first_screen(env, seed):
    return env.reset(seed=seed)[0]


def test_the_observation_is_cropped_scaled_and_not_blank(env):
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
    assert np.array_equal(seen["pixels"][..., :3], seen["pixels"][..., 3:])  # padded with the first frame, not with zeros
    assert np.allclose(seen["variables"], [1.0, 1.0])
    for _ in range(6):
        before = seen
        seen = env.step(2)[0]
        assert np.array_equal(seen["pixels"][..., :3], before["pixels"][..., 3:])
    assert seen["variables"][0] < 1.0  # shots cost ammunition
    env.close()


def test_a_delta_button_turns_by_its_value_each_frame():
    actions = ["TURN_LEFT_RIGHT_DELTA=2.5", "TURN_LEFT_RIGHT_DELTA=-0.5"]
    game = replace(SCENARIO.game, available_buttons=("TURN_LEFT_RIGHT_DELTA",), buttons=actions, variables=("ANGLE",))
    env = DoomEnv(replace(game, variable_scales=(1.0,)), SCENARIO.observation)
    assert env.metadata["action_names"] == actions
    env.reset(seed=1)
    angles = [env.step(action)[0]["variables"][0] for action in [*[0] * 36, 1]]
    env.close()
    turns = [(later - now) % 360 for now, later in itertools.pairwise(angles)]
    assert turns == pytest.approx([350] * 35 + [2], abs=0.1)
    assert -180 <= min(angles) < -160 < 160 < max(angles) <= 180  # a full turn


def test_angles_are_wrapped_and_other_variables_only_scaled():
    angles = {"ANGLE": (270.0, -90), "ROLL": (350.0, -10), "CAMERA_ROLL": (10.0, 10), "CAMERA_ANGLE": (180.0, -180)}
    others = {"PITCH": 200.0, "POSITION_Y": 370.0, "VELOCITY_Y": -3.0, "AMMO2": 4095.5}
    names, values = (*angles, *others), [*(number for number, _ in angles.values()), *others.values()]
    shown = [*(number for _, number in angles.values()), *others.values()]
    assert GameVariables(names, ()).convert(values).tolist() == shown
    assert GameVariables(names, (0.5,) * 8).convert(values).tolist() == [number / 2 for number in shown]
    assert GameVariables((), ()).convert(()).shape == (0,)


def test_the_recorder_shows_the_same_episode_every_frame(env):
    recorder = DoomVideoRecorder(*BASIC, "320x240")
    _, info = env.reset(seed=5)
    frames = recorder.reset(info["seed"])
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(0)
        frames += recorder.step(0, ended)
        total, ended = total + reward, terminated or truncated
    assert recorder.get_score() == total
    assert len(frames) == 300  # one picture per frame, including the last before the end
    assert frames[0].shape == (240, 320, 3)
    recorder.close()


def test_a_vector_resets_in_the_step_that_ends_an_episode():
    vector = ProcessVectorEnv(GAMES * 2)
    vector.reset(seed=[1, 2])
    for _ in range(75):
        observations, _, terminated, truncated, infos = vector.step(np.array([0, 1]))
    assert truncated.all()
    assert not terminated.any()
    assert all(final.shape == (84, 84, 1) for final in infos["final_obs"])
    assert not np.array_equal(infos["final_obs"][0], observations[0])
    vector.close()


def test_an_environment_can_be_pickled(env):
    again = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(again.reset(seed=3)[0], env.reset(seed=3)[0])
    again.close()
