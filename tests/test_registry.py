"""Gymnasium's registry has every scenario, without importing TensorFlow."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from commands import ROOT
from gymnasium.utils.env_checker import check_env

from doom_a3c.envs.registry import list_ids

GAMES = ["doom_a3c/Basic-v0", "doom_a3c/MyWayHome-v0", "doom_a3c/Pong-v0", "doom_a3c/Cartpole-v0"]


def test_every_scenario_has_an_id():
    known = list_ids()
    assert known["doom_a3c/HealthGatheringSupreme-v0"] == "health_gathering_supreme"
    assert len(known) == len(list((ROOT / "scenarios").glob("*.toml")))
    assert known.keys() <= gymnasium.registry.keys()


@pytest.mark.parametrize("order", ["import doom_a3c, gymnasium", "import gymnasium, doom_a3c", "import gymnasium"])
def test_the_order_of_imports_does_not_matter(order, tmp_path):
    id_ = "doom_a3c:doom_a3c/Basic-v0" if order == "import gymnasium" else "doom_a3c/Basic-v0"
    code = f"{order}, sys; e = gymnasium.make({id_!r}); print(e.reset(seed=1)[0].shape, 'tensorflow' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "(84, 84, 1) False\n", result.stderr


@pytest.mark.parametrize("id_", GAMES)
def test_a_game_passes_gymnasiums_environment_checker(id_, closing):
    env = closing(gymnasium.make(id_))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(not having a spec|render)")
        check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    assert env.render().shape[2] == 3


@pytest.mark.parametrize("id_", GAMES)
def test_games_can_be_stepped_as_a_vector(id_, closing):
    env = closing(gymnasium.make_vec(id_, num_envs=3))
    observations, _ = env.reset(seed=1)
    first = observations["pixels"] if isinstance(observations, dict) else observations
    assert len(first) == 3
    _, rewards, terminated, _, _ = env.step(np.zeros(3, int))
    assert rewards.shape == terminated.shape == (3,)


def test_the_seed_decides_a_whole_episode(closing):
    ends = []
    for _ in range(2):
        env = closing(gymnasium.make("doom_a3c/Pong-v0"))
        seen = [env.reset(seed=3)[0]]
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(0)
            seen.append(observation)
            over = terminated or truncated
        ends.append(seen)
        assert reward == -1.0
    assert (np.array(ends[0]) == np.array(ends[1])).all()


def test_the_frame_skip_can_be_set(closing):
    one, four = (closing(gymnasium.make("doom_a3c/Basic-v0", frame_skip=skip)) for skip in (1, 4))
    rewards = []
    for env in (one, four):
        env.reset(seed=1)
        rewards.append(env.step(0)[1])
    assert rewards == [-1.0, -4.0]
