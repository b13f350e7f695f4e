"""Films of games in training: Doom's episodes are played again, in colour, by their seeds and actions."""

import os
import signal

import numpy as np
import pytest
from run_fakes import settings

from doom_a3c.envs.games import games_of
from doom_a3c.record.overlay import Moment, Overlay
from doom_a3c.record.rate_limiter import RateLimiter
from doom_a3c.record.recording import RecordedVectorEnv, Recording
from doom_a3c.run.builder import Builder
from doom_a3c.run.film_maker import FilmMaker


@pytest.fixture(scope="module")
def basic():
    scenario, config = settings("basic")
    return Builder(scenario, config, games_of(scenario.game, scenario.observation))


@pytest.fixture(scope="module")
def recordings(basic):
    """The first two episodes of a game, that of a vector of two, played at random."""
    found, random = [], np.random.default_rng(0)
    env = RecordedVectorEnv(basic.training_env(2), 0, 1, RateLimiter(0), found.append, replayed=basic.replayed)
    env.reset(seed=np.array([5, 6]))
    while len(found) < 2:
        env.step(random.integers(3, size=2))
    env.close()
    return found


def test_an_episode_is_played_again_in_colour_one_picture_a_step(basic, recordings, closing):
    maker = closing(FilmMaker(basic))
    for recording in recordings:
        assert recording.pictures == []
        pictures = maker(recording)
        assert len(pictures) == len(recording.actions)  # the frame that ends it has none
        assert {picture.shape for picture in pictures} == {(120, 160, 3)}
        assert any((picture[..., 0] != picture[..., 2]).any() for picture in pictures)


def test_another_course_makes_no_film(basic, recordings, closing):
    maker = closing(FilmMaker(basic))
    assert maker(recordings[0]._replace(score=recordings[0].score + 1.0)) == []
    assert maker(recordings[0]) != []


def test_a_game_that_dies_costs_its_film_alone(basic, recordings, closing):
    maker = closing(FilmMaker(basic))
    assert maker(recordings[0])
    os.kill(maker._replayer._process.pid, signal.SIGKILL)
    assert maker(recordings[0]) == []
    assert maker(recordings[0])


def test_what_belongs_to_each_step_is_to_be_seen_beside_it(basic):
    pictures = [np.full((84, 84, 3), value, np.uint8) for value in (10, 20, 30)]
    moment = Moment(None, [], np.array([0.2, 0.5, 0.3]), 1, 0.4, 1, 0.0, 0.0)
    moments = [moment, moment._replace(step=2, score=5.0)]
    shown = FilmMaker(basic)(Recording(pictures, 5.0, 0, 0, None, [1, 1], moments))
    assert [picture[0, 0, 0] for picture in shown] == [10, 30]  # large ones are fewer, the last is always there
    first, last = (picture[:, -320:] for picture in shown)
    overlay = Overlay(basic.actions)
    assert (first == overlay.panel(moments[0])).all()
    assert (last == overlay.panel(moments[1])).all()
