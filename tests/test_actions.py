"""Gymnasium action spaces, adapted for the agent."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from doom_a3c.envs.actions import adapt_actions
from doom_a3c.settings.actions import MixedBox
from doom_a3c.settings.errors import UserError

STEER = Box(np.float32([-1, 0]), np.float32([1, 10]))
HYBRID = Dict({"look": STEER, "fire": Discrete(2), "hands": Tuple((MultiBinary(2), MultiDiscrete([3, 4])))})


@pytest.mark.parametrize(
    ("space", "adapted", "action", "expected"),
    [
        (Discrete(3, start=5), Discrete(3), 2, 7),
        (MultiDiscrete([3, 2], start=[1, 0]), MultiDiscrete([3, 2]), [2, 1], [3, 1]),
        (MultiDiscrete([[3, 2], [2, 2]]), MultiDiscrete([3, 2, 2, 2]), [2, 1, 0, 1], [[2, 1], [0, 1]]),
        (MultiBinary((2, 2)), MultiDiscrete([2, 2, 2, 2]), [1, 0, 0, 1], [[1, 0], [0, 1]]),
        (STEER, Box(-1, 1, (2,), np.float32), [-3.0, 0.5], [-1, 7.5]),
        (Box(-2, 2, (1, 2)), Box(-1, 1, (2,), np.float32), [0.5, 0.0], [[1, 0]]),
        (Box(0, 9, (2,), np.int64), Box(-1, 1, (2,), np.float32), [1.0, -0.1], [9, 4]),
        (Tuple((Discrete(2), Discrete(4))), MultiDiscrete([2, 4]), [1, 3], (1, 3)),
    ],
)
def test_converted_actions_fit_the_environments_space(space, adapted, action, expected):
    actions = adapt_actions("Game", space)
    assert actions.space == adapted
    converted = actions.convert(np.array(action, adapted.dtype))
    assert np.array_equal(converted, expected)
    assert space.contains(converted)
    assert actions.names is None or len(set(actions.names)) == len(actions.names)


def test_a_hybrid_dict_becomes_choices_followed_by_numbers():
    actions = adapt_actions("Game", HYBRID)
    assert isinstance(actions.space, MixedBox)
    assert actions.space.sizes == (2, 2, 2, 3, 4)
    converted = actions.convert(np.float32([1, 0, 1, 2, 3, -1.0, 1.0]))
    assert HYBRID.contains(converted)
    assert converted["look"].tolist() == [-1, 10]
    assert converted["fire"] == 1
    assert converted["hands"][0].tolist() == [0, 1]
    assert converted["hands"][1].tolist() == [2, 3]
    assert actions.names[:2] == ["fire=0", "fire=1"]
    assert actions.names[-2:] == ["look[0]", "look[1]"]
    assert actions.words == "5 choices of 2, 2, 2, 3, 4 and 2 numbers"


def test_the_description_of_many_choices_is_shortened():
    assert adapt_actions("Game", MultiBinary(1000)).words == "1000 choices of 2, 2, 2, 2, 2, 2, 2, 2, ..."
    assert adapt_actions("Game", MultiDiscrete([3] * 8)).words == "8 choices of 3, 3, 3, 3, 3, 3, 3, 3"


def test_choices_are_named_with_the_environments_values():
    space = Dict(gear=Discrete(2, start=-1), row=MultiDiscrete([2, 2], start=[3, 0]), lamp=MultiBinary(1))
    names = ["gear=-1", "gear=0", "row[0]=3", "row[0]=4", "row[1]=0", "row[1]=1", "lamp=0", "lamp=1"]
    assert adapt_actions("Game", space).names == names


def test_a_mixed_space_samples_valid_actions():
    space = MixedBox((3, 2), 2)
    space.seed(0)
    drawn = np.array([space.sample() for _ in range(500)])
    assert all(map(space.contains, drawn))
    assert sorted(set(drawn[:, 0])) == [0, 1, 2]
    assert sorted(set(drawn[:, 1])) == [0, 1]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Box(-np.inf, np.inf, (2,)), "without finite bounds"),
        (Box(0, np.inf, (2,)), "without finite bounds"),
        (Box(np.float32([0, 1]), np.float32([1, 1]), dtype=np.float32), None),
        (Text(3), r"Text.*the agent takes Discrete"),
        (Dict({"go": Discrete(2), "say": Text(3)}), r"its action say is Text.*the agent takes Discrete"),
        (Tuple((Dict(look=Box(0, np.inf, (2,))),)), r"its action \[0\].look is Box.*without finite bounds"),
        (Tuple(()), "nothing to decide"),
        (Box(0, 1, (0,)), "nothing to decide"),
    ],
)
def test_an_unsupported_action_space_gives_a_one_line_error(space, words):
    if words is None:
        assert adapt_actions("Game", space).convert(np.float32([0, 0])).tolist() == [0.5, 1]
        return
    with pytest.raises(UserError, match=f"^Game: .*{words}") as error:
        adapt_actions("Game", space)
    assert "\n" not in str(error.value)


def test_a_lower_bound_above_the_upper_one_is_an_error():
    space = Box(-1, 1, (2,))
    space.low, space.high = space.high, space.low  # Gymnasium refuses it only in the constructor
    with pytest.raises(UserError, match="a lower bound above the upper one"):
        adapt_actions("Game", space)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (Discrete(3, start=5), [3, -1, 0.5, np.nan, np.inf, [0, 1], "a", None]),
        (MultiDiscrete([2, 3]), [[2, 0], [0, -1], [0, 0.5], [0, np.nan], [0], [0, 0, 0], [[0, 0]], 0, ["a", "b"], None]),
        (STEER, [[np.nan, 0], [np.inf, 0], [0], [0, 0, 0], 0, None, ["a", "b"], [None, 0]]),
        (HYBRID, [[2, 0, 0, 0, 0, 0.5, 0.5], [0] * 6, [0] * 8, [-1] * 7, [0.5] * 7]),
    ],
)
def test_an_action_outside_the_space_gives_a_one_line_error(space, actions):
    adapted = adapt_actions("Game", space)
    for action in actions:
        with pytest.raises(UserError, match=r"^Game: the action .* is (not|none)") as error:
            adapted.convert(action)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_the_widest_box_of_each_dtype_keeps_its_bounds(dtype):
    limits = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    space = Box(limits.min, limits.max, (2,), dtype)
    for number in np.linspace(-1, 1, 9, dtype=np.float32):
        assert space.contains(converted := adapt_actions("Game", space).convert(np.float32([number, number])))
        if abs(number) == 1:
            assert (converted == (space.low if number < 0 else space.high)).all()


@pytest.mark.parametrize(
    "space", [Discrete(10**9), MultiDiscrete([2, 10**9]), MultiBinary(10**7), Dict(a=Tuple((Discrete(10**9),)))]
)
def test_too_many_choices_are_refused_before_they_are_named(space):
    with pytest.raises(UserError, match=r"Game.* 1,000,000 at most"):
        adapt_actions("Game", space)


def test_control_characters_in_action_names_are_escaped():
    names = adapt_actions("Game", Dict({"a\nb\x1b": Discrete(2), "": Box(-1, 1), "é": Discrete(1)})).names
    assert names == [r"a\nb\x1b=0", r"a\nb\x1b=1", "é=0", "[0]"]


def test_sampled_actions_of_known_environments_convert():
    for name in ("Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1"):
        with gymnasium.make(name) as env:
            actions = adapt_actions(name, env.action_space)
            assert env.action_space.contains(actions.convert(actions.space.sample()))
