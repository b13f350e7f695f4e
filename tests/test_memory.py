"""A game that only memory wins: the cue is shown once, and asked for after it is gone."""

import gymnasium
import numpy as np
import pytest
from fakes import changed

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork, read_input_shapes
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.envs.processes.vectors import LocalVectorEnv
from doom_a3c.settings.config import Config
from doom_a3c.settings.network import Network

DELAY = 3


class Recall(gymnasium.Env):
    """Shows a left or right cue, then blanks; the action of the last step earns +1 if it names the cue, else -1."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.time = int(self.np_random.integers(2)), 0
        picture = np.zeros((6, 6, 1), np.uint8)
        picture[:, 3 * self.cue : 3 * self.cue + 3] = 255
        return picture, {}

    def step(self, action):
        self.time += 1
        over = self.time > DELAY
        reward = (1.0 if int(action) == self.cue else -1.0) if over else 0.0
        return np.zeros((6, 6, 1), np.uint8), reward, over, False, {}


def last_scores(core, updates=140):
    config = changed(Config(), gae_lambda=0.95, entropy_cost=0.003, normalize_advantages=True)
    env = LocalVectorEnv([Recall] * 16)
    spec = Network(convolutions=((8, 3, 3),), hidden=(16,), core=core, core_size=16)
    inputs = read_input_shapes(env.single_observation_space)
    network = ACNetwork(spec, inputs, Categorical(2), 1, "global")
    model = GlobalModel(network, Adam(network.parameters))
    local = ACNetwork(spec, inputs, Categorical(2), 1, "local")
    seed = np.random.SeedSequence(1)
    actor = Actor(Player.from_seed(env, Policy(local), seed), rollout_length=12, frame_skip=1, discount=0.99)
    learner = Learner(local, config, 0)
    scores = []
    for _ in range(updates):
        model.pull(local)
        played = actor.play_rollout()
        model.apply(learner.compute_gradients([learner.prepare(played.rollout)], 0).gradients, 1e-2)
        scores += [episode.score for episode in played.stats.episodes]
    actor.close()
    return np.mean(scores[-400:])


@pytest.mark.parametrize("core", list_cores())
def test_only_a_network_with_memory_recalls_the_cue(core):
    low, high = (-0.3, 0.3) if core == "none" else (0.9, 1.0)
    assert low <= last_scores(core) <= high
