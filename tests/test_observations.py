"""Observations of any numeric space as the agent sees them: one picture, numbers, or both."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from fakes import complaint
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple, flatten

from doom_a3c.agent.inputs import Inputs
from doom_a3c.envs import registered
from doom_a3c.envs.flattening import list_left_out, name_numbers
from doom_a3c.envs.games import make_game_factory
from doom_a3c.envs.observations import make_reader
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.run.builder import Builder
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.games import GymnasiumSpec, Observation

SIZES = Observation(size=(20, 24), stack=2)
PICTURE = Box(0, 255, (40, 48, 3), np.uint8)
NESTED = Dict(
    hand=MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [2, 3]]),
    arm=Tuple([MultiBinary([2, 2]), Box(-9, 9, ())]),
    base=Dict(heading=Discrete(4, start=-1), words=Text(9)),
    map=Box(-1, 1, (2, 3)),
)
VALUE = {
    "hand": np.array([[1, 3], [5, 3]]),
    "arm": (np.array([[0, 1], [1, 0]]), 2.5),
    "base": {"heading": 1, "words": "go"},
    "map": np.arange(6, dtype=np.float32).reshape(2, 3),
}


class Both(gymnasium.Env):
    """Shows a picture in the colour 10 t at frame t under a custom key, beside nested numbers."""

    observation_space, action_space = Dict(camera=PICTURE, rest=NESTED), Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012  # Gymnasium's interface

    def see(self):
        return {
            "camera": np.full(PICTURE.shape, 10 * self.time, np.uint8),
            "rest": {**VALUE, "arm": (VALUE["arm"][0], self.time)},
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 1
        return self.see(), {}

    def step(self, action):
        self.time += 1
        return self.see(), 1.0, self.time >= 4, False, {}


@pytest.mark.parametrize(
    "space",
    [
        Discrete(5, start=-2),
        MultiDiscrete([3, 1, 4]),
        MultiBinary(3),
        MultiBinary((2, 2)),
        Box(-1, 1, ()),
        Box(-np.inf, np.inf, (5, 5)),
        Box(0, 255, (7, 7, 3), np.uint8),
        Box(0, 255, (31, 31), np.uint8),
        Box(0, 1, (10, 10, 4), np.bool_),
        Box(0, 255, (40, 40, 2, 2, 2), np.uint8),
        Tuple([Discrete(4), Box(0, 1, (2,))]),
        Dict(z=Discrete(2), a=Dict(b=Tuple([MultiBinary(2), MultiDiscrete([2, 2])])), none=Box(0, 1, (0,))),
        Dict({key: part for key, part in NESTED.items() if key != "base"}),
    ],
)
def test_numbers_are_flattened_as_gymnasium_does(space):
    reader = make_reader("Game", space, SIZES)
    space.seed(3)
    for _ in range(5):
        value = space.sample()
        seen = reader.read(value)
        assert (seen.dtype, seen.shape) == (np.float32, reader.space.shape)
        np.testing.assert_array_equal(seen, flatten(space, value).astype(np.float32))
    assert sum(len(label.list_names()) for label in reader.labels) == seen.size


def test_a_flattened_matrix_is_refused():
    message = complaint(make_reader("Game", Box(-1, 1, (5, 5)), SIZES).read, np.zeros(25, np.float32))
    assert all(word in message for word in ("(5, 5)", "(25,)"))


def test_the_result_is_a_copy_of_the_games_array():
    space = Dict(grid=Box(-1, 1, (2, 2), np.float32))
    reader, value = make_reader("Game", space, SIZES), {"grid": np.zeros((2, 2), np.float32)}
    seen = reader.read(value)
    value["grid"][:] = 1
    assert not seen.any()


def test_numbers_are_named_by_their_path():
    reader = make_reader("Game", NESTED, SIZES)
    names = dict(name_numbers(reader.labels, reader.read(VALUE)))
    assert names["base.heading"] == 1
    assert (names["hand[0,1]"], names["hand[1,0]"]) == (3, 5)
    assert (names["arm[0][0,1]"], names["arm[0][1,1]"], names["arm[1]"]) == (1, 0, 2.5)
    assert names["map[1,2]"] == 5
    vector = make_reader("Game", Box(-1, 1, (2,)), SIZES)
    assert name_numbers(vector.labels, np.zeros(2, np.float32)) == [("[0]", 0), ("[1]", 0)]
    assert name_numbers(make_reader("Game", Discrete(3), SIZES).labels, np.array([0, 0, 1])) == [("observation", 2)]


def test_texts_and_parts_of_variable_size_are_left_out():
    space = Dict(
        mission=Text(9),
        graph=Graph(Discrete(2), None),
        deck=Tuple([Sequence(Discrete(3)), OneOf([Discrete(2)])]),
        x=Discrete(2),
    )
    assert sorted(list_left_out(space)) == ["deck[0] (Sequence)", "deck[1] (OneOf)", "graph (Graph)", "mission (Text)"]
    np.testing.assert_array_equal(make_reader("Game", space, SIZES).read({"x": 1}), [0, 1])


def test_an_empty_observation_space_is_refused():
    for space in (Dict(), Tuple([]), None):
        message = complaint(make_reader, "Game", space, SIZES)
        assert message.startswith(f"Game: its observations are {space}; ")


def test_a_picture_with_only_texts_is_read_as_pixels():
    reader = make_reader("Game", Dict(image=PICTURE, mission=Text(9)), SIZES)
    assert reader.space == Box(0, 255, (20, 24, 2), np.uint8)
    assert reader.read({"image": np.full(PICTURE.shape, 7, np.uint8)}).max() == 7


WRONG = [
    (3, ("observation_space is Dict(", "an observation is of type int", "return a dict")),
    ({"arm": VALUE["arm"]}, ("a dict without 'hand'", "return all declared keys")),
    ({**VALUE, "base": {}}, ("observation_space['base'] is Dict(", "an observation['base'] is a dict without 'heading'")),
    ({**VALUE, "base": None}, ("observation['base'] is of type NoneType", "return a dict")),
    ({**VALUE, "arm": np.array(3)}, ("observation['arm'] is of type ndarray", "return a tuple")),
    ({**VALUE, "arm": (1,)}, ("observation['arm']", "length 1", "return 2 values")),
    ({**VALUE, "arm": (VALUE["arm"][0], "up")}, ("observation['arm'][1] is of type str", "return a number")),
    ({**VALUE, "arm": (VALUE["arm"][0], [1.0])}, ("observation['arm'][1]", "shape (1,)", "return the declared shape")),
    ({**VALUE, "arm": (2 * VALUE["arm"][0], 1)}, ("observation_space['arm'][0] is MultiBinary", "0 to 2")),
    ({**VALUE, "base": {"heading": 3}}, ("observation['base']['heading'] is 3", "values that the space contains")),
    ({**VALUE, "base": {"heading": -2}}, ("observation['base']['heading'] is -2",)),
    ({**VALUE, "base": {"heading": 0.5}}, ("observation['base']['heading'] is 0.5",)),
    ({**VALUE, "base": {"heading": np.nan}}, ("observation['base']['heading'] is nan",)),
    ({**VALUE, "hand": np.zeros((2, 2))}, ("observation['hand'] is float64 of shape (2, 2), 0 to 0",)),
    ({**VALUE, "hand": np.zeros(4)}, ("observation['hand']", "(4,)", "return the declared shape")),
    ({**VALUE, "map": np.zeros((3, 2))}, ("observation['map']", "(3, 2)")),
    ({**VALUE, "map": [[1, 2, 3], [4, 5]]}, ("observation['map'] is of type list", "an array of numbers")),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("value", "words"), WRONG)
def test_every_part_is_checked_against_its_space(value, words):
    message = complaint(make_reader("Game", NESTED, SIZES).read, value)
    assert message.startswith("Game: its observation_space")
    assert all(word in message for word in words), message


@pytest.mark.parametrize("kind", [LocalVectorEnv, ProcessVectorEnv])
def test_any_picture_and_numbers_become_pixels_and_variables(closing, kind):
    env = closing(kind([partial(registered.make, GymnasiumSpec(id="Both()", frame_skip=1), SIZES, Both)] * 2))
    assert env.single_observation_space["pixels"] == Box(0, 255, (20, 24, 2), np.uint8)
    seen, _ = env.reset(seed=1)
    for time in (2, 3):
        seen, *_ = env.step(np.zeros(2, int))
        assert seen["pixels"][1, 3, 4].tolist() == [10 * (time - 1), 10 * time]
        assert seen["variables"].shape == (2, 4 + 1 + 4 + 11 + 6)
        assert time in seen["variables"][1]
    *_, terminated, _, infos = env.step(np.zeros(2, int))
    assert terminated.all()
    assert infos["final_obs"][1]["pixels"][3, 4].tolist() == [30, 40]


def test_the_builder_knows_number_names_and_left_out_parts():
    scenario = replace(catalog.find("CartPole-v1"), observation=SIZES)
    builder = Builder(scenario, Config(), make_game_factory(GymnasiumSpec(id="Both()"), SIZES, make_env=Both))
    try:
        assert builder.inputs == Inputs((20, 24, 2), 26)
        assert builder.left_out == ["rest.base.words (Text)"]
        names = dict(builder.name_variables(np.eye(1, 26, dtype=np.float32)[0]))
        assert {"rest.arm[1]", "rest.base.heading"} < names.keys()
    finally:
        builder.close()


@pytest.mark.parametrize(
    ("game_id", "size", "named"),
    [
        ("minigrid:MiniGrid-Empty-5x5-v0", 7 * 7 * 3 + 4, "direction"),
        ("FrozenLake-v1", 16, "observation"),
        ("Blackjack-v1", 32 + 11 + 2, "[1]"),
        ("CliffWalking-v1", 48, "observation"),
    ],
)
def test_third_party_games_play_without_a_wrapper(game_id, size, named):
    games = make_game_factory(GymnasiumSpec(id=game_id), SIZES)
    facts = games.describe()
    assert facts.observations == Box(-np.inf, np.inf, (size,), np.float32)
    assert named in {label.name for label in facts.labels}
    assert list(facts.left_out) == (["mission (Text)"] if "MiniGrid" in game_id else [])
    env = games.make_single(None)
    try:
        seen, _ = env.reset(seed=1)
        for action in (0, 1, 0):
            assert seen in env.observation_space
            seen, *_ = env.step(action)
    finally:
        env.close()


def test_bounded_numbers_are_scaled_on_request():
    car = Box(np.float32([-1.2, -0.07, -np.inf, 3, -3e38]), np.float32([0.6, 0.07, np.inf, 3, 3e38]))
    space = Dict(car=car, gear=Discrete(3))
    reader = make_reader("Game", space, Observation(scale_numbers=True))
    seen = reader.read({"car": np.float32([-0.3, 0.07, 5, 3, 2]), "gear": 1})
    np.testing.assert_allclose(seen, [0, 1, 5, 3, 2, 0, 1, 0], atol=1e-6)
    assert seen.dtype == np.float32
    plain = make_reader("Game", car, Observation()).read(np.float32([-0.3, 0.07, 5, 3, 2]))
    np.testing.assert_allclose(plain, [-0.3, 0.07, 5, 3, 2])
