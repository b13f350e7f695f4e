"""Evaluation: each game's share of the episodes, faults, and giving up."""

import threading
from functools import partial

import numpy as np
from fakes import FaultyGames, Tape, network

from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.run.evaluation import Evaluator

Steady = partial(Tape, pay=lambda action: 1.0)


def test_evaluation_gives_each_game_its_share_so_that_short_episodes_are_not_favoured():
    env = LocalVectorEnv([partial(Steady, length=length) for length in (2, 9, 2, 9)])
    evaluator = Evaluator(env, network("evaluator"), np.random.SeedSequence(1))
    greedy, sampled = evaluator.evaluate(6)
    evaluator.close()
    assert greedy == sampled
    assert (greedy.mean, greedy.min, greedy.max, greedy.episodes) == (5.5, 2.0, 9.0, 6)


def test_faults_of_evaluation_are_told():
    faults = []
    games = FaultyGames([partial(Steady, length=2)] * 2)
    evaluator = Evaluator(games, network("evaluator"), np.random.SeedSequence(1), 0.0, faults.append)
    evaluator.evaluate(1)
    evaluator.close()
    assert faults == ["server_died"] * 2


def test_evaluation_gives_up_when_told_to():
    stop = threading.Event()
    stop.set()
    evaluator = Evaluator(LocalVectorEnv([Tape] * 2), network("evaluator"), np.random.SeedSequence(1))
    assert evaluator.evaluate(3, stop) is None
    evaluator.close()
