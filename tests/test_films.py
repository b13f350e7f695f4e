"""Films of games in training: Doom and Atari episodes are replayed in colour from their seeds and actions."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from counting import CountingEnv, vector
from run_fakes import settings

from benchmarks.common.processes import alive
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.random_policy import RandomPolicy
from doom_a3c.envs.games import make_game_factory
from doom_a3c.record.films import recording as recording_module
from doom_a3c.record.films.overlay import Overlay, StepView
from doom_a3c.record.films.recording import EpisodeRecorder, LostFilmError, Recording
from doom_a3c.record.metrics.rate_limiter import RateLimiter
from doom_a3c.run import film_maker
from doom_a3c.run.action_views import view_action
from doom_a3c.run.actors import FilmedPlayer
from doom_a3c.run.builder import Builder
from doom_a3c.run.film_maker import FilmMaker


@pytest.fixture(scope="module")
def basic():
    scenario, config = settings("basic")
    return Builder(scenario, config, make_game_factory(scenario.game, scenario.observation))


def step(env, recorder, actions):
    """Plays and records a step; returns the observations and whether the first game's episode ended."""
    observations, rewards, terminated, truncated, infos = env.step(actions)
    ended = bool(terminated[0] or truncated[0])
    recorder.add(int(actions[0]), float(rewards[0]), ended)
    return recorder.begin(observations, infos) if ended else observations, ended


def played(builder, episodes):
    """Returns recordings of the first episodes of one game in a vector of two, played at random."""
    found, random = [], np.random.default_rng(0)
    env = builder.make_training_env(2)
    recorder = EpisodeRecorder(env, 0, 1, RateLimiter(0), found.append, replayed=builder.replayed)
    recorder.begin(*env.reset(seed=np.array([5, 6])))
    while len(found) < episodes:
        step(env, recorder, random.integers(builder.distribution.size, size=2))
    env.close()
    return found


@pytest.fixture(scope="module")
def recordings(basic):
    return played(basic, 2)


def test_an_episode_replays_in_colour_with_one_picture_per_step(basic, recordings, closing):
    maker = closing(FilmMaker(basic))
    for recording in recordings:
        assert recording.pictures == []
        pictures = list(maker(recording))
        assert len(pictures) == len(recording.actions)  # the frame that ends it has no picture
        assert {picture.shape for picture in pictures} == {(120, 160, 3)}
        assert any((picture[..., 0] != picture[..., 2]).any() for picture in pictures)


def test_a_replay_that_differs_makes_no_film(basic, recordings, closing):
    maker = closing(FilmMaker(basic))
    with pytest.raises(LostFilmError, match="its score is"):
        list(maker(recordings[0]._replace(score=recordings[0].score + 1.0)))
    assert list(maker(recordings[0]))


def test_successive_atari_episodes_replay_from_their_recordings(closing):
    scenario, config = settings("ALE/Breakout-v5")
    scenario = replace(scenario, game=replace(scenario.game, sticky_actions=0.25, noop_max=30, max_frames=400))
    builder = Builder(scenario, config, make_game_factory(scenario.game, scenario.observation))
    maker = closing(FilmMaker(builder))
    recordings = played(builder, 3)
    assert len({recording.seed for recording in recordings}) == 3
    for recording in recordings:
        pictures = list(maker(recording))
        assert len(pictures) == len(recording.actions) + 1
        assert {picture.shape for picture in pictures} == {(210, 160, 3)}
        assert any((picture[..., 0] != picture[..., 2]).any() for picture in pictures)


def test_recording_does_not_change_the_games(closing):
    scenario, config = settings("ALE/Breakout-v5")
    builder = Builder(scenario, config, make_game_factory(replace(scenario.game, max_frames=400), scenario.observation))
    courses = []
    for limiter in (RateLimiter(0), RateLimiter(10**6)):
        env = closing(builder.make_training_env(2))
        recorder = EpisodeRecorder(env, 0, 2, limiter, lambda recording: None, replayed=True)
        seen = recorder.begin(*env.reset(seed=np.array([5, 6])))
        course, ended, random = [seen.copy()], 0, np.random.default_rng(0)
        while ended < 3:
            seen, over = step(env, recorder, random.integers(4, size=2))
            course.append(seen.copy())
            ended += over
        courses.append(course)
    assert len(courses[0]) == len(courses[1])
    assert all((one == other).all() for one, other in zip(*courses, strict=True))


class Drawn(CountingEnv):
    """Draws its pictures."""

    def picture(self, final):
        return np.zeros((2, 2, 3), np.uint8)


@pytest.mark.parametrize(("fault", "episodes"), [(None, [0, 1]), ("server_died", [])])
def test_an_episode_that_a_fault_cuts_short_makes_no_film(fault, episodes):
    env, found = vector([Drawn(fault=fault, endings=("truncated",))]), []
    recorder = EpisodeRecorder(env, 0, 1, RateLimiter(0), found.append)
    player = FilmedPlayer(env, RandomPolicy(Categorical(3)), np.random.SeedSequence(0), recorder)
    for _ in range(8):
        player.step(np.ones(1, np.float32))
    assert [recording.episode for recording in found] == episodes


def test_closing_the_film_maker_ends_a_film_in_progress(basic, recordings):
    maker = FilmMaker(basic)
    film = maker(recordings[0])
    next(film)
    replayer = maker._replayer
    maker.close()
    assert not alive(replayer._process.pid)
    for pictures in (film, maker(recordings[0])):  # and no other game is started
        with pytest.raises(LostFilmError, match="the run has ended"):
            list(pictures)
    assert maker._replayer is None


def test_a_game_that_dies_costs_only_its_own_film(basic, recordings, closing):
    maker = closing(FilmMaker(basic))
    assert list(maker(recordings[0]))
    os.kill(maker._replayer._process.pid, signal.SIGKILL)
    with pytest.raises(LostFilmError):
        list(maker(recordings[0]))
    assert list(maker(recordings[0]))


def test_a_long_film_keeps_its_first_steps_and_its_last(basic, monkeypatch):
    for module in (film_maker, recording_module):
        monkeypatch.setattr(module, "MAX_PICTURES", 4)
    moment = StepView(None, [], view_action(Categorical(3), np.zeros(3), np.array(1)), 0.4, 1, 0.0, 0.0)
    for steps in range(1, 9):
        pictures = [np.full((84, 84, 3), 10 * value, np.uint8) for value in range(steps + 1)]
        moments = [moment._replace(step=step) for step in range(1, steps + 1)]
        kept = [each for each in moments if each.step < 4 or each.step == steps]  # as the recorder keeps them
        shown = list(FilmMaker(basic)(Recording(pictures, 0.0, 0, 0, None, [1] * steps, kept)))
        seen = [int(picture[0, 0, 0]) // 10 for picture in shown]
        assert seen == [*range(steps + 1)][:3] + [steps] * (steps >= 3)
        overlay = Overlay(basic.actions)
        panels = [overlay.panel(each) for each in kept]
        for value, picture in zip(seen, shown, strict=True):
            assert (picture[:, -320:] == panels[-1 if value == steps else value]).all()


def test_the_overlay_shows_each_step_beside_its_picture(basic):
    pictures = [np.full((84, 84, 3), value, np.uint8) for value in (10, 20, 30)]
    moment = StepView(None, [], view_action(Categorical(3), np.zeros(3), np.array(1)), 0.4, 1, 0.0, 0.0)
    moments = [moment, moment._replace(step=2, score=5.0)]
    shown = list(FilmMaker(basic)(Recording(pictures, 5.0, 0, 0, None, [1, 1], moments)))
    assert [picture[0, 0, 0] for picture in shown] == [10, 20, 30]
    overlay = Overlay(basic.actions)
    panels = [overlay.panel(moment) for moment in moments]
    for picture, panel in zip(shown, [*panels, panels[1]], strict=True):  # the last picture has no step
        assert (picture[:, -320:] == panel).all()
