"""Evaluation: each game's share of the episodes, faults, and stopping on request."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import ACTIONS, FaultyGames, Tape, network

from doom_a3c.agent.player import Player
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.run.evaluator import Evaluator
from doom_a3c.run.play import random_play
from doom_a3c.settings.errors import UserError

Steady = partial(Tape, pay=lambda action: 1.0)


def test_evaluation_does_not_favour_short_episodes():
    env = LocalVectorEnv([partial(Steady, length=length) for length in (2, 9, 2, 9)])
    evaluator = Evaluator(env, network("evaluator"), np.random.SeedSequence(1))
    greedy, sampled = evaluator.evaluate(6)
    evaluator.close()
    assert greedy == sampled
    assert (greedy.mean, greedy.min, greedy.max, greedy.episodes) == (5.5, 2.0, 9.0, 6)


@pytest.mark.parametrize(("policy", "greedy"), [("greedy", True), ("sample", False)])
def test_a_single_policy_plays_its_share_in_every_game(monkeypatch, policy, greedy):
    greedy_steps, step = [], Player.step
    monkeypatch.setattr(
        Player, "step", lambda player, epsilons, likeliest: greedy_steps.append(likeliest) or step(player, epsilons)
    )
    env = LocalVectorEnv([partial(Steady, length=length) for length in (2, 9, 2, 9)])
    evaluator = Evaluator(env, network("evaluator"), np.random.SeedSequence(1))
    found = evaluator.play(policy, 6)  # the first two games play two each
    assert (found.mean, found.min, found.max, found.episodes) == (5.5, 2.0, 9.0, 6)
    assert np.all(np.array(greedy_steps) == greedy)
    evaluator.close()


def test_faults_during_evaluation_are_reported():
    faults = []
    games = FaultyGames([partial(Steady, length=2)] * 2)
    evaluator = Evaluator(games, network("evaluator"), np.random.SeedSequence(1), 0.0, faults.append)
    evaluator.evaluate(1)
    evaluator.close()
    assert faults == ["server_died"] * 2


def test_evaluation_stops_on_request():
    stop = threading.Event()
    stop.set()
    evaluator = Evaluator(LocalVectorEnv([Tape] * 2), network("evaluator"), np.random.SeedSequence(1))
    assert evaluator.evaluate(3, stop) is None
    assert evaluator.play("greedy", 3, stop) is None
    evaluator.close()


@pytest.mark.parametrize(
    ("seconds", "asked", "cure"), [(300, 12, "--random-episodes 0"), (700, 25, "--random-episodes 20")]
)
def test_random_play_that_is_cut_off_gives_no_biased_score(monkeypatch, seconds, asked, cure):
    clock = [0.0]
    monkeypatch.setattr(random_play.time, "monotonic", lambda: clock[0])

    def tick():
        clock[0] += 0.1

    def toys(games):
        """Games that pay 1 a step; half of them have episodes of 30 steps, the others of 320."""
        lengths = [30 if game % 2 else 320 for game in range(games)]
        return LocalVectorEnv([partial(Steady, length=length, before_step=tick) for length in lengths])

    builder = SimpleNamespace(make_evaluation_env=toys, distribution=ACTIONS)
    with pytest.raises(UserError, match=rf"of {asked} random episodes .* shorter .*{cure}"):
        random_play.play_random_episodes(builder, asked, 1, seconds=seconds)
    scores = random_play.play_random_episodes(builder, asked - asked % 10, 1, seconds=1e9)
    assert np.mean(scores) == (30 + 320) / 2
