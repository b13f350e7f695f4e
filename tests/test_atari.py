"""Atari games on the real Arcade Learning Environment: observations and deterministic episodes."""

import itertools

import gymnasium
import numpy as np
import pytest
from atari_games import GREY, course, games, some, spec, to_the_end
from fakes import complaint

from doom_a3c.envs.atari import _make_games, find_rom, list_actions
from doom_a3c.run.builder import Builder
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.games import AtariSpec, Observation
from doom_a3c.settings.interface import LIFE_LOST


@pytest.fixture
def play(closing):
    """Makes games and closes them afterwards."""
    return lambda *arguments, **named: closing(games(*arguments, **named))


# Observations


@pytest.mark.parametrize(
    "observation",
    [
        GREY,
        Observation(stack=1),
        Observation(stack=3, size=(50, 70)),
        Observation(stack=2, color=True),
        Observation(stack=1, color=True, size=(50, 70)),
    ],
)
def test_observations_match_the_emulator_with_frames_as_channels(play, observation):
    game = {"max_frames": 120, "fire_on_reset": False}  # firing would change the actions
    env = play(count=2, observation=observation, **game)
    raw = _make_games(spec("Breakout", **game), observation, 2)
    colors = 3 if observation.color else 1
    shape = (*observation.size, observation.stack * colors)
    assert env.single_observation_space.shape == shape
    assert env.observation_space.shape == (2, *shape)

    ages = np.zeros(2, int)

    def agree(seen, frames):
        """The emulator's stack starts with zeros, ours with copies of the first frame."""
        assert (seen.dtype, seen.shape) == (np.uint8, (2, *shape))
        for game, index in itertools.product(range(2), range(observation.stack)):
            channels = seen[game, ..., index * colors : (index + 1) * colors]
            expected = frames[game, max(index, observation.stack - 1 - ages[game])]
            np.testing.assert_array_equal(channels if observation.color else channels[..., 0], expected)

    agree(env.reset(seed=np.array([7, 8]))[0], raw.reset(seed=np.array([7, 8]))[0])
    overs = 0
    for decision in some(70, 2):
        seen, _, terminated, truncated, infos = env.step(decision)
        frames, *_, raw_infos = raw.step(decision)
        over, ages = terminated | truncated, ages + 1
        if over.any():
            agree(infos["final_obs"], raw_infos["final_obs"])
            overs += 1
        ages[over] = 0
        agree(seen, frames)
    raw.close()
    assert overs >= 2
    assert seen.std() > 5


def test_the_title_names_game_and_actions(play):
    assert play("Breakout").metadata["title"] == "ALE/Breakout-v5, 4 actions: NOOP FIRE RIGHT LEFT"
    full = play("Breakout", full_actions=True).metadata["title"]
    assert full.startswith("ALE/Breakout-v5, 18 actions: NOOP FIRE UP ")
    assert full.endswith(" ...")


def test_the_newest_frame_is_the_last_channel(play):
    seen, _ = course(play(), 1, some(20))
    for one, following in itertools.pairwise(seen):
        np.testing.assert_array_equal(one[..., 1:], following[..., :-1])
    assert (seen[1:, ..., -1] != seen[:-1, ..., -1]).any(axis=(1, 2, 3)).sum() > 10


@pytest.mark.parametrize("observation", [GREY, Observation(stack=1, color=True)])
def test_an_observation_is_not_changed_by_the_next_step(play, observation):
    env = play(observation=observation)
    first, _ = env.reset(seed=1)
    copy = first.copy()
    for decision in some(10):
        env.step(decision)
    np.testing.assert_array_equal(first, copy)


def test_the_picture_is_the_network_input_at_twice_the_size(play):
    for color in (False, True):
        env = play(observation=Observation(stack=2, color=color), max_frames=40)
        seen, _ = env.reset(seed=1)
        for _ in range(5):
            picture = env.picture()
            assert (picture.shape, picture.dtype) == ((168, 168, 3), np.uint8)
            newest = seen[0, ..., -3:] if color else np.repeat(seen[0, ..., -1:], 3, axis=2)
            np.testing.assert_array_equal(picture[::2, ::2], newest)
            np.testing.assert_array_equal(picture[1::2, 1::2], newest)
            seen = env.step(np.array([1]))[0]
        _, (*_, infos) = to_the_end(env, lambda: 2)
        final = infos["final_obs"][0]
        newest = final[..., -3:] if color else np.repeat(final[..., -1:], 3, axis=2)
        np.testing.assert_array_equal(env.picture()[::2, ::2], newest)


# Determinism and the course of an episode


def test_seed_and_actions_determine_the_episode(play):
    env, decisions = play("SpaceInvaders", noop_max=30), some(120, choices=6)
    seen, paid = course(env, 3, decisions)
    again = course(env, 3, decisions)
    np.testing.assert_array_equal(seen, again[0])
    np.testing.assert_array_equal(paid, again[1])
    assert (course(env, 4, decisions)[0] != seen).any()
    assert (course(env, 3, some(120, choices=6, seed=1))[0] != seen).any()


def test_a_game_is_independent_of_the_others_in_its_vector(play):
    decisions, seeds = some(30, 5), np.array([5, 6, 7, 2**32 - 1, 9], np.uint32)
    together, paid = course(play(count=5, noop_max=30), seeds, decisions)
    for game in (0, 3):
        alone, alone_paid = course(play(noop_max=30), seeds[[game]], decisions[:, [game]])
        np.testing.assert_array_equal(alone[:, 0], together[:, game])
        np.testing.assert_array_equal(alone_paid[:, 0], paid[:, game])
    assert len({together[0, game].tobytes() for game in range(5)}) > 1
    consecutive, _ = course(play(count=3, noop_max=30), 5, decisions[:, :3])
    np.testing.assert_array_equal(consecutive, together[:, :3])


def test_sticky_actions_change_the_episode(play):
    left, right = np.full(60, 3), np.full(60, 2)
    free, sticky, stuck = (play(sticky_actions=probability) for probability in (0.0, 0.25, 1.0))
    assert (course(free, 1, some(60))[0] != course(sticky, 1, some(60))[0]).any()
    np.testing.assert_array_equal(course(sticky, 1, some(60))[0], course(sticky, 1, some(60))[0])
    assert (course(free, 1, left)[0] != course(free, 1, right)[0]).any()
    np.testing.assert_array_equal(course(stuck, 1, left)[0], course(stuck, 1, right)[0])  # repeats the last action forever


def test_no_ops_vary_the_starting_frame(play):
    def starts(noop_max):
        return set(play(count=6, noop_max=noop_max).reset(seed=0)[1]["episode_frame_number"].tolist())

    assert starts(0) == {1}
    assert 3 < len(moved := starts(30)) <= 6
    assert max(moved) <= 30


@pytest.mark.parametrize("life_loss", [False, True])
def test_fire_on_reset_launches_the_ball_in_every_life(play, life_loss):
    lives = []
    for fire in (False, True):
        env = play(count=2, fire_on_reset=fire, life_loss_terminates=life_loss)
        env.reset(seed=1)
        lives.append([env.step(np.array([0, 2]))[4]["lives"] for _ in range(130)])
    assert (np.array(lives[0]) == 5).all()  # nothing happens until the player fires
    assert sorted(set(np.ravel(lives[1]).tolist())) == [1, 2, 3, 4, 5]
    assert (np.diff(np.array(lives[1])[:, 0]) > 0).sum() == 1  # it lost all five, and a new game began


def test_a_reset_after_a_lost_life_starts_a_fresh_game(play):
    env = play(life_loss_terminates=True)
    env.reset(seed=1)
    for _ in range(60):
        if env.step(np.array([0]))[4][LIFE_LOST][0]:
            break
    decisions = np.full(10, 3)
    np.testing.assert_array_equal(course(env, 1, decisions)[0], course(play(), 1, decisions)[0])


@pytest.mark.parametrize(("full", "names"), [(False, 4), (True, 18)])
def test_actions_do_what_their_names_say(play, full, names):
    env = play(full_actions=full)
    known = list_actions(spec("Breakout", full_actions=full))
    assert len(known) == len(set(known)) == env.single_action_space.n == names

    def paddle(action):
        """Returns the paddle's column after a few decisions; these rows show nothing else."""
        env.reset(seed=1)
        for _ in range(4):
            seen = env.step(np.array([known.index(action)]))[0]
        return np.flatnonzero(seen[0, 76, 5:79, -1] > 50).mean()

    assert paddle("LEFT") + 10 < paddle("NOOP") < paddle("RIGHT") - 10


def test_a_step_lasts_frame_skip_frames(play):
    for frame_skip in (1, 3):
        env = play(frame_skip=frame_skip)
        first = env.reset(seed=1)[1]["episode_frame_number"][0]
        frames = [env.step(np.array([0]))[4]["episode_frame_number"][0] for _ in range(5)]
        assert frames == [first + frame_skip * (i + 1) for i in range(5)]


# Errors


@pytest.mark.parametrize(
    ("typed", "meant"), [("ALE/Pogn-v5", "ALE/Pong-v5"), ("ALE/Pong-v4", "ALE/Pong-v5"), ("ALE/QBert-v5", "ALE/Qbert-v5")]
)
def test_an_unknown_game_suggests_the_closest_name(typed, meant):
    for call in (lambda: list_actions(AtariSpec(id=typed)), lambda: Builder(catalog.find(typed), Config())):
        message = complaint(call)
        assert typed in message
        assert f"did you mean {meant}?" in message


@pytest.mark.parametrize("name", ["Pong", "MsPacman", "SpaceInvaders", "Qbert", "MontezumaRevenge", "VideoPinball"])
def test_games_are_found_by_their_published_names(name):
    assert list_actions(AtariSpec(id=f"ALE/{name}-v5"))[0] == "NOOP"


def test_every_registered_game_is_found():
    registered = {spec.id for spec in gymnasium.registry.values() if spec.id.startswith("ALE/") and spec.id.endswith("-v5")}
    found = {name for name in registered if find_rom(AtariSpec(id=name))}
    assert found == registered
    assert {"ALE/Pong-v5", "ALE/TicTacToe3D-v5"} <= found
