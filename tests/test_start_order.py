"""Means over training: whether an episode counts does not depend on its length."""

import itertools
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.player import Episode, Player
from doom_a3c.agent.random_policy import RandomPolicy
from doom_a3c.agent.rewards import RewardStats
from doom_a3c.agent.rollouts import Actor
from doom_a3c.agent.start_order import StartOrder
from doom_a3c.engines.updates import count_rollout
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.record.metrics.counters import WINDOW
from doom_a3c.record.metrics.progress import Progress

SHORT, LONG = 3, 60  # steps of an episode, equally likely
MEAN = -(SHORT + LONG) / 2  # of the scores


class Lengthy(gymnasium.Env):
    """Pays -1 a step; its episodes are randomly short or long."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = SHORT if self.np_random.random() < 0.5 else LONG
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), -1.0, self.left == 0, False, {}


def make_actor(seed, games, oldest, index, rollout_length=4):
    env = LocalVectorEnv([Lengthy] * games)
    player = Player.from_seed(env, RandomPolicy(Categorical(2)), np.random.SeedSequence([seed, index]))
    player.choose_counted = StartOrder(games, oldest, index)
    return Actor(player, rollout_length=rollout_length, frame_skip=1, discount=0.9, bootstrap=False)


@pytest.mark.parametrize(("workers", "games"), [(1, 48), (2, 24), (24, 1)])
def test_the_first_means_of_a_run_are_unbiased_by_length(workers, games):
    """The first hundred episodes to end would average -3 to -13."""
    first = []
    for seed in range(12):
        progress, oldest = Progress(), [0] * workers
        actors = [make_actor(seed, games, oldest, index) for index in range(workers)]
        while progress.mean_score is None:
            for actor in actors:
                count_rollout(actor.play_rollout().stats, progress, RewardStats())
        first.append(next(progress.full_means()))
        assert len(progress.scores) == WINDOW
        assert progress.episodes >= WINDOW
    error = np.std(first, ddof=1) / np.sqrt(len(first))
    assert abs(np.mean(first) - MEAN) < 4 * error
    assert np.mean(first) < MEAN / 2


def test_every_finished_episode_of_two_sessions_is_on_the_curve():
    progress = Progress()
    for session in range(2):
        actor = make_actor(session, 16, [0], 0)
        for _ in range(20):
            count_rollout(actor.play_rollout().stats, progress, RewardStats())
        assert progress.uncounted > 0
        progress.restore(progress.counters())  # as when a run is saved and resumed
    curve = progress.counters().curve
    assert [point.episode for point in curve] == list(range(1, progress.episodes + 1))
    assert {point.score for point in curve} == {-SHORT, -LONG}


def step(games, **ends):
    """Returns a step in which the named games end with these scores; None marks an episode cut short by a fault."""
    ended = np.array([f"g{game}" in ends for game in range(games)])
    scores = {game: ends[f"g{game}"] for game in np.flatnonzero(ended)}
    episodes = [Episode(score, 1, 0.0, int(game), score) for game, score in scores.items() if score is not None]
    return SimpleNamespace(episodes=episodes, terminated=ended, truncated=np.zeros(games, np.bool_))


def feed(order, *steps):
    """Returns the scores that count after each step."""
    return [[episode.score for episode in order(one)] for one in steps]


def test_an_episode_waits_for_all_that_began_no_later():
    make = partial(step, 3)
    steps = (make(g0=1.0), make(g0=2.0), make(g1=3.0), make(g2=4.0), make(g1=5.0), make(g0=6.0))
    assert feed(StartOrder(3), *steps) == [[], [], [], [1.0, 3.0, 4.0, 2.0], [], [6.0, 5.0]]


def test_episodes_of_equal_length_do_not_wait():
    assert feed(StartOrder(2), step(2), step(2, g0=1.0, g1=2.0), step(2, g0=3.0, g1=4.0)) == [[], [1.0, 2.0], [3.0, 4.0]]
    assert feed(StartOrder(1), step(1, g0=1.0), step(1, g0=2.0)) == [[1.0], [2.0]]


def test_an_episode_cut_short_by_a_fault_is_not_waited_for():
    assert feed(StartOrder(2), step(2, g0=1.0), step(2, g1=None)) == [[], [1.0]]


def test_a_game_that_never_ends_does_not_stall_the_curve():
    order, count = StartOrder(2), itertools.count()
    counted = feed(order, *(step(2, g0=float(next(count))) for _ in range(150)))
    assert list(itertools.chain(*counted)) == [float(number) for number in range(50)]
