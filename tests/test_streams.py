"""Random streams: no seed is used for two things."""

import itertools

import numpy as np
import pytest
import registered_toys  # noqa: F401  # registers the coin

from doom_a3c.agent.player import split_seed
from doom_a3c.run.builder import Builder
from doom_a3c.run.play.episode_player import EpisodePlayer
from doom_a3c.run.play.random_play import play_random_episodes
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.streams import Stream, make_seed


@pytest.fixture(scope="module")
def coin():
    """The builder of a game that throws a fair coin at reset and rewards guessing it."""
    return Builder(catalog.find("tests/Coin-v0"), Config())


def words(seed):
    return tuple(seed.generate_state(4))


def test_random_streams_and_game_seeds_are_all_distinct():
    for seed in (0, 7, 2**31 - 1):
        keys = [(), (0,), (0, 0), (0, 0, 0), (1,), (0, 1)]
        streams = [words(make_seed(seed, stream, *each)) for stream in Stream for each in keys]
        games = [words(np.random.SeedSequence([seed + game, *zeros])) for game in range(4) for zeros in ([], [0] * 3)]
        assert len(set(streams)) == len(Stream) * len(keys)
        assert not set(streams) & set(games)


def test_actions_and_games_have_separate_reproducible_streams():
    seed = make_seed(1, Stream.TRAINING, 0, 0)
    (random, games), (again, others) = split_seed(seed, 5), split_seed(seed, 5)
    assert random.bit_generator.state == again.bit_generator.state
    np.testing.assert_array_equal(games, others)
    assert len(set(games.tolist())) == 5
    numbers = random.random(4)
    for one in (seed, *map(np.random.SeedSequence, games.tolist())):
        assert not np.isin(np.random.default_rng(one).random(4), numbers).any()


def test_actions_of_an_episode_are_independent_of_its_game(coin):
    with EpisodePlayer(coin, coin.make_network("player", 0), greedy=False, epsilon=0.0) as player:
        played = [player.play_episode(seed) for seed in range(400)]
    shares = [np.mean([each.episode.score for each in played]), np.mean([each.actions[0] for each in played])]
    assert shares == pytest.approx([0.5, 0.5], abs=0.1)  # four standard deviations


def test_random_play_guesses_half_of_the_coins(coin):
    firsts = list(itertools.chain(*(play_random_episodes(coin, 10, seed) for seed in range(40))))
    assert np.mean(firsts) == pytest.approx(0.5, abs=0.1)
