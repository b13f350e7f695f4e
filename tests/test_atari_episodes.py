"""Atari games on the real Arcade Learning Environment: rewards, episode ends and recordings."""

import itertools

import cv2
import numpy as np
import pytest
from atari_games import course, games, some, spec, to_the_end

from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Decision
from doom_a3c.agent.rollouts import Actor
from doom_a3c.envs.atari import AtariVideoRecorder
from doom_a3c.settings.games import Observation
from doom_a3c.settings.interface import LIFE_LOST


@pytest.fixture
def play(closing):
    """Makes games; closes them afterwards."""
    return lambda *arguments, **named: closing(games(*arguments, **named))


def test_rewards_are_raw_game_points(play):
    env = play("SpaceInvaders", count=2)
    _, paid = course(env, 1, some(300, 2, choices=6))
    assert paid.dtype == np.float64
    assert {0.0, 5.0, 10.0} <= set(paid.flat)
    assert all(reward % 5 == 0 for reward in paid.flat)


def test_a_lost_life_is_an_end_only_for_learning(play):
    env = play(count=2, life_loss_terminates=True)
    seen, infos = env.reset(seed=1)
    lives, lost, ends = infos["lives"].copy(), 0, 0
    assert lives.tolist() == [5, 5]
    random = np.random.default_rng(0)
    for _ in range(500):
        before, (seen, _, terminated, truncated, infos) = seen, env.step(np.array([1, random.integers(4)]))
        over = terminated | truncated
        np.testing.assert_array_equal(infos[LIFE_LOST], (infos["lives"] < lives) & ~over)
        continues = ~over
        np.testing.assert_array_equal(seen[continues][..., :-1], before[continues][..., 1:])  # nothing is reset
        lives, lost, ends = infos["lives"].copy(), lost + infos[LIFE_LOST], ends + over
    assert ends.min() >= 1
    assert (lost >= 4 * ends).all()  # five lives, and the last one ends the game
    assert (lost < 4 * (ends + 1) + 1).all()


def test_infos_have_no_life_lost_key_without_the_setting(play):
    env = play()
    env.reset(seed=1)
    infos = [env.step(np.array([1]))[4] for _ in range(130)]
    assert any(info["lives"][0] < 5 for info in infos)
    assert not any(LIFE_LOST in info for info in infos)


class Firing:
    """A policy that always fires."""

    distribution = Categorical(4)

    def initial_state(self, batch_size):
        return ()

    def __call__(self, observations, resets, core_state):
        logits = np.full((len(resets), 4), -1e6, np.float32)
        logits[:, 1] = 0
        return Decision(logits, np.zeros(len(resets), np.float32), (), 0)


def test_an_actors_episode_spans_all_lives_with_ends_between(play):
    env = play(life_loss_terminates=True)
    env.reset(seed=np.random.SeedSequence(3).generate_state(1))
    length = 1 + next(t for t in itertools.count() if env.step(np.array([1]))[2][0])
    seed = np.random.SeedSequence(3)
    actor = Actor(Player.from_seed(env, Firing(), seed), rollout_length=length, frame_skip=4, discount=0.9)
    rollout, _, stats = actor.play_rollout()
    (episode,) = stats.episodes
    assert episode.length == length
    assert rollout.ends.sum() == 5
    np.testing.assert_array_equal(rollout.discounts, np.where(rollout.ends, np.float32(0), np.float32(0.9)))
    assert np.flatnonzero(rollout.resets).tolist() == [0, length]  # the recurrent state survives a lost life


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


def test_the_final_observation_belongs_to_the_ended_episode(play):
    env = play(max_frames=300)
    env.reset(seed=1)
    random = np.random.default_rng(0)
    before, (seen, *_, infos) = to_the_end(env, lambda: random.integers(1, 4))
    (final,) = infos["final_obs"]
    assert (final.shape, final.dtype) == ((84, 84, 4), np.uint8)
    np.testing.assert_array_equal(final[..., :-1], before[0, ..., 1:])
    assert (final != seen[0]).any()
    fresh, _ = play(max_frames=300).reset(seed=1)
    np.testing.assert_array_equal(seen, fresh)  # without no-ops all episodes start alike


@pytest.mark.parametrize(("name", "choices"), [("Pong", 6), ("Breakout", 4)])
def test_the_recorder_shows_the_same_episode_in_colour(play, name, choices):
    large = Observation(size=(210, 160), color=True)
    game = {"max_frames": 600, "noop_max": 30, "sticky_actions": 0.25, "life_loss_terminates": True}
    recorder = AtariVideoRecorder(spec(name, **game, max_pool=False))  # it shows both frames anyway
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
        assert all((frame.shape, frame.dtype) == ((420, 320, 3), np.uint8) for frame in frames)
        frames = [frame[::2, ::2] for frame in frames]
        np.testing.assert_array_equal(frames, expected)
        grey = cv2.resize(cv2.cvtColor(frames[-1], cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)
        assert np.abs(grey.astype(int) - infos["final_obs"][0, ..., -1]).mean() < 0.1  # the last observation
    assert any(scores)
    recorder.close()


def test_the_recorder_accepts_every_seed_the_games_accept(play):
    env, recorder = (
        play(observation=Observation(size=(210, 160), color=True), noop_max=30),
        AtariVideoRecorder(spec("Breakout", noop_max=30)),
    )
    for seed in (3, 2**31, 2**32 - 1):
        (frame,) = recorder.reset(seed)
        np.testing.assert_array_equal(frame[1::2, 1::2], env.reset(seed=np.array([seed]))[0][0])
    recorder.close()


def test_a_reset_of_one_game_keeps_the_frames_of_the_others(play):
    env, other = play("Pong", count=2), play("Pong", count=2)
    actions = some(60, 2, choices=6)
    seen = course(env, 1, actions)[0][-1]
    course(other, 1, actions)
    assert (seen[1, ..., 0] != seen[1, ..., -1]).any()
    after, _ = env.reset(options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(after[1], seen[1])
    assert (after[0, ..., 0] == after[0, ..., -1]).all()
    for choice in actions[:5]:
        np.testing.assert_array_equal(env.step(choice)[0][1], other.step(choice)[0][1])


def test_begin_again_restarts_one_game_and_not_the_others(play):
    env, other, fresh = (play(count=count, noop_max=30) for count in (2, 2, 1))
    actions = some(40, 2)
    course(env, 1, actions)
    course(other, 1, actions)
    before = env.step(actions[0])[0].copy()
    other.step(actions[0])
    observations, infos = env.begin_again()
    np.testing.assert_array_equal(observations[1], before[1])
    np.testing.assert_array_equal(observations[0], fresh.reset(seed=infos["seed"])[0][0])
    for choice in actions:
        seen, alone = env.step(choice), fresh.step(choice[:1])
        np.testing.assert_array_equal(seen[0][0], alone[0][0])
        np.testing.assert_array_equal(seen[0][1], other.step(choice)[0][1])
