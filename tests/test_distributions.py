"""Actions of other spaces than Discrete: two more distributions, registered, drawn from, learned with."""

from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from by_hand import assert_close
from counting import vector
from fakes import changed
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from scipy.stats import norm

from doom_a3c.agent.distributions import DISTRIBUTIONS, Categorical, explore, find_distribution
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork, read_input_shapes
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.algorithm.returns import generalized_advantages
from doom_a3c.algorithm.vtrace import vtrace
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.network import Network


@dataclass(frozen=True)
class Product:
    """Several choices at once, independent of each other: actions int [B, D]."""

    sizes: tuple[int, ...]
    action_type: type[np.generic] = np.int32

    @property
    def size(self):
        return sum(self.sizes)

    @property
    def action_shape(self):
        return (len(self.sizes),)

    @property
    def volume(self):
        return float(np.prod(self.sizes))

    @property
    def parts(self):
        return [Categorical(size) for size in self.sizes]

    def each(self, logits):
        return zip(self.parts, np.split(logits, np.cumsum(self.sizes)[:-1], axis=1), strict=True)

    def sample(self, logits, random):
        return np.stack([part.sample(its, random) for part, its in self.each(logits)], axis=1)

    def mode(self, logits):
        return np.stack([part.mode(its) for part, its in self.each(logits)], axis=1)

    def sample_uniform(self, count, random):
        return np.stack([part.sample_uniform(count, random) for part in self.parts], axis=1)

    def log_prob_np(self, logits, actions):
        return sum(part.log_prob_np(its, actions[:, i]) for i, (part, its) in enumerate(self.each(logits)))

    def log_prob(self, logits, actions):
        every = zip(self.parts, tf.split(logits, self.sizes, axis=1), tf.unstack(actions, axis=1), strict=True)
        return tf.add_n([part.log_prob(its, chosen) for part, its, chosen in every])

    def entropy(self, logits):
        every = zip(self.parts, tf.split(logits, self.sizes, axis=1), strict=True)
        return tf.add_n([part.entropy(its) for part, its in every])

    def kl_from_uniform(self, logits):
        every = zip(self.parts, tf.split(logits, self.sizes, axis=1), strict=True)
        return tf.add_n([part.kl_from_uniform(its) for part, its in every])


@dataclass(frozen=True)
class Gaussian:
    """Independent normal numbers, D means and D logarithms of deviations: actions float [B, D]. Uniform between bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    action_type: type[np.generic] = np.float32

    @property
    def size(self):
        return 2 * len(self.low)

    @property
    def action_shape(self):
        return (len(self.low),)

    @property
    def volume(self):
        return float(np.prod(np.subtract(self.high, self.low)))

    def sample(self, logits, random):
        mean, log_deviation = np.split(logits, 2, axis=1)
        return (mean + np.exp(log_deviation) * random.normal(size=mean.shape)).astype(np.float32)

    def mode(self, logits):
        return np.split(logits, 2, axis=1)[0]

    def sample_uniform(self, count, random):
        return random.uniform(self.low, self.high, (count, len(self.low)))

    def log_prob_np(self, logits, actions):
        mean, log_deviation = np.split(logits, 2, axis=1)
        scaled = (actions - mean) * np.exp(-log_deviation)
        return -np.sum(0.5 * scaled**2 + log_deviation + 0.5 * np.log(2 * np.pi), axis=1)

    def log_prob(self, logits, actions):
        mean, log_deviation = tf.split(logits, 2, axis=1)
        scaled = (actions - mean) * tf.exp(-log_deviation)
        return -tf.reduce_sum(0.5 * scaled**2 + log_deviation + 0.5 * np.log(2 * np.pi), axis=1)

    def entropy(self, logits):
        return tf.reduce_sum(tf.split(logits, 2, axis=1)[1] + 0.5 * np.log(2 * np.pi * np.e), axis=1)

    def kl_from_uniform(self, logits):
        return tf.zeros(tf.shape(logits)[:1])  # there is no uniform distribution over all numbers


def gaussian_over(space):
    return Gaussian(tuple(space.low.tolist()), tuple(space.high.tolist()))


@pytest.fixture
def registered(monkeypatch):
    """Registers the distributions above."""
    monkeypatch.setitem(DISTRIBUTIONS, MultiDiscrete, lambda space: Product(tuple(space.nvec.tolist())))
    monkeypatch.setitem(DISTRIBUTIONS, Box, gaussian_over)


class Task(gymnasium.Env):
    """Episodes of one step: shows one of two cues, and asks for the action that belongs to it."""

    observation_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.cue], {}

    def step(self, action):
        assert action.shape == self.action_space.shape
        return np.zeros(2, np.float32), self.score(action), True, False, {}


class Switches(Task):
    """Asks for three switches in the right positions, and pays for each."""

    action_space = MultiDiscrete([3, 2, 4])
    start, best = 1 / 3 + 1 / 2 + 1 / 4, 3.0  # mean scores of a uniform policy, and of the best one
    right = ((2, 0, 1), (0, 1, 3))

    def score(self, action):
        return float(np.sum(action == np.array(self.right[self.cue])))


class Levers(Task):
    """Asks for two levers near the right places; the squared distance costs."""

    action_space = Box(np.float32([-2, -1]), np.float32([2, 1]))
    start, best = -2 - 0.5, 0.0  # of two standard normal numbers: their variances and squared means
    right = ((0.5, -0.5), (-0.5, 0.5))

    def score(self, action):
        return -float(np.sum((action - np.array(self.right[self.cue])) ** 2))


TASKS = [Switches, Levers]


def closed_forms(task, logits, actions):
    """Returns log-probabilities [N] and entropies [N] in float64 by the textbook."""
    logits = np.float64(logits)
    if task is Levers:
        mean, deviation = logits[:, :2], np.exp(logits[:, 2:])
        return norm.logpdf(actions, mean, deviation).sum(axis=1), norm.entropy(mean, deviation).sum(axis=1)
    parts = [np.exp(part) / np.exp(part).sum(axis=1, keepdims=True) for part in np.split(logits, [3, 5], axis=1)]
    joint = np.einsum("na,nb,nc->nabc", *parts)  # every action's probability
    return np.log(joint[(np.arange(len(joint)), *actions.T)]), -(joint * np.log(joint)).sum(axis=(1, 2, 3))


def test_an_action_space_is_unknown_until_its_distribution_is_registered(registered, monkeypatch):
    assert find_distribution(Switches.action_space) == Product((3, 2, 4))
    assert find_distribution(Levers.action_space) == Gaussian((-2.0, -1.0), (2.0, 1.0))
    monkeypatch.delitem(DISTRIBUTIONS, Box)
    with pytest.raises(UserError, match="takes Discrete, MultiDiscrete ones"):
        find_distribution(Levers.action_space)
    assert find_distribution(Discrete(5)) == Categorical(5)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("task", TASKS)
def test_actions_are_drawn_with_the_probabilities_of_the_closed_forms(registered, task, epsilon):
    distribution, random = find_distribution(task.action_space), np.random.default_rng(0)
    logits = random.normal(size=(500, distribution.size)).astype(np.float32)
    actions, log_probs = explore(distribution, logits, np.full(500, epsilon, np.float32), random)
    assert (actions.shape, actions.dtype) == ((500, *distribution.action_shape), distribution.action_type)
    expected, entropies = closed_forms(task, logits, actions)
    np.testing.assert_allclose(distribution.log_prob(logits, actions), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distribution.entropy(logits), entropies, rtol=1e-4, atol=1e-5)
    volume = {Switches: 24, Levers: 8}[task]
    mixture = np.log((1 - epsilon) * np.exp(expected) + epsilon / volume)
    np.testing.assert_allclose(log_probs, mixture, rtol=1e-4, atol=1e-5)
    if epsilon == 0:  # the mean of -log pi(a) is the entropy
        assert -log_probs.mean() == pytest.approx(entropies.mean(), abs=5 * log_probs.std() / np.sqrt(500))


def agent(task, games=16, rollout_length=4, **changes):
    """Returns model, local network, actor and learner for games of a task."""
    config = changed(Config(), **{"entropy_cost": 0.001, "normalize_advantages": True, **changes})
    env = vector([task() for _ in range(games)])
    inputs, distribution = read_input_shapes(env.single_observation_space), find_distribution(env.single_action_space)
    network, local = (
        ACNetwork(Network(hidden=(16,), core="none"), inputs, distribution, 1, name) for name in ("global", "local")
    )
    actor = Actor(
        Player.from_seed(env, Policy(local), np.random.SeedSequence(1)),
        rollout_length=rollout_length,
        frame_skip=1,
        discount=config.discount,
    )
    return GlobalModel(network, Adam(network.parameters)), local, actor, Learner(local, config, 0)


@pytest.mark.parametrize("engine", ["threads", "queue"])
@pytest.mark.parametrize("task", TASKS)
def test_gradients_are_those_of_the_closed_forms(registered, task, engine):
    costs = {"entropy_cost": 0.1, "value_cost": 0.5, "max_grad_norm": 1e6, "normalize_advantages": False}
    _, network, actor, learner = agent(task, games=5, engine=engine, **costs)
    rollout = actor.play_rollout().rollout
    actor.close()
    assert rollout.actions.shape == (4, 5, *task.action_space.shape)
    head = next(p for p in network.parameters if variable_name(p) == "policy/kernel")
    head.assign(50 * head)  # another policy than the one that has played
    flat = rollout.actions.reshape(20, -1)
    with tf.GradientTape() as tape:
        output, _ = network.unroll(rollout.observations, tf.constant(rollout.resets), ())
        logits, values = output.logits[:20], output.values[:20]
        if task is Levers:
            scaled = (flat - logits[:, :2]) / tf.exp(logits[:, 2:])
            log_probs = tf.reduce_sum(-0.5 * scaled**2 - logits[:, 2:], axis=1) - np.log(2 * np.pi)
            entropies = tf.reduce_sum(logits[:, 2:], axis=1) + 1 + np.log(2 * np.pi)
        else:
            parts = [tf.nn.softmax(part) for part in tf.split(logits, [3, 2, 4], axis=1)]
            log_probs = sum(tf.math.log(tf.gather(p, flat[:, i], batch_dims=1)) for i, p in enumerate(parts))
            entropies = sum(-tf.reduce_sum(p * tf.math.log(p), axis=1) for p in parts)
        if engine == "queue":
            next_values = np.where(rollout.ends, rollout.next_values, tf.reshape(output.values, (5, 5))[1:])
            ends = rollout.ends.astype(np.float32)
            ratios = tf.reshape(log_probs, (4, 5)) - rollout.log_probs
            assert np.abs(ratios).max() > 0.1
            played = (rollout.rewards, rollout.discounts, ends, tf.reshape(values, (4, 5)), tf.constant(next_values))
            targets = vtrace(ratios, *map(tf.convert_to_tensor, played), trace_decay=1.0, rho_clip=1.0, c_clip=1.0)
        else:
            played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
            targets = generalized_advantages(*played, 1.0, 0.99)
        returns = np.reshape(targets.returns, -1)
        advantages = np.reshape(getattr(targets, "weights", 1.0) * targets.advantages, -1)
        policy, value = -tf.reduce_mean(advantages * log_probs), 0.5 * tf.reduce_mean((returns - values) ** 2)
        total = policy + 0.5 * value - 0.1 * tf.reduce_mean(entropies)
    gradients, metrics, finite, *_ = learner.compute_gradients([learner.prepare(rollout)], 0)
    assert_close(gradients, tape.gradient(total, network.parameters))
    np.testing.assert_allclose(metrics[:3], [policy, value, tf.reduce_mean(entropies)], rtol=1e-4)
    assert finite


@pytest.mark.parametrize("engine", ["threads", "queue"])
@pytest.mark.parametrize("task", TASKS)
def test_the_right_actions_are_learned(registered, task, engine):
    model, local, actor, learner = agent(task, games=64, engine=engine)
    means = []
    for _ in range(80):
        model.pull(local)
        played = actor.play_rollout()
        means.append(np.mean([episode.score for episode in played.stats.episodes]))
        model.apply(learner.compute_gradients([learner.prepare(played.rollout)], 0).gradients, 0.02)
    model.pull(local)
    decision = Policy(local)(np.eye(2, dtype=np.float32), np.zeros(2, np.float32), ())
    actor.close()
    assert means[0] == pytest.approx(task.start, abs=0.4)
    assert np.mean(means[-10:]) > 0.1 * task.start + 0.9 * task.best
    np.testing.assert_allclose(local.distribution.mode(decision.logits), task.right, atol=0.2)
