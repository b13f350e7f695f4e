"""Runs whose actions are numbers, a mixture of choices and numbers, or several choices with a mask, in every engine."""

import numpy as np
import pytest
import registered_toys  # noqa: F401  # registers toys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import doom_a3c as dc
from doom_a3c.run.checkpoints.checkpoint import load

GAMES = ("Pendulum-v1", "tests/Mixture-v0", "tests/Barred-v0")
TOML = """base = "base/gymnasium"
[game]
id = "{}"
[network]
core = "gru"
core_size = 8
hidden = [8]
"""
QUICK = {"rollout_length": 8, "evaluation_episodes": 1, "evaluate_every": 0.0, "seed": 3, "gif_every": 0}


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(game, **changes):
        (tmp_path / "mine.toml").write_text(TOML.format(game))
        return dc.train("mine.toml", **{**QUICK, "frames": 400, "workers": 1, "envs_per_worker": 4, **changes})

    return run


def read_weights(agent):
    return load(agent.folder / "last.ckpt").variables


def have_equal_weights(first, second):
    assert first.keys() == second.keys()
    return all(np.array_equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("game", GAMES)
def test_minibatches_of_sequences_repeat_bit_for_bit_and_so_do_resumed_runs(train, game):
    parts = {"epochs": 2, "minibatches": 2, "sequence_length": 4}
    agents = [train(game, name=name, **parts) for name in ("first", "second")]
    begun = [read_weights(agent) for agent in agents]
    assert have_equal_weights(*begun)
    resumed = [read_weights(dc.resume(agent.folder, frames=800)) for agent in agents]
    assert have_equal_weights(*resumed)
    assert not have_equal_weights(begun[0], resumed[0])


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("changes", [{"workers": 2}, {"engine": "queue", "workers": 2, "epsilon": 0.1}])
def test_every_engine_learns_from_every_kind_of_action(train, game, changes):
    agent = train(game, **changes)
    assert agent.record.counters.frames >= 400
    assert not agent.record.counters.faults
    start = read_weights(train(game, frames=1, learning_rate=1e-30))
    learned = read_weights(agent)
    assert all(np.abs(learned[name] - start[name]).max() > 0 for name in ("policy/kernel", "value/kernel"))


def test_an_agent_acts_and_logs_a_histogram_of_each_part(train, tmp_path):
    agent = train("tests/Mixture-v0")
    assert agent.actions == ["gear=0", "gear=1", "gear=2", "pedals[0]", "pedals[1]"]
    gear, *pedals = agent.act(np.zeros(5, np.float32), policy="sample")[0]
    assert gear in (0, 1, 2)
    assert np.abs(pedals).max() <= 1
    (log,) = (tmp_path / "logs").glob("*/train_0")
    tags = EventAccumulator(str(log)).Reload().Tags()["tensors"]
    assert {tag for tag in tags if tag.startswith("Actions/")} == {f"Actions/Taken {part}" for part in range(3)}


@pytest.mark.parametrize("game", GAMES[1:])
def test_a_film_shows_the_actions(train, tmp_path, game):
    played = train(game).play(episodes=1, out=tmp_path / "result", overlay="plain", record_episodes=1)
    assert len(played.played[0].actions) == 10
    assert list((tmp_path / "result").glob("*.mp4"))
