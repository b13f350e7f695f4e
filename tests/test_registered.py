"""Registered Gymnasium environments as the agent sees them: Gymnasium's classics, and toys with known frames."""

import re
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from commands import ROOT
from fakes import complaint
from gymnasium.envs.registration import register, registry
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiDiscrete, OneOf, Sequence, Text, Tuple
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FlattenObservation
from registered_toys import LENGTH, Plain

from doom_a3c.agent.inputs import Inputs
from doom_a3c.envs import registered
from doom_a3c.envs.games import make_game_factory
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
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
    ("game_id", "settings", "names"),
    [("Pendulum-v1", {}, ["[0]"]), ("tests/Toy-v0", {"actions_space": MultiDiscrete([2, 1])}, ["[0]=0", "[0]=1", "[1]=0"])],
)
def test_discrete_and_continuous_actions_have_names(game_id, settings, names):
    assert builder(game_id, **settings).actions == names


def test_an_unsupported_action_space_gives_a_one_line_error():
    error = complaint(lambda: builder("tests/Toy-v0", actions_space=Text(3)))
    assert all(word in error for word in ("tests/Toy-v0", "actions", "Text", "Discrete"))


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_too_many_choices_are_refused_before_allocating_weights(core):
    game = GymnasiumSpec(id="tests/Toy-v0", settings={"actions": 10**6})
    scenario = replace(catalog.find("tests/Toy-v0"), game=game, network=Network(core=core))
    error = complaint(Builder, scenario, Config())
    assert all(word in error for word in ("parameters or more", "choices"))


def test_an_unknown_core_is_named_with_its_scenario():
    scenario = replace(catalog.find("tests/Toy-v0"), network=Network(core="lsmt"))
    message = complaint(Builder, scenario, Config())
    words = ("Toy_v0", "[network] core", "skip_lstm", "none", "'lsmt'", "did you mean lstm")
    assert all(word in message for word in words)


@pytest.fixture
def play(closing):
    """Makes games and closes them afterwards."""

    def make(game_id="tests/Toy-v0", games=1, frame_skip=1, observation=GREY, **settings):
        game = GymnasiumSpec(id=game_id, frame_skip=frame_skip, settings=settings)
        return closing(LocalVectorEnv([partial(registered.make, game, observation)] * games))

    return make


# Numbers


def balanced(observations):
    """Returns the actions that keep the poles up."""
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


def test_a_fallen_pole_terminates_and_resets_only_its_own_game(play):
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


def test_seeds_determine_the_games(play):
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
    assert builder("tests/Numbers-v0").inputs == Inputs(None, 5)


# Pixels


def channels(observation, at=(40, 40)):
    """Returns the channels that all pixels of an observation share."""
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
        (Observation(stack=2, color=True), (120, 84, 1), [20]),  # there are no colours to show
    ],
)
def test_pixels_are_resized_and_stacked(play, observation, shape, frame):
    env = play(games=2, observation=observation, shape=shape)
    stack = observation.stack
    assert env.single_observation_space.shape == (*observation.size, stack * len(frame))
    assert env.single_observation_space.dtype == np.uint8

    def newest(time):
        """Returns the channels at a time: the frames up to it, padded with the first one."""
        return [max(0, time - back) * value for back in reversed(range(stack)) for value in frame]

    seen, _ = env.reset(seed=1)
    for time in range(LENGTH):
        assert (seen.dtype, seen.shape) == (np.uint8, (2, *observation.size, stack * len(frame)))
        assert channels(seen[1]) == newest(time)
        seen, _, terminated, truncated, infos = env.step(np.array([0, 1]))
    assert (terminated.all(), truncated.any()) == (True, False)
    assert channels(infos["final_obs"][1]) == newest(LENGTH)
    assert channels(seen[1]) == newest(0)  # nothing from the last episode
    assert builder("tests/Toy-v0", observation, shape=shape).inputs == Inputs((*observation.size, len(newest(0))), 0)


def test_a_crop_that_leaves_nothing_of_the_pictures_is_refused(play):
    said = complaint(partial(play, observation=Observation(crop=(10, 20, 0, 0)), shape=(30, 40, 3)))
    assert all(word in said for word in ("tests/Toy-v0", "crop = [10, 20, 0, 0]", "30x40"))
    play(observation=Observation(crop=(10, 19, 0, 0)), shape=(30, 40, 3)).reset(seed=1)


@pytest.mark.parametrize("stack", [1, 2])
def test_a_game_may_reuse_its_observation_array(play, stack):
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
def test_an_environment_without_a_limit_gets_a_decision_limit(play, monkeypatch, frame_skip):
    monkeypatch.setattr(registered, "MAX_EPISODE_STEPS", 7)
    env = play(frame_skip=frame_skip, ends=False)
    env.reset(seed=1)
    ends = []
    for _ in range(21):
        *_, terminated, truncated, _ = env.step(np.array([0]))
        ends.append((bool(terminated[0]), bool(truncated[0])))
    assert ends == ([(False, False)] * 6 + [(False, True)]) * 3


@pytest.mark.parametrize("start", [0, 1, -1])
def test_actions_are_offset_by_the_environments_start(play, start):
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
    for _ in range(2):  # two episodes
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
    assert (start.dtype, start.shape) == (np.uint8, (240, 360, 3))  # scaled from 400 x 600
    for _ in range(50):
        if env.step(np.array([0]))[2][0]:
            break
        last = env.picture()
    final = env.picture(final=True)
    assert final.shape == start.shape
    assert (final != start).any()
    assert (final != last).any()
    assert (final != env.picture()).any()


def test_the_recorder_shows_the_running_game(play):
    env = play(frame_skip=4)
    recorder = make_game_factory(GymnasiumSpec(id="tests/Toy-v0", frame_skip=4), GREY).make_recorder(env)
    assert recorder.pictures_per_second == 5
    assert recorder.score is None
    env.reset(seed=1)
    frames = recorder.reset(1)
    for ended in (False, False, True):
        env.step(np.array([0]))
        frames += recorder.step(0, ended)
    assert [channels(frame, (0, 0))[0] for frame in frames] == [0, 4, 8, 10]
    recorder.close()


# Observations that differ from the declared space

PICTURE = Box(0, 255, (40, 48, 3), np.uint8)


class Lazy:
    """A picture made on request, like stacked frames."""

    def __init__(self, picture):
        self.picture = picture

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.picture, dtype)


def shown(make, space=PICTURE, start=0):
    """Returns a function of time: random values of the space, which `make` changes from `start` on."""
    given = np.random.default_rng(0).integers(256, size=space.shape).astype(space.dtype)
    return lambda time: make(given) if time >= start else given


@pytest.mark.parametrize(
    "make",
    [
        lambda picture: picture.astype(np.float32),
        lambda picture: picture.astype(np.int64),
        lambda picture: picture.astype(np.object_),
        lambda picture: picture.tolist(),
        Lazy,
    ],
)
def test_whole_numbers_within_a_byte_are_pixels(play, make):
    seen = []
    for kind in (make, lambda picture: picture):
        env = play("tests/Shown-v0", space=PICTURE, show=shown(kind))
        seen.append(np.stack([env.reset(seed=1)[0], env.step(np.array([0]))[0]]))
    np.testing.assert_array_equal(*seen)
    assert seen[0].std() > 10


OTHERS = [
    (lambda picture: picture / np.float32(255), ("float32", "0 to 1", "(255 * picture).astype(np.uint8)")),
    (lambda picture: picture / 127.5 - 1, ("float64", "-1 to 1", "127.5 * (picture + 1)")),
    (lambda picture: picture * 0.9, ("float64", "picture.astype(np.uint8)")),
    (lambda picture: picture.astype(np.int64) - 7, ("int64", "-7 to 248", "from 0 to 255")),
    (lambda picture: picture.astype(np.int64) * 2, ("int64", "0 to 510", "from 0 to 255")),
    (lambda picture: picture * np.nan, ("float64", "nan")),
    (lambda picture: picture > 9, ("bool", "(255 * picture).astype(np.uint8)")),
    (lambda picture: picture.astype(np.complex64), ("complex64", "numbers")),
    (lambda picture: picture.astype(str), ("<U3", "numbers")),
    (lambda picture: np.moveaxis(picture, 2, 0), ("(3, 40, 48)", "np.moveaxis")),
    (lambda picture: picture[:30], ("(30, 48, 3)", "return the declared shape")),
    (lambda picture: {"image": picture}, ("type dict",)),
    (lambda picture: None, ("NoneType",)),
    (lambda picture: [[1, 2], [3]], ("type list",)),
]


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(("make", "words"), OTHERS)
def test_a_picture_unlike_its_space_is_refused_with_a_fix(play, make, words, start):
    env = play("tests/Shown-v0", space=PICTURE, show=shown(make, start=start))

    def run():
        env.reset(seed=1)
        env.step(np.array([0]))
        env.step(np.array([0]))

    error = complaint(run)
    assert error.startswith("tests/Shown-v0: ")
    assert all(word in error for word in ("Box(0, 255, (40, 48, 3), uint8)", *words))


def test_a_picture_refused_in_a_process_gives_the_same_error(closing):
    make = partial(registered.make, GymnasiumSpec(id="unusable_toys:UnitPixels-v0"), GREY)
    env = closing(ProcessVectorEnv([make]))
    env.reset(seed=1)
    error = complaint(env.step, np.array([0]))
    assert error.startswith("UnitPixels-v0: its observation_space is Box(0, 255, (30, 40, 3), uint8)")
    assert "(255 * picture).astype(np.uint8)" in error


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda numbers: numbers[:3], "(3,)"),
        (lambda numbers: numbers[None], "(1, 4)"),
        (lambda numbers: ["a"] * 4, "list"),
        (lambda numbers: [None] * 4, "list"),
        (lambda numbers: numbers * 1j, "complex"),
        (lambda numbers: {"x": numbers}, "dict"),
    ],
)
def test_numbers_unlike_their_space_are_refused(play, make, word):
    space = Box(-9, 999, (4,), np.float32)
    error = complaint(play("tests/Shown-v0", space=space, show=shown(make, space)).reset)
    assert "Box(-9.0, 999.0, (4,), float32)" in error
    assert word in error


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [list, tuple, lambda numbers: numbers.astype(np.float64), lambda numbers: numbers * 1e300])
def test_lists_and_huge_numbers_are_seen_without_a_warning(play, make):
    space = Box(0, 999, (4,), np.float64)
    seen, _ = play("tests/Shown-v0", space=space, show=shown(make, space)).reset()
    assert (seen.dtype, seen.shape) == (np.float32, (1, 4))


def pixels(*shape, dtype=np.uint8, high=255):
    return Box(0, high, shape, dtype)


FLATTEN = "gymnasium.wrappers.FlattenObservation"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (pixels(4, 84, 84), ("(84, 84)", "[observation] stack = 4", "channels last")),
        (pixels(84, 84, 4), ("(84, 84)", "[observation] stack = 4", "RGBA")),
        (pixels(84, 84, 12), ("stack = 4", "(84, 84, 3)")),
        (pixels(4, 84, 84, 3), ("[observation] stack = 4",)),
        (pixels(3, 64, 48), ("channels last, (64, 48, 3)",)),
        (pixels(1, 64, 48), ("channels last, (64, 48, 1)",)),
        (pixels(3, 30, 40), ("channels last, (30, 40, 3)",)),
        (pixels(64, 64, 3, dtype=np.float32, high=1), ("dtype=np.uint8",)),
        (pixels(64, 64, dtype=np.int32), ("dtype=np.uint8",)),
        (pixels(3, 64, 64, dtype=np.float32), ("dtype=np.uint8", "channels last, (64, 64, 3)")),
        (pixels(4, 64, 64, dtype=np.float32), ("dtype=np.uint8", "[observation] stack = 4")),
        (Box(-np.inf, np.inf, (40, 40), np.float32), (FLATTEN, "dtype=np.uint8")),
        (pixels(40, 40, 7), (FLATTEN, "stack")),
        (pixels(0, dtype=np.float32), ("empty",)),
        (pixels(0, 84), ("empty",)),
        (pixels(84, 84, 0), ("empty",)),
        (Discrete(2_000_000), ("2,000,000 numbers",)),
        (Dict(few=Discrete(4), many=Discrete(10**9)), ("observation['many']", "1,000,000,000 numbers")),
        (Dict(depth=pixels(84, 84, dtype=np.float32), speed=Box(0, 1, ())), ("dtype=np.uint8", "FilterObservation")),
        (
            Dict(a=PICTURE, b=Tuple([PICTURE])),
            ("observation['a'] (40, 48, 3)", "observation['b'][0] (40, 48, 3)", "2 pictures"),
        ),
        (Text(9), ("ObservationWrapper",)),
        (
            Dict(words=Sequence(Text(9)), more=Tuple([Graph(Discrete(2), None), OneOf([Discrete(2)])])),
            ("ObservationWrapper",),
        ),
    ],
)
def test_an_unsupported_space_is_refused_with_a_fix(play, space, words):
    error = complaint(lambda: play("tests/Shown-v0", space=space))
    problem, _, fix = error.partition("(height, width, 3)): ")
    assert all(word in fix for word in words), fix
    assert str(space)[:60] in problem or "observation['depth'] is Box(0.0" in problem


def test_the_module_in_the_docs_registers_a_game(play, tmp_path, monkeypatch):
    (block,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "own-scenario.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "my_games.py").write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    seen, _ = play("my_games:Grid-v0").reset(seed=1)
    assert seen.shape == (1, 7 * 7 * 3)


# Environments written for gym


class OldReset(Plain):
    """Its reset returns `first` of the observation instead of a pair."""

    first = staticmethod(lambda seen: seen)

    def reset(self, **options):
        return self.first(super().reset()[0])


class SeedlessReset(OldReset):
    def reset(self):
        return super().reset()


class OptionlessReset(OldReset):
    def reset(self, seed=None):
        return super().reset()


class OldStep(Plain):
    def step(self, action):
        return super().step(action)[:4]


class Silent(Plain):
    def step(self, action):
        """Returns nothing."""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OldReset, ("reset() returns 1 value, ndarray", "observation, info")),
        (type("TwoNumbers", (OldReset,), {"first": staticmethod(tuple)}), ("reset() returns 2 values", "info (a dict)")),
        (type("Nothing", (OldReset,), {"first": staticmethod(lambda seen: None)}), ("1 value, NoneType",)),
        (SeedlessReset, ("reset()", "seed=None, options=None")),
        (OptionlessReset, ("reset(seed=None)", "seed=None, options=None")),
        (OldStep, ("step() returns 4 values", "terminated, truncated")),
        (Silent, ("step() returns 1 value, NoneType", "5: observation")),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("limit", [None, 9])
def test_old_gym_methods_are_refused_with_gymnasiums_form(play, kind, words, wrapped, limit):
    register("tests/Old-v0", lambda: FlattenObservation(kind()) if wrapped else kind(), max_episode_steps=limit)

    def run():
        env = play("tests/Old-v0")
        env.reset(seed=1)
        env.step(np.array([0]))

    try:
        error = complaint(run)
    finally:
        registry.pop("tests/Old-v0")
    assert error.startswith("tests/Old-v0: ")
    assert all(word in error for word in words), error


class Spaceless(gymnasium.Env):
    action_space = Discrete(2)


class Late(Spaceless):
    @property
    def observation_space(self):
        raise RuntimeError("reset me first")


class Pays(Plain):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, self.pay, *rest


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Spaceless, ("observation_space", "constructor")),
        (Late, ("observation_space", "reset me first")),
        (type("Listed", (Pays,), {"pay": np.ones(1)}), ("reward ndarray of shape (1,)", "one number")),
        (type("Unpaid", (Pays,), {"pay": None}), ("reward None", "one number")),
    ],
)
def test_missing_spaces_and_bad_rewards_are_refused(play, kind, words):
    register("tests/Half-v0", kind)

    def run():
        env = play("tests/Half-v0")
        env.reset(seed=1)
        env.step(np.array([0]))

    try:
        error = complaint(run)
    finally:
        registry.pop("tests/Half-v0")
    assert all(word in error for word in ("tests/Half-v0: ", *words)), error


def test_an_error_on_close_is_ignored(play):
    class Fails(Plain):
        def close(self):
            raise RuntimeError("closed already")

    register("tests/Fails-v0", Fails)
    try:
        play("tests/Fails-v0").close()
    finally:
        registry.pop("tests/Fails-v0")


GYM = """
class Registry: env_specs = {}
class envs: registry = Registry()
"""
MODULE = """
import gym
gym.envs.registry.env_specs["Mine-v0"] = gym
"""


@pytest.mark.parametrize("installed", [True, False])
def test_a_module_that_registers_with_gym_gets_a_hint(tmp_path, monkeypatch, installed):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gym", None)
    if installed:
        monkeypatch.delitem(sys.modules, "gym")
        (tmp_path / "gym.py").write_text(GYM)
    module = f"old_module_{installed}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    error = complaint(registered.make, GymnasiumSpec(id=f"{module}:Mine-v0"), GREY)
    assert error.startswith(f"{module}:Mine-v0: its module")
    assert "import gymnasium as gym" in error


@pytest.mark.parametrize("space", ["observation_space", "action_space"])
def test_a_gym_space_gets_a_hint(play, space):
    class Box(gymnasium.Space):
        __module__ = "gym.spaces.box"

    register("tests/GymSpace-v0", type("Mixed", (Plain,), {space: Box((2,), np.float32)}))
    try:
        assert "import gymnasium as gym" in complaint(lambda: play("tests/GymSpace-v0"))
    finally:
        registry.pop("tests/GymSpace-v0")


# Errors


@pytest.mark.parametrize(
    ("game_id", "settings", "message"),
    [
        ("CratPole-v1", {}, "Did you mean: `CartPole`?"),
        ("CartPole-v9", {}, "[ `v0`, `v1` ]"),
        ("Nonsense-v0", {}, "doesn't exist"),
        ("no_such_module:Toy-v0", {}, "No module named 'no_such_module'"),
        ("CartPole-v1", {"gravity": 3}, "unexpected keyword argument 'gravity'"),
        ("tests/Failing-v0", {}, "ValueError"),
        ("MiniGrid-Empty-5x5-v0", {}, ": minigrid:MiniGrid-Empty-5x5-v0"),
        ("highway-v0", {}, ": highway_env:highway-v0"),
        ("Some/Game-v3", {}, ": my_module:Some/Game-v3"),
    ],
)
def test_an_unplayable_game_gives_a_one_line_error(monkeypatch, game_id, settings, message):
    for known in [each for each in registry if each.startswith("MiniGrid")]:  # another test may have imported it
        monkeypatch.delitem(registry, known)
    for call in (
        lambda: registered.make(GymnasiumSpec(id=game_id, settings=settings), GREY),
        lambda: builder(game_id, **settings),
    ):
        error = complaint(call)
        assert error.startswith(f"{game_id}: ")
        assert message in error


@pytest.mark.parametrize(
    ("typed", "game", "skip", "sticky"),
    [
        ("Breakout-v4", "ALE/Breakout-v5", "3", "0"),
        ("Breakout-v0", "ALE/Breakout-v5", "3", "0.25"),
        ("BreakoutNoFrameskip-v4", "ALE/Breakout-v5", "1", "0"),
        ("PongDeterministic-v4", "ALE/Pong-v5", "4", "0"),
        ("SpaceInvadersDeterministic-v0", "ALE/SpaceInvaders-v5", "3", "0.25"),
        ("MsPacman-ram-v4", "ALE/MsPacman-v5", "3", "0"),
        ("Pong-ramNoFrameskip-v0", "ALE/Pong-v5", "1", "0.25"),
        ("montezumarevenge-v4", "ALE/MontezumaRevenge-v5", "3", "0"),
        ("Pong-v5", "ALE/Pong-v5", "4", "0.25"),
        ("ale_py:ALE/Pong-v5", "ALE/Pong-v5", "4", "0.25"),
        ("ale_py:PongNoFrameskip-v4", "ALE/Pong-v5", "1", "0"),
    ],
)
def test_an_old_atari_id_suggests_the_equivalent_new_game(typed, game, skip, sticky):
    error = complaint(lambda: registered.make(GymnasiumSpec(id=typed), GREY))
    assert error.startswith(f"{typed}: use {game}, ")
    assert f"--frame-skip {skip} " in error
    assert f"sticky_actions = {sticky} " in error
    assert ("RAM" in error) == ("-ram" in typed)


def test_a_module_game_may_have_no_version(play):
    assert play("registered_toys:tests/Toy").single_action_space == Discrete(3)


def test_car_racing_plays_like_the_plain_environment():
    observation = Observation(size=(96, 96), color=True)
    game = registered.make(GymnasiumSpec(id="CarRacing-v3", frame_skip=4), observation)
    plain = gymnasium.make("CarRacing-v3")
    with closing(game), closing(plain):
        seen, _ = game.reset(seed=3)
        assert (seen == plain.reset(seed=3)[0]).all()
        for _ in range(12):
            seen, paid, terminated, *_ = game.step(np.float32([0.3, 0.5, -1]))
            frames = [plain.step(np.float32([0.3, 0.75, 0])) for _ in range(4)]
            assert (seen == frames[-1][0]).all()
            assert paid == pytest.approx(sum(frame[1] for frame in frames))
            assert not terminated
        assert (game.reset(seed=4)[0] == plain.reset(seed=4)[0]).all()


def test_lunar_lander_makes_flames_only_once_it_is_drawn():
    game = registered.make(GymnasiumSpec(id="LunarLander-v3", frame_skip=1), Observation())
    plain = gymnasium.make("LunarLander-v3")
    with closing(game), closing(plain):
        assert (game.reset(seed=3)[0] == plain.reset(seed=3)[0]).all()

        def step(times):
            for _ in range(times):
                seen, paid, *_ = game.step(2)  # the main engine
                expected, reward, *_ = plain.step(2)
                assert (seen == expected).all()
                assert paid == reward

        step(5)
        assert not game.unwrapped.particles
        assert game.render_mode == "rgb_array", "other programs' recorders require it"
        assert game.render().shape == (400, 600, 3)
        step(5)
        assert game.unwrapped.particles
        assert game.get_wrapper_attr("picture")(False).std() > 0
