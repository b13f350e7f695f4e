"""Atari games on the real Arcade Learning Environment: what is seen, what is paid, and how episodes end."""

import itertools

import cv2
import gymnasium
import numpy as np
import pytest

from doom_a3c import catalog
from doom_a3c.cli.build import Builder
from doom_a3c.config import Config
from doom_a3c.envs.atari import AtariGames, AtariVideoRecorder, _games, actions, rom
from doom_a3c.rollouts import Actor
from doom_a3c.scenarios import AtariSpec, Observation
from doom_a3c.settings import UserError

GREY = Observation(stack=4)
PLAIN = {"life_loss_terminates": False, "noop_max": 0}


def spec(name, **game):
    """Returns a game as it is on its own, whatever has been tuned for it."""
    return AtariSpec(id=f"ALE/{name}-v5", **{**PLAIN, **game})


@pytest.fixture
def play():
    """Makes games; closes them."""
    made = []

    def make(name="Breakout", count=1, observation=GREY, **game):
        made.append(AtariGames(spec(name, **game), observation, count))
        return made[-1]

    yield make
    for env in made:
        env.close()


def course(env, seed, decisions):
    """Returns the observations of some decisions and their rewards."""
    seen, paid = [env.reset(seed=seed)[0]], []
    for decision in decisions:
        observation, rewards, *_ = env.step(np.atleast_1d(decision))
        seen.append(observation)
        paid.append(rewards)
    return np.array(seen), np.array(paid)


def some(count, games=1, choices=4, seed=0):
    return np.random.default_rng(seed).integers(choices, size=(count, games))


def to_the_end(env, decide=lambda: 0, limit=2000):
    """Plays until the first game's episode is over; returns the last observation before, and what the last step said."""
    before = None
    for _ in range(limit):
        step = env.step(np.full(env.num_envs, decide()))
        if step[2][0] or step[3][0]:
            return before, step
        before = step[0]
    raise AssertionError("the episode does not end")


# What is seen


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
def test_observations_are_the_emulators_with_the_frames_as_channels(play, observation):
    game = {"max_frames": 120, "fire_on_reset": False}  # which changes actions
    env = play(count=2, observation=observation, **game)
    raw = _games(spec("Breakout", **game), observation, 2)
    colors = 3 if observation.color else 1
    shape = (*observation.size, observation.stack * colors)
    assert env.single_observation_space.shape == shape
    assert env.observation_space.shape == (2, *shape)

    ages = np.zeros(2, int)

    def agree(seen, frames):
        """The emulator's stack begins with zeros, ours with the first frame."""
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


def test_the_picture_is_what_the_network_sees_twice_as_large(play):
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
        _, (seen, *_, infos) = to_the_end(env, lambda: 2)
        final = infos["final_obs"][0]
        newest = final[..., -3:] if color else np.repeat(final[..., -1:], 3, axis=2)
        np.testing.assert_array_equal(env.picture(final=True)[::2, ::2], newest)
        assert (env.picture() != env.picture(final=True)).any()


# What decides an episode


def test_seed_and_actions_decide_everything(play):
    env, decisions = play("SpaceInvaders", noop_max=30), some(120, choices=6)
    seen, paid = course(env, 3, decisions)
    again = course(env, 3, decisions)
    np.testing.assert_array_equal(seen, again[0])
    np.testing.assert_array_equal(paid, again[1])
    assert (course(env, 4, decisions)[0] != seen).any()
    assert (course(env, 3, some(120, choices=6, seed=1))[0] != seen).any()


def test_a_game_does_not_depend_on_those_beside_it(play):
    decisions, seeds = some(30, 5), np.array([5, 6, 7, 2**32 - 1, 9], np.uint32)
    together, paid = course(play(count=5, noop_max=30), seeds, decisions)
    for game in (0, 3):
        alone, alone_paid = course(play(noop_max=30), seeds[[game]], decisions[:, [game]])
        np.testing.assert_array_equal(alone[:, 0], together[:, game])
        np.testing.assert_array_equal(alone_paid[:, 0], paid[:, game])
    assert len({together[0, game].tobytes() for game in range(5)}) > 1
    consecutive, _ = course(play(count=3, noop_max=30), 5, decisions[:, :3])
    np.testing.assert_array_equal(consecutive, together[:, :3])


def test_sticky_actions_change_the_course(play):
    left, right = np.full(60, 3), np.full(60, 2)
    free, sticky, stuck = (play(sticky_actions=probability) for probability in (0.0, 0.25, 1.0))
    assert (course(free, 1, some(60))[0] != course(sticky, 1, some(60))[0]).any()
    np.testing.assert_array_equal(course(sticky, 1, some(60))[0], course(sticky, 1, some(60))[0])
    assert (course(free, 1, left)[0] != course(free, 1, right)[0]).any()
    np.testing.assert_array_equal(course(stuck, 1, left)[0], course(stuck, 1, right)[0])  # the last action, for ever


def test_no_ops_move_the_start(play):
    def starts(noop_max):
        return set(play(count=6, noop_max=noop_max).reset(seed=0)[1]["episode_frame_number"].tolist())

    assert starts(0) == {1}
    assert 3 < len(moved := starts(30)) <= 6
    assert max(moved) <= 30


@pytest.mark.parametrize("life_loss", [False, True])
def test_fire_starts_the_ball_of_every_life(play, life_loss):
    lives = []
    for fire in (False, True):
        env = play(count=2, fire_on_reset=fire, life_loss_terminates=life_loss)
        env.reset(seed=1)
        lives.append([env.step(np.array([0, 2]))[4]["lives"] for _ in range(130)])
    assert (np.array(lives[0]) == 5).all()  # nothing happens until the player fires
    assert sorted(set(np.ravel(lives[1]).tolist())) == [1, 2, 3, 4, 5]
    assert (np.diff(np.array(lives[1])[:, 0]) > 0).sum() == 1  # it has lost all five, and begun anew


def test_a_reset_forgets_the_life_that_was_lost(play):
    env = play(life_loss_terminates=True)
    env.reset(seed=1)
    for _ in range(60):
        if env.step(np.array([0]))[4]["life_lost"][0]:
            break
    decisions = np.full(10, 3)
    np.testing.assert_array_equal(course(env, 1, decisions)[0], course(play(), 1, decisions)[0])


@pytest.mark.parametrize(("full", "names"), [(False, 4), (True, 18)])
def test_actions_are_what_their_names_say(play, full, names):
    env = play(full_actions=full)
    known = actions(spec("Breakout", full_actions=full))
    assert len(known) == len(set(known)) == env.single_action_space.n == names

    def paddle(action):
        """Returns the column of the paddle, the only thing in these rows, after some decisions."""
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


# Rewards and ends


def test_rewards_are_the_games_own(play):
    env = play("SpaceInvaders", count=2)
    _, paid = course(env, 1, some(300, 2, choices=6))
    assert paid.dtype == np.float64
    assert {0.0, 5.0, 10.0} <= set(paid.flat)
    assert all(reward % 5 == 0 for reward in paid.flat)


def test_a_lost_life_counts_as_an_end_for_learning_alone(play):
    env = play(count=2, life_loss_terminates=True)
    seen, infos = env.reset(seed=1)
    lives, lost, ends = infos["lives"].copy(), 0, 0
    assert lives.tolist() == [5, 5]
    random = np.random.default_rng(0)
    for _ in range(500):
        before, (seen, _, terminated, truncated, infos) = seen, env.step(np.array([1, random.integers(4)]))
        over = terminated | truncated
        np.testing.assert_array_equal(infos["life_lost"], (infos["lives"] < lives) & ~over)
        goes_on = ~over
        np.testing.assert_array_equal(seen[goes_on][..., :-1], before[goes_on][..., 1:])  # nothing is reset
        lives, lost, ends = infos["lives"].copy(), lost + infos["life_lost"], ends + over
    assert ends.min() >= 1
    assert (lost >= 4 * ends).all()  # five lives, and the last one ends the game
    assert (lost < 4 * (ends + 1) + 1).all()


def test_without_life_loss_there_is_no_such_key(play):
    env = play()
    env.reset(seed=1)
    infos = [env.step(np.array([1]))[4] for _ in range(130)]
    assert any(info["lives"][0] < 5 for info in infos)
    assert not any("life_lost" in info for info in infos)


class Firing:
    """A policy that always fires."""

    def initial_state(self, batch_size):
        return ()

    def __call__(self, observations, resets, core_state):
        logits = np.full((len(resets), 4), -1e6, np.float32)
        logits[:, 1] = 0
        return logits, np.zeros(len(resets), np.float32), ()


def test_an_actors_episode_is_the_whole_game_in_which_lost_lives_are_ends(play):
    env = play(life_loss_terminates=True)
    env.reset(seed=np.random.SeedSequence(3).generate_state(1))
    length = 1 + next(t for t in itertools.count() if env.step(np.array([1]))[2][0])
    seed = np.random.SeedSequence(3)
    actor = Actor(env, Firing(), rollout_length=length, discount=0.9, reward_scale=1.0, seed=seed)
    rollout = actor.rollout()
    (episode,), _ = actor.take()
    assert episode.length == length
    assert rollout.ends.sum() == 5
    np.testing.assert_array_equal(rollout.discounts, np.where(rollout.ends, np.float32(0), np.float32(0.9)))
    assert np.flatnonzero(rollout.resets).tolist() == [0, length]  # the recurrent state outlives a life


@pytest.mark.parametrize(("max_frames", "frame_skip", "decisions"), [(200, 4, 50), (203, 4, 51), (50, 1, 50)])
def test_a_time_out_is_a_truncation(play, max_frames, frame_skip, decisions):
    env = play("Pong", count=2, max_frames=max_frames, frame_skip=frame_skip, noop_max=30)
    env.reset(seed=1)
    for _ in range(decisions - 1):
        *_, terminated, truncated, _ = env.step(np.array([0, 1]))
        assert not (terminated | truncated).any()
    *_, terminated, truncated, infos = env.step(np.array([0, 1]))
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [True, True])
    assert max(infos["episode_frame_number"]) <= 30  # the next episode has begun


def test_a_finished_game_is_a_termination(play):
    env = play()
    env.reset(seed=1)
    _, (*_, terminated, truncated, _) = to_the_end(env, lambda: 1)
    assert (terminated[0], truncated[0]) == (True, False)


def test_the_final_observation_is_the_episodes_own(play):
    env = play(max_frames=300)
    env.reset(seed=1)
    random = np.random.default_rng(0)
    before, (seen, *_, infos) = to_the_end(env, lambda: random.integers(1, 4))
    (final,) = infos["final_obs"]
    assert (final.shape, final.dtype) == ((84, 84, 4), np.uint8)
    np.testing.assert_array_equal(final[..., :-1], before[0, ..., 1:])
    assert (final != seen[0]).any()
    fresh, _ = play(max_frames=300).reset(seed=1)
    np.testing.assert_array_equal(seen, fresh)  # without no-ops all episodes begin alike


# Films


@pytest.mark.parametrize(("name", "choices"), [("Pong", 6), ("Breakout", 4)])
def test_the_recorder_shows_the_same_episode_in_colour(play, name, choices):
    large = Observation(size=(210, 160), color=True)
    game = {"max_frames": 600, "noop_max": 30, "sticky_actions": 0.25, "life_loss_terminates": True}
    recorder = AtariVideoRecorder(spec(name, **game))
    assert recorder.pictures_per_second == 15
    seen_small, seen_large = play(name, **game), play(name, observation=large, **game)
    scores = []
    for seed in (3, 4):
        random = np.random.default_rng(seed)
        seen_small.reset(seed=np.array([seed]))
        first, _ = seen_large.reset(seed=np.array([seed]))
        frames, expected, score, over = recorder.reset(seed), [first[0]], 0.0, False
        while not over:
            action = random.integers(choices)
            _, rewards, terminated, truncated, infos = seen_small.step(np.array([action]))
            over, score = bool(terminated[0] or truncated[0]), score + rewards[0]
            frames += recorder.step(action, over)
            observation, *_, large_infos = seen_large.step(np.array([action]))
            expected.append(large_infos["final_obs"][0] if over else observation[0])
        assert recorder.score == score
        scores.append(score)
        assert all((frame.shape, frame.dtype) == ((210, 160, 3), np.uint8) for frame in frames)
        np.testing.assert_array_equal(frames, expected)
        grey = cv2.resize(cv2.cvtColor(frames[-1], cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)
        assert np.abs(grey.astype(int) - infos["final_obs"][0, ..., -1]).mean() < 0.1  # what the network saw
    assert any(scores)
    recorder.close()


def test_the_recorder_takes_every_seed_that_the_games_take(play):
    env, recorder = (
        play(observation=Observation(size=(210, 160), color=True), noop_max=30),
        AtariVideoRecorder(spec("Breakout", noop_max=30)),
    )
    for seed in (3, 2**31, 2**32 - 1):
        (frame,) = recorder.reset(seed)
        np.testing.assert_array_equal(frame, env.reset(seed=np.array([seed]))[0][0])
    recorder.close()


def test_the_final_picture_stays_when_another_game_ends(play):
    env = play(count=2)
    env.reset(seed=1)
    kept, random = None, np.random.default_rng(0)
    for _ in range(1000):
        *_, terminated, _, _ = env.step(np.array([1, random.integers(4)]))
        if terminated[0]:
            kept = env.picture(final=True)
        elif terminated[1] and kept is not None:
            break
    assert terminated[1]
    np.testing.assert_array_equal(env.picture(final=True), kept)


# Mistakes


@pytest.mark.parametrize(
    ("typed", "meant"), [("ALE/Pogn-v5", "ALE/Pong-v5"), ("ALE/Pong-v4", "ALE/Pong-v5"), ("ALE/QBert-v5", "ALE/Qbert-v5")]
)
def test_an_unknown_game_names_the_nearest(typed, meant):
    for call in (lambda: actions(AtariSpec(id=typed)), lambda: Builder(catalog.find(typed), Config())):
        with pytest.raises(UserError) as raised:
            call()
        message = str(raised.value)
        assert typed in message
        assert f"did you mean {meant}?" in message
        assert len(message.splitlines()) == 1


@pytest.mark.parametrize("name", ["Pong", "MsPacman", "SpaceInvaders", "Qbert", "MontezumaRevenge", "VideoPinball"])
def test_games_are_found_by_their_published_names(name):
    assert actions(AtariSpec(id=f"ALE/{name}-v5"))[0] == "NOOP"


def test_every_registered_game_is_found():
    registered = {spec.id for spec in gymnasium.registry.values() if spec.id.startswith("ALE/") and spec.id.endswith("-v5")}
    found = {name for name in registered if rom(AtariSpec(id=name))}
    assert found == registered
    assert {"ALE/Pong-v5", "ALE/TicTacToe3D-v5"} <= found
