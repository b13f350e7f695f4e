"""Environments as users write them: unexpected infos and missing pictures do not end training."""

import json
import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from commands import SMALL, call, play
from fakes import until
from registered_toys import LENGTH, Talking
from toys import Lively

from benchmarks.common.processes import alive
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import Actor
from doom_a3c.envs import registered
from doom_a3c.envs.games import make_game_factory
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.run.builder import Builder
from doom_a3c.run.launch import make_new_run
from doom_a3c.settings.games import GymnasiumSpec, Observation

pytestmark = pytest.mark.tools

KINDS = pytest.mark.parametrize("kind", [LocalVectorEnv, ProcessVectorEnv])
SEEN = Observation(size=(8, 8))


def game(name):
    return GymnasiumSpec(id=f"registered_toys:tests/{name}-v0", frame_skip=1)


def played(env, network, steps):
    """Returns an actor's first rollout of an environment."""
    random = np.random.SeedSequence(0)
    actor = Actor(Player.from_seed(env, Policy(network), random), rollout_length=steps, frame_skip=1, discount=0.9)
    return actor.play_rollout()


@KINDS
def test_infos_of_an_environment_are_ignored(closing, make_network, kind):
    env = closing(kind([partial(registered.make, game("Talking"), SEEN)] * 2))
    assert env.reset(seed=1)[1] == {}
    rollout, _, stats = played(env, make_network(), LENGTH + 2)
    assert np.flatnonzero(rollout.ends[:, 0]).tolist() == [LENGTH - 1]
    np.testing.assert_array_equal(rollout.discounts == 0, rollout.ends)
    assert stats.faults == []
    assert [episode.length for episode in stats.episodes] == [LENGTH, LENGTH]


@KINDS
def test_unfiltered_infos_are_ignored_too(closing, make_network, kind):
    env = closing(kind([partial(Talking, shape=(8, 8, 1))]))
    player = Player(env, Policy(make_network()), np.random.default_rng(0))
    assert (player.faults, player.cut_short.tolist()) == ([], [False])
    for time in range(1, LENGTH + 1):
        step = player.step(np.zeros(1, np.float32))
        assert step.life_lost.tolist() == [False]
        assert (list(step.faults), step.cut_short.tolist(), len(step.episodes)) == ([], [False], time == LENGTH)


@KINDS
def test_a_lost_life_is_reported_by_every_kind_of_vector(closing, make_network, kind):
    env = closing(kind([partial(Lively, 0, 4), partial(Lively, 1, 3)]))
    player = Player(env, Policy(make_network()), np.random.default_rng(0), [1, 2])
    lost = [player.step(np.zeros(2, np.float32)).life_lost.tolist() for _ in range(5)]
    assert lost == [[False, False], [True, True], [False, False], [False, False], [False, True]]


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize(
    ("name", "rate", "draws"),
    [("Plain", 30, False), ("Picky", 30, False), ("Blind", 20, False), ("Unseen", 20, False), ("Numbers", 20, True)],
)
def test_missing_pictures_are_known_before_training(closing, name, rate, draws, processes):
    games = make_game_factory(game(name), SEEN, processes)
    facts = games.describe()
    assert (facts.draws, games.steps_per_second) == (draws, rate)
    assert facts.title.startswith(f"tests/{name}-v0, ")
    env = closing(games.make_vector(1, limited=True))
    env.reset(seed=1)
    for _ in range(LENGTH):
        assert (env.picture() is not None) == draws
        env.step(np.array([0]))
    assert (env.picture(final=True) is not None) == draws


@pytest.mark.parametrize("name", ["Grey", "Floats"])
def test_the_warning_names_the_required_picture_format(name):
    record = make_new_run({"scenario": f"registered_toys:tests/{name}-v0"})
    warning = Builder(record.scenario, record.config).missing_pictures
    assert all(word in warning for word in (f"tests/{name}-v0", "rgb_array", "uint8", "[height, width, 3]"))


PLAYS = """
import time
from doom_a3c.envs.games import make_game_factory
from doom_a3c.run.builder import Builder
from doom_a3c.run.launch import make_new_run
from doom_a3c.settings.games import GymnasiumSpec, Observation
games = make_game_factory(GymnasiumSpec(id="unusable_toys:Starts-v0"), Observation(), {processes})
env = games.make_vector(1, limited=True)
env.reset(seed=1)
print("plays", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("processes", [0, 1])
def test_only_in_process_games_leave_programs_after_a_kill(root, tmp_path, processes):
    path = os.pathsep.join(map(str, (root, root / "tests")))
    with subprocess.Popen(
        [sys.executable, "-c", PLAYS.format(processes=processes)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    ) as trainer:
        assert trainer.stdout.readline() == b"plays\n"
        programs = [int(path.name.removeprefix("program-")) for path in tmp_path.glob("program-*")]
        living = [program for program in programs if alive(program)]  # without those of the game made for inspection
        trainer.kill()
    assert living
    if processes:
        until(lambda: not any(map(alive, living)), "their end")
    else:
        assert all(map(alive, living))
        for program in living:
            os.kill(program, signal.SIGKILL)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_an_environment_without_pictures_trains_with_one_warning(root, tmp_path, monkeypatch, processes):
    monkeypatch.setenv("PYTHONPATH", str(root / "tests"), prepend=os.pathsep)
    scenario = ("--scenario", "registered_toys:tests/Plain-v0", "--game-processes", processes)
    result = call("train", *scenario, *SMALL, "--frames", 2000, "--summary", "summary.json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "training Plain_v0: tests/Plain-v0, 2 actions; 2 workers x 2 games" in result.stdout
    assert result.stdout.count("no RGB picture") == 1
    assert not list(tmp_path.rglob("*.gif"))
    assert json.loads((tmp_path / "summary.json").read_text())["mean_100"] == LENGTH
    result = play(tmp_path, *scenario[:2], "--episodes", 1, "--out", "result")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("no RGB picture") == 1
    assert not list(tmp_path.rglob("*.mp4"))
