"""Games in a mirror, on real ViZDoom."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest

from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.variables import GameVariables
from doom_a3c.envs.games import make_game_factory
from doom_a3c.settings.catalog import find, list_scenario_files
from doom_a3c.settings.games import DoomSpec

SEED = 5
# By action of each scenario: the one that goes the other way.
PAIRS = {
    "basic": {0: 1, 1: 0, 2: 2},  # MOVE_LEFT, MOVE_RIGHT, ATTACK
    "health_gathering_supreme": {0: 0, 1: 1, 2: 3, 3: 2, 4: 5, 5: 4, 6: 7, 7: 6},  # deltas
}


def frames(observation):
    """Returns the pixels of an observation."""
    return observation["pixels"] if isinstance(observation, dict) else observation


@pytest.mark.parametrize("name", PAIRS)
def test_a_mirrored_game_shows_what_the_game_shows_whose_agent_goes_the_other_way(name, closing):
    scenario = find(name)
    game, mirror = (
        closing(DoomEnv(scenario.game, scenario.observation, in_mirror=in_mirror)) for in_mirror in (False, True)
    )
    seen, reflected = game.reset(seed=SEED)[0], mirror.reset(seed=SEED)[0]
    unlike_itself = False
    for action in [*PAIRS[name], *PAIRS[name]] * 2:
        np.testing.assert_array_equal(frames(reflected), frames(seen)[:, ::-1])
        unlike_itself |= not np.array_equal(frames(reflected), frames(seen))
        np.testing.assert_array_equal(mirror.render(), game.render())  # for people it is the game
        seen, reward, *ends, _ = game.step(PAIRS[name][action])
        reflected, reflected_reward, *reflected_ends, _ = mirror.step(action)
        assert (reflected_reward, reflected_ends) == (reward, ends)
        if any(ends):
            break
    assert unlike_itself


def test_a_button_without_the_one_of_the_other_side_is_mirrored_too(closing):
    scenario = find("basic")
    left = replace(scenario.game, available_buttons=("TURN_LEFT", "TURN_LEFT", "ATTACK"), buttons="single")
    right = replace(left, available_buttons=("TURN_RIGHT", "ATTACK"))
    mirror = closing(DoomEnv(left, scenario.observation, in_mirror=True))
    game = closing(DoomEnv(right, scenario.observation))
    mirror.reset(seed=SEED), game.reset(seed=SEED)
    for _ in range(3):
        np.testing.assert_array_equal(mirror.step(0)[0], game.step(0)[0][:, ::-1])


@pytest.mark.parametrize("processes", [0, 1])
def test_every_second_game_of_training_is_mirrored_and_none_elsewhere(processes, closing):
    scenario = find("basic")
    plain, _ = closing(DoomEnv(scenario.game, scenario.observation)).reset(seed=SEED)
    assert not np.array_equal(plain, plain[:, ::-1])
    for mirror, limited in ((True, False), (True, True), (False, False)):
        games = closing(make_game_factory(replace(scenario.game, mirror=mirror), scenario.observation, processes))
        if not limited:
            games.start_early(1, 4, 1)
        pixels, _ = closing(games.make_vector(4, limited=limited)).reset(seed=[SEED] * 4)
        reflected = plain[:, ::-1] if mirror and not limited else plain
        for index, expected in enumerate([plain, reflected] * 2):
            np.testing.assert_array_equal(pixels[index], expected)
        np.testing.assert_array_equal(closing(games.make_single(None)).reset(seed=SEED)[0], plain)


def test_a_side_step_by_so_much_and_a_pickled_game_are_mirrored(closing):
    scenario = find("basic")
    steps = ("MOVE_LEFT_RIGHT_DELTA=-7", "MOVE_LEFT_RIGHT_DELTA=7")
    beside = replace(scenario.game, available_buttons=("MOVE_LEFT_RIGHT_DELTA",), buttons=steps)
    game = closing(DoomEnv(beside, scenario.observation))
    mirror = closing(pickle.loads(pickle.dumps(DoomEnv(beside, scenario.observation, in_mirror=True))))
    game.reset(seed=SEED), mirror.reset(seed=SEED)
    for _ in range(3):
        np.testing.assert_array_equal(mirror.step(0)[0], game.step(1)[0][:, ::-1])


def test_which_games_of_doom_are_mirrored():
    doom = [scenario for scenario in map(find, list_scenario_files()) if isinstance(scenario.game, DoomSpec)]
    names = {"basic", "health_gathering", "health_gathering_supreme", "defend_the_center", "deathmatch"}
    assert {scenario.name for scenario in doom if scenario.game.mirror} == names


def test_variables_of_a_side_are_mirrored_and_angles_are_to_either_side_of_nought(closing):
    scenario = find("health_gathering")
    game = replace(
        scenario.game,
        available_buttons=("TURN_LEFT_RIGHT_DELTA", "MOVE_FORWARD"),
        buttons=(("TURN_LEFT_RIGHT_DELTA=-5", "MOVE_FORWARD"), ("TURN_LEFT_RIGHT_DELTA=5", "MOVE_FORWARD")),
        variables=("ANGLE", "POSITION_X", "POSITION_Y", "VELOCITY_Y", "HEALTH"),
        variable_scales=(2.0, 1.0, 1.0, 1.0, 1.0),
    )
    plain = closing(DoomEnv(game, scenario.observation))
    mirror = closing(DoomEnv(game, scenario.observation, in_mirror=True))
    plain.reset(seed=SEED), mirror.reset(seed=SEED)
    moved, angles = set(), []
    for _ in range(20):
        seen, reflected = plain.step(1)[0]["variables"], mirror.step(0)[0]["variables"]
        np.testing.assert_array_equal(reflected, seen * np.float32([-1, 1, -1, -1, 1]))
        angles.append(seen[0])
        moved.add(seen[3] > 0)
    # To the right it is 20 degrees a step, here times 2, through the half turn.
    assert -360 <= min(angles) < 0 < max(angles) < 360
    assert {round(float(before - now)) % 720 for before, now in itertools.pairwise(angles)} == {40}
    assert moved == {True, False}


def test_a_mirror_turns_all_that_belongs_to_a_side():
    sides = {"ROLL": (350.0, -10), "CAMERA_ROLL": (10.0, 10), "CAMERA_ANGLE": (180.0, -180), "CAMERA_POSITION_Y": (5.0, 5)}
    others = {"PITCH": 200.0, "POSITION_Z": 7.0, "VELOCITY_X": -3.0, "VELOCITY_Z": 2.0, "AMMO2": 4095.5}
    names, values = (*sides, *others), [number for number, _ in sides.values()] + list(others.values())
    shown = [number for _, number in sides.values()]
    assert GameVariables(names, (), in_mirror=False).convert(values).tolist() == [*shown, *others.values()]
    assert GameVariables(names, (), in_mirror=True).convert(values).tolist() == [
        *(-number for number in shown),
        *others.values(),
    ]
    assert GameVariables((), (), in_mirror=True).convert(()).shape == (0,)
