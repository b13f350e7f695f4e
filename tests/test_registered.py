"""Registered Gymnasium environments as the agent sees them: Gymnasium's classics, and toys whose every frame is known."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from fakes import complaint
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode
from registered_toys import LENGTH

from doom_a3c.envs import registered
from doom_a3c.envs.games import games_of
from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.run.builder import Builder
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.games import GymnasiumSpec, Observation
from doom_a3c.settings.network import Network

GREY = Observation()


def builder(game_id, observation=GREY, **settings):
    game = GymnasiumSpec(id=game_id, frame_skip=1, settings=settings)
    return Builder(replace(catalog.find("tests/Toy-v0"), game=game, observation=observation), Config())


@pytest.mark.parametrize(
    ("game_id", "settings"), [("Pendulum-v1", {}), ("tests/Toy-v0", {"actions_space": MultiDiscrete([2, 2])})]
)
def test_actions_without_a_distribution_are_one_line_that_says_why(game_id, settings):
    said = complaint(lambda: builder(game_id, **settings))
    assert said.startswith(f"{game_id}: its actions are ")
    assert said.endswith("the agent takes Discrete ones")


def test_an_unknown_core_is_named_with_its_scenario():
    scenario = replace(catalog.find("tests/Toy-v0"), network=Network(core="lsmt"))
    message = complaint(Builder, scenario, Config())
    known = "'lstm' or 'skip_lstm' or 'none'"
    assert message == f"scenario Toy_v0: [network] core must be {known}, not 'lsmt' (did you mean lstm?)"


@pytest.fixture
def play(closing):
    """Makes games; closes them."""

    def make(game_id="tests/Toy-v0", games=1, frame_skip=1, observation=GREY, **settings):
        game = GymnasiumSpec(id=game_id, frame_skip=frame_skip, settings=settings)
        return closing(LocalVectorEnv([partial(registered.make, game, observation)] * games))

    return make


# Numbers


def balanced(observations):
    """Pushes the carts so that the poles stay up."""
    position, speed, angle, turn = observations.T
    return (angle + 0.3 * turn + 0.02 * position + 0.05 * speed > 0).astype(int)


def test_a_balanced_pole_times_out_after_500_decisions(play):
    env = play("CartPole-v1", games=2)
    seen, _ = env.reset(seed=1)
    assert (seen.dtype, seen.shape, env.single_observation_space.shape) == (np.float32, (2, 4), (4,))
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    total = np.zeros(2)
    for _ in range(499):
        seen, rewards, terminated, truncated, infos = env.step(balanced(seen))
        assert not (terminated | truncated).any()
        assert "final_obs" not in infos
        total += rewards
    before = seen
    seen, rewards, terminated, truncated, infos = env.step(balanced(seen))
    assert (total + rewards).tolist() == [500, 500]
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [True, True])
    final = np.stack(infos["final_obs"])
    assert final.dtype == np.float32
    np.testing.assert_allclose(final[:, [0, 2]], (before + 0.02 * before[:, [1, 1, 3, 3]])[:, [0, 2]], rtol=1e-4)
    assert (np.abs(seen) <= 0.05).all()  # where every episode starts
    assert (np.abs(final) > 0.05).any()


def test_a_fallen_pole_is_a_termination_and_only_that_game_begins_anew(play):
    env = play("CartPole-v1", games=2)
    seen, _ = env.reset(seed=1)
    for _ in range(50):
        before, actions = seen, np.array([0, balanced(seen)[1]])
        seen, _, terminated, truncated, infos = env.step(actions)
        if terminated.any():
            break
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    assert abs(infos["final_obs"][0][2]) > 0.2
    assert infos["final_obs"][1] is None
    assert np.abs(seen[0]).max() <= 0.05
    np.testing.assert_allclose(seen[1, 0], before[1, 0] + 0.02 * before[1, 1], rtol=1e-4)


def test_seeds_decide_the_games(play):
    env = play("CartPole-v1", games=3)
    consecutive, _ = env.reset(seed=5)
    listed, _ = env.reset(seed=np.array([7, 5, 6], np.uint32))
    np.testing.assert_array_equal(listed, consecutive[[2, 0, 1]])
    assert len(np.unique(consecutive[:, 0])) == 3
    assert (env.reset()[0] != listed).any()


def test_acrobot_shows_six_numbers_and_times_out(play):
    env = play("Acrobot-v1", max_episode_steps=30)
    seen, _ = env.reset(seed=1)
    assert (seen.dtype, seen.shape, env.single_action_space) == (np.float32, (1, 6), Discrete(3))
    for _ in range(30):
        seen, rewards, terminated, truncated, infos = env.step(np.array([1]))
        assert rewards.tolist() == [-1]
    assert (terminated[0], truncated[0]) == (False, True)
    assert infos["final_obs"][0].shape == (6,)


def test_numbers_become_single_precision(play):
    env = play("tests/Numbers-v0")
    env.reset(seed=1)
    seen, *_ = env.step(np.array([0]))
    assert seen.dtype == env.single_observation_space.dtype == np.float32
    np.testing.assert_allclose(seen[0], np.arange(5) + 1 / 3, rtol=1e-6)
    assert builder("tests/Numbers-v0").inputs == (None, 5)


# Pixels


def channels(observation, at=(40, 40)):
    """Returns what all pixels of an observation are."""
    assert (observation == observation[at]).all()
    return observation[at].tolist()


@pytest.mark.parametrize(
    ("observation", "shape", "frame"),
    [
        (Observation(stack=3), (30, 40, 3), [10]),  # grey is the mean of the colours
        (Observation(stack=3, color=True), (30, 40, 3), [10, 20, 0]),
        (Observation(stack=1, color=True, size=(50, 60)), (200, 100, 3), [10, 20, 0]),
        (Observation(stack=2), (84, 84), [20]),
        (Observation(stack=2), (84, 84, 1), [20]),
        (Observation(stack=2, color=True), (120, 84, 1), [20]),  # it has no colours to show
    ],
)
def test_pixels_are_resized_and_stacked(play, observation, shape, frame):
    env = play(games=2, observation=observation, shape=shape)
    stack = observation.stack
    assert env.single_observation_space.shape == (*observation.size, stack * len(frame))
    assert env.single_observation_space.dtype == np.uint8

    def newest(time):
        """Returns the channels at a time: the frames up to it, the first one repeated."""
        return [max(0, time - back) * value for back in reversed(range(stack)) for value in frame]

    seen, _ = env.reset(seed=1)
    for time in range(LENGTH):
        assert (seen.dtype, seen.shape) == (np.uint8, (2, *observation.size, stack * len(frame)))
        assert channels(seen[1]) == newest(time)
        seen, _, terminated, truncated, infos = env.step(np.array([0, 1]))
    assert (terminated.all(), truncated.any()) == (True, False)
    assert channels(infos["final_obs"][1]) == newest(LENGTH)
    assert channels(seen[1]) == newest(0)  # nothing of the last episode
    assert builder("tests/Toy-v0", observation, shape=shape).inputs == (
        (*observation.size, len(newest(0))),
        0,
    )


@pytest.mark.parametrize("stack", [1, 2])
def test_a_game_may_reuse_its_array(play, stack):
    env = play("tests/Reusing-v0", observation=Observation(stack=stack, color=True))
    env.reset(seed=1)
    for time in range(1, LENGTH + 1):
        seen, *_, infos = env.step(np.array([0]))
        newest = [step * color for step in (time - 1, time)[-stack:] for color in (10, 20, 0)]
        assert channels((infos["final_obs"] if time == LENGTH else seen)[0]) == newest


def test_frame_skip_sums_rewards_and_stops_at_the_end(play):
    env = play(frame_skip=4)
    env.reset(seed=1)
    for reward, time, over in ((1 + 2 + 3 + 4, 4, False), (5 + 6 + 7 + 8, 8, False), (9 + 10, 10, True), (10, 4, False)):
        seen, rewards, terminated, truncated, infos = env.step(np.array([1]))
        assert (rewards[0], terminated[0], truncated[0]) == (reward, over, False)
        assert channels(infos["final_obs"][0] if over else seen[0]) == [10 * time]
    assert len(env.envs[0].unwrapped.taken) == 14


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_an_environment_without_a_limit_gets_one_of_decisions(play, monkeypatch, frame_skip):
    monkeypatch.setattr(registered, "MAX_EPISODE_STEPS", 7)
    env = play(frame_skip=frame_skip, ends=False)
    env.reset(seed=1)
    ends = []
    for _ in range(21):
        *_, terminated, truncated, _ = env.step(np.array([0]))
        ends.append((bool(terminated[0]), bool(truncated[0])))
    assert ends == ([(False, False)] * 6 + [(False, True)]) * 3


@pytest.mark.parametrize("start", [0, 1, -1])
def test_actions_count_from_the_environments_own_start(play, start):
    env = play(start=start)
    assert env.single_action_space == Discrete(3)
    env.reset(seed=1)
    for action in range(3):
        env.step(np.array([action]))
    assert env.envs[0].unwrapped.taken == [start, start + 1, start + 2]


# Pictures


def test_the_final_picture_is_the_episodes_last(play):
    env = play(frame_skip=4)
    env.reset(seed=1)
    for _ in range(2):  # of two episodes
        assert channels(env.picture(), (0, 0)) == [0, 0, 0]
        for time in (4, 8):
            env.step(np.array([0]))
            assert channels(env.picture(), (0, 0)) == [time] * 3
        env.step(np.array([0]))
        assert channels(env.picture(final=True), (0, 0)) == [LENGTH] * 3
    assert env.picture().shape == (12, 16, 3)


def test_a_game_that_draws_nothing_has_no_picture(play):
    env = play("tests/Unseen-v0")
    env.reset(seed=1)
    assert env.picture() is None


def test_cartpole_is_drawn(play):
    env = play("CartPole-v1")
    env.reset(seed=1)
    start = env.picture()
    assert (start.dtype, start.shape) == (np.uint8, (240, 360, 3))  # of 400 x 600
    for _ in range(50):
        if env.step(np.array([0]))[2][0]:
            break
        last = env.picture()
    final = env.picture(final=True)
    assert final.shape == start.shape
    assert (final != start).any()
    assert (final != last).any()
    assert (final != env.picture()).any()


def test_the_recorder_shows_the_game_that_is_played(play):
    env = play(frame_skip=4)
    recorder = games_of(GymnasiumSpec(id="tests/Toy-v0", frame_skip=4), GREY).recorder(env)
    assert recorder.pictures_per_second == 5
    assert recorder.score is None
    env.reset(seed=1)
    frames = recorder.reset(1)
    for ended in (False, False, True):
        env.step(np.array([0]))
        frames += recorder.step(0, ended)
    assert [channels(frame, (0, 0))[0] for frame in frames] == [0, 4, 8, 10]
    recorder.close()


# Mistakes

TAKES = "the agent takes pixels (a uint8 Box of 2 or 3 dimensions) or numbers (a Box of 1 dimension)"


@pytest.mark.parametrize(
    ("game_id", "settings", "message"),
    [
        ("Taxi-v4", {}, TAKES),
        ("FrozenLake-v1", {}, TAKES),
        ("tests/Toy-v0", {"space": Dict(pixels=Box(0, 255, (8, 8, 3), np.uint8))}, TAKES),
        ("tests/Toy-v0", {"space": Box(0.0, 1.0, (8, 8, 3), np.float32)}, TAKES),
        ("tests/Toy-v0", {"space": Box(0, 255, (8, 8, 4), np.uint8)}, TAKES),
        ("CratPole-v1", {}, "Did you mean: `CartPole`?"),
        ("CartPole-v9", {}, "[ `v0`, `v1` ]"),
        ("Nonsense-v0", {}, "doesn't exist"),
        ("no_such_module:Toy-v0", {}, "No module named 'no_such_module'"),
        ("CartPole-v1", {"gravity": 3}, "unexpected keyword argument 'gravity'"),
        ("ale_py:ALE/Pong-v5", {}, "ids such as ALE/Pong-v5"),
        pytest.param(
            *("tests/Failing-v0", {}, "ValueError"),
        ),
    ],
)
def test_what_cannot_be_played_is_one_line_that_says_why(game_id, settings, message):
    for call in (
        lambda: registered.make(GymnasiumSpec(id=game_id, settings=settings), GREY),
        lambda: builder(game_id, **settings),
    ):
        said = complaint(call)
        assert said.startswith(f"{game_id}: ")
        assert message in said
