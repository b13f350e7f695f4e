"""`doom_a3c.envs` with other projects' learners: scripts, each run in its own process, that never import TensorFlow.

python tests/without_tensorflow.py imports|checks|accepted|learns
"""

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for name in ("tensorflow", "keras"):
    sys.modules[name] = None  # imports fail, both from this program and, by way of TensorBoard, from torch


def make():
    """Returns a game of Doom, made as any user would."""
    from doom_a3c.envs.doom.env import DoomEnv
    from doom_a3c.settings import catalog

    scenario = catalog.find("basic")
    return DoomEnv(scenario.game, scenario.observation)


def imports():
    """Imports every module of doom_a3c.envs."""
    import doom_a3c.envs

    names = [module.name for module in pkgutil.walk_packages(doom_a3c.envs.__path__, "doom_a3c.envs.")]
    for name in names:
        importlib.import_module(name)
    return len(names)


def checks():
    """Runs Gymnasium's checker on a game of Doom."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec")  # it is not registered
        env = make()
        check_env(env)
    env.close()
    return "passed"


def accepted():
    """Runs stable-baselines3's checker on games with every kind of action and observation."""
    from stable_baselines3.common.env_checker import check_env

    from doom_a3c.envs.registry import make as make_game

    names = ["minigrid:MiniGrid-Empty-5x5-v0", "Taxi-v4", "Blackjack-v1"]
    names += [f"registered_toys:tests/{toy}-v0" for toy in ("Rover", "Mixture")]
    names += ["pendulum", "mountain_car", "lunar_lander", "bipedal_walker", "car_racing", "cartpole"]
    names += ["basic", "deathmatch", "cig_bots", "pong"]
    for name in names:
        env = make_game(name)
        check_env(env)
        env.close()
    return len(names)


def learns():
    """Trains stable-baselines3's PPO for 1,000 steps."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # more threads do not help such a small batch
    model = PPO("CnnPolicy", make(), n_steps=250, batch_size=50, n_epochs=1, device="cpu", seed=0)
    model.learn(1000)
    model.get_env().close()
    return model.num_timesteps, len(model.ep_info_buffer) > 10


print({"imports": imports, "checks": checks, "accepted": accepted, "learns": learns}[sys.argv[1]]())
assert sys.modules["tensorflow"] is None
