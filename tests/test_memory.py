"""Games that need memory: a cue is shown once and asked for after it is gone."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from fakes import changed

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.inputs import read_input_shapes
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.previous import PreviousEncoder, PreviousSteps
from doom_a3c.agent.rewards import IDENTITY
from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.algorithm.running_moments import NO_MOMENTS
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
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


class Answer(gymnasium.Env):
    """Shows nothing, and pays +1 or -1 in 8 of 9 steps: +1 for not repeating the last action, or for naming the last coin.

    In the second kind a coin decides the sign of each reward, so a network that sees the last reward sees the coin.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, to):
        self.to = to

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.last, self.coin, self.time = None, None, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        right = action != self.last if self.to == "action" else action == self.coin
        gain = 0.0 if self.last is None else 1.0 if right else -1.0
        self.last, self.coin, self.time = action, int(self.np_random.integers(2)), self.time + 1
        noise = 3.0 * self.coin - 1.5 if self.to == "reward" else 0.0
        return np.zeros(1, np.float32), gain + noise, self.time == 9, False, {}


def last_scores(core, updates=140, make_game=Recall, **sees):
    config = changed(Config(), gae_lambda=0.95, entropy_cost=0.003, normalize_advantages=True)
    env = LocalVectorEnv([make_game] * 16)
    spec = Network(convolutions=((8, 3, 3),), hidden=(16,), core=core, core_size=16, **sees)
    encoder = PreviousEncoder(spec, Categorical(2), IDENTITY)
    inputs = read_input_shapes(env.single_observation_space)._replace(previous=encoder.size)
    if sees:
        env = PreviousSteps(env, inputs, encoder, lambda: NO_MOMENTS)
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


@pytest.mark.parametrize("seen", ["action", "reward"])
@pytest.mark.parametrize(("sees", "low", "high"), [(True, 5.0, 8.2), (False, -2.0, 2.0)])
def test_a_memoryless_network_must_see_the_last_step_to_answer(seen, sees, low, high):
    kind = {f"previous_{seen}": True} if sees else {}
    assert low <= last_scores("none", 200, partial(Answer, seen), **kind) <= high
