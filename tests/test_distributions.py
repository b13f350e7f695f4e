"""Distributions over actions of discrete choices, continuous numbers and both; masks."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from by_hand import assert_close
from counting import vector
from fakes import changed
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Text
from scipy.stats import chisquare, norm

from doom_a3c.agent.distributions import FREE_START, MASKED, Categorical, explore
from doom_a3c.agent.inputs import Inputs, read_input_shapes
from doom_a3c.agent.joint_actions import MIN_DEVIATION, Gaussian, Joint, find_distribution
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import Actor
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.algorithm.returns import generalized_advantages
from doom_a3c.algorithm.vtrace import vtrace
from doom_a3c.run.action_views import view_action
from doom_a3c.settings.actions import MixedBox
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.network import Network


class Task(gymnasium.Env):
    """One-step episodes: shows one of two cues and asks for the matching action."""

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
    """Asks for two levers near the right places; the squared distance is the cost."""

    action_space = Box(-1, 1, (2,), np.float32)
    deviation = np.exp(FREE_START) + MIN_DEVIATION
    start, best = -2 * deviation**2 - 0.5, 0.0  # the variances and squared means of a uniform policy
    right = ((0.5, -0.5), (-0.5, 0.5))

    def score(self, action):
        return -float(np.sum((action - np.array(self.right[self.cue])) ** 2))


class Crane(Task):
    """Asks for one of three gears and for a lever near the right place."""

    action_space = MixedBox((3,), 1)
    start, best = 1 / 3 - Levers.deviation**2 - 0.25, 1.0
    right = ((2, -0.5), (0, 0.5))

    def score(self, action):
        gear, place = self.right[self.cue]
        return float(action[0] == gear) - float((action[1] - place) ** 2)


TASKS = [Switches, Levers, Crane]
CHOICES = {Switches: (3, 2, 4), Levers: (), Crane: (3,)}
NUMBERS = {Switches: 0, Levers: 2, Crane: 1}


def split_logits(task, logits):
    """Returns the probabilities of each choice, the means and the deviations in float64."""
    logits, choices = np.float64(logits), sum(CHOICES[task])
    parts = np.split(logits[:, :choices], np.cumsum(CHOICES[task])[:-1], axis=1) if choices else []
    means, rhos = np.split(logits[:, choices:], 2, axis=1)
    return (
        [np.exp(p) / np.exp(p).sum(axis=1, keepdims=True) for p in parts],
        means,
        MIN_DEVIATION + np.exp(rhos),
    )


def closed_forms(task, logits, actions):
    """Returns log-probabilities [N] and entropies [N] in float64 from textbook formulas."""
    parts, means, deviations = split_logits(task, logits)
    chosen = [part[np.arange(len(part)), actions[:, i].astype(int)] for i, part in enumerate(parts)]
    density = norm.logpdf(actions[:, len(parts) :], means, deviations).sum(axis=1)
    nats = norm.entropy(means, deviations).sum(axis=1) - sum((part * np.log(part)).sum(axis=1) for part in parts)
    return sum(map(np.log, chosen)) + density, nats


def test_gaussians_start_narrow_but_keep_their_parametrization():
    network = ACNetwork(Network(hidden=(16,), core="none"), Inputs(None, 3), Gaussian(2), 1, "global")
    weights = {variable_name(each): each.numpy() for each in network.parameters}
    assert np.exp(weights["policy/free"]) == pytest.approx([0.5] * 2)
    assert float(Gaussian(2).entropy(tf.zeros((1, 4)))[0]) == pytest.approx(2 * norm.entropy(0, 1 + MIN_DEVIATION))


def test_each_action_space_has_its_distribution():
    assert find_distribution(Switches.action_space) == Joint((Categorical(3), Categorical(2), Categorical(4)))
    assert find_distribution(Levers.action_space) == Gaussian(2)
    assert find_distribution(Crane.action_space) == Joint((Categorical(3), Gaussian(1)), np.float32)
    assert find_distribution(Discrete(5), masked=True) == Categorical(5, masked=True)
    with pytest.raises(UserError, match=r"Text.*cannot take"):
        find_distribution(Text(3))


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("task", TASKS)
def test_log_probs_and_entropies_match_the_closed_forms(task, epsilon):
    distribution, random = find_distribution(task.action_space), np.random.default_rng(0)
    logits = random.normal(size=(500, distribution.size)).astype(np.float32)
    actions, log_probs = explore(distribution, logits, np.full(500, epsilon, np.float32), random)
    assert (actions.shape, actions.dtype) == ((500, *distribution.action_shape), distribution.action_type)
    expected, entropies = closed_forms(task, logits, actions)
    np.testing.assert_allclose(distribution.log_prob(logits, actions), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distribution.entropy(logits), entropies, rtol=1e-4, atol=1e-5)
    inside = (np.abs(actions[:, len(CHOICES[task]) :]) <= 1).all(axis=1)
    uniform = inside / np.prod(CHOICES[task]) / 2 ** NUMBERS[task]
    mixture = np.log((1 - epsilon) * np.exp(expected) + epsilon * uniform)
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
def test_gradients_match_the_closed_forms(task, engine):
    costs = {"entropy_cost": 0.1, "value_cost": 0.5, "max_grad_norm": 1e6, "normalize_advantages": False}
    _, network, actor, learner = agent(task, games=5, engine=engine, **costs)
    rollout = actor.play_rollout().rollout
    actor.close()
    assert rollout.actions.shape == (4, 5, *task.action_space.shape)
    head = next(p for p in network.parameters if variable_name(p) == "policy/kernel")
    head.assign(50 * head)  # not the policy that played the rollout
    flat = rollout.actions.reshape(20, -1)
    with tf.GradientTape() as tape:
        output, _ = network.unroll(rollout.observations, tf.constant(rollout.resets), ())
        logits, values = output.logits[:20], output.values[:20]
        parts, means, rhos = [], *tf.split(logits[:, sum(CHOICES[task]) :], 2, axis=1)
        if CHOICES[task]:
            parts = [tf.nn.softmax(part) for part in tf.split(logits[:, : sum(CHOICES[task])], CHOICES[task], axis=1)]
        deviations, numbers = MIN_DEVIATION + tf.exp(rhos), np.float32(flat[:, len(parts) :])
        densities = -0.5 * ((numbers - means) / deviations) ** 2 - tf.math.log(deviations) - 0.5 * np.log(2 * np.pi)
        log_probs = tf.reduce_sum(densities, axis=1)
        log_probs += sum(tf.math.log(tf.gather(p, np.int32(flat[:, i]), batch_dims=1)) for i, p in enumerate(parts))
        entropies = tf.reduce_sum(tf.math.log(deviations) + 0.5 * (np.log(2 * np.pi) + 1), axis=1)
        entropies += sum(-tf.reduce_sum(p * tf.math.log(p), axis=1) for p in parts)
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
def test_the_right_actions_are_learned(task, engine):
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


@pytest.mark.parametrize("task", TASKS)
def test_kl_from_uniform_matches_a_monte_carlo_estimate(task):
    distribution, random = find_distribution(task.action_space), np.random.default_rng(0)
    logits = random.normal(size=(3, distribution.size)).astype(np.float32)
    for row in logits:
        rows = np.tile(row, (200_000, 1))
        actions = distribution.sample_uniform(rows, random)
        ratios = distribution.uniform_log_prob(rows, actions) - distribution.log_prob_np(rows, actions)
        error = 5 * ratios.std() / np.sqrt(len(rows))
        assert float(distribution.kl_from_uniform(row[None])[0]) == pytest.approx(ratios.mean(), abs=error)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("space", [MultiDiscrete([10] * 60), Box(-1, 1, (200,)), MixedBox((20,) * 60, 40)])
def test_log_probs_are_right_beyond_the_float_range(space, epsilon):
    distribution, random = find_distribution(space), np.random.default_rng(0)
    logits = np.zeros((64, distribution.size), np.float32)
    if distribution.free:
        logits[:, -distribution.free :] = -5  # narrow Gaussians
    actions, log_probs = explore(distribution, logits, np.full(64, epsilon, np.float32), random)
    policy = np.float64(distribution.log_prob(logits, actions))
    with np.errstate(divide="ignore"):
        mixture = np.logaddexp(np.log1p(-np.float32(epsilon)) + policy, np.log(epsilon) + uniform_logs(space, actions))
    np.testing.assert_allclose(log_probs, mixture, rtol=1e-5)


def uniform_logs(space, actions):
    """Returns the log-densities [N] of uniform actions from textbook formulas."""
    sizes = getattr(space, "nvec", getattr(space, "sizes", ()))
    numbers = actions[:, len(sizes) :]
    inside = np.where((np.abs(numbers) <= 1).all(axis=1), 0.0, -np.inf)
    return inside - np.log(sizes).sum() - numbers.shape[1] * np.log(2)


def test_encoding_among_a_million_choices_needs_little_memory():
    assert Categorical(1_000_000).encode(np.array([7, 999_999])).argmax(axis=1).tolist() == [7, 999_999]


@pytest.mark.parametrize("task", TASKS)
def test_numpy_and_tensorflow_agree_on_every_action(task):
    distribution, random = find_distribution(task.action_space), np.random.default_rng(0)
    logits = random.normal(scale=3, size=(400, distribution.size)).astype(np.float32)
    actions = distribution.sample(logits, random)
    np.testing.assert_allclose(distribution.log_prob(logits, actions), distribution.log_prob_np(logits, actions), rtol=1e-5)
    np.testing.assert_allclose(distribution.mode_tensor(logits), distribution.bound(distribution.mode(logits)), atol=5e-4)
    assert distribution.mode(logits).dtype == distribution.action_type == actions.dtype
    code = distribution.encode(actions)
    assert code.shape == (400, distribution.code_size)
    assert all(
        len(view_action(distribution, *one)) == distribution.code_size for one in zip(logits[:5], actions[:5], strict=True)
    )
    assert sum(view.taken for view in view_action(distribution, logits[0], actions[0])) == len(actions[0])
    assert distribution.is_valid(actions[None])


@pytest.mark.parametrize("task", TASKS)
def test_sampling_for_zero_games_returns_zero_actions(task):
    distribution, none = find_distribution(task.action_space), np.zeros((0, find_distribution(task.action_space).size))
    for draw in (distribution.sample, distribution.sample_uniform):
        assert draw(none, np.random.default_rng(0)).shape == (0, *distribution.action_shape)


def test_codes_are_one_hot_choices_and_clipped_numbers():
    assert Joint((Categorical(3), Categorical(2))).encode(np.array([[2, 0]])).tolist() == [[0, 0, 1, 1, 0]]
    code = Joint((Categorical(2), Gaussian(2)), np.float32).encode(np.float32([[1, -3, 0.5]]))
    assert code.tolist() == [[0, 1, -1, 0.5]]


@pytest.mark.parametrize("actions", [[[3, 0, 0]], [[0, -1, 0]], [[0, 0, 4]]])
def test_out_of_range_choices_are_invalid(actions):
    assert not find_distribution(Switches.action_space).is_valid(np.array([actions]))


@pytest.mark.parametrize("action", [[0, np.nan], [0, np.inf], [3, 0.0], [-1, 0.0], [0.5, 0.0]])
def test_malformed_mixed_actions_are_invalid(action):
    assert not find_distribution(Crane.action_space).is_valid(np.float32([[action]]))


def test_samples_follow_the_policy():
    distribution, random, count = Joint((Categorical(3), Gaussian(1)), np.float32), np.random.default_rng(0), 100_000
    row = np.float32([0.3, -1.0, 0.7, 0.4, -1.0])
    actions = distribution.sample(np.tile(row, (count, 1)), random)
    (shares,), mean, deviation = split_logits(Crane, row[None])
    assert chisquare(np.bincount(actions[:, 0].astype(int)), count * shares[0]).pvalue > 1e-3
    edges = norm.ppf(np.linspace(0, 1, 21), mean[0, 0], deviation[0, 0])
    assert chisquare(np.histogram(actions[:, 1], edges)[0]).pvalue > 1e-3
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.02  # the parts are independent


@pytest.mark.parametrize(("mean", "rho"), [(0.3, -3.0), (-1.04, -0.9), (0.9, 0.5), (5.0, 0.0), (1e6, -9.0), (-1e30, 0.0)])
def test_a_gaussian_mode_is_the_mean_of_its_clipped_samples(mean, rho):
    distribution, random = find_distribution(Box(-1, 1, (1,))), np.random.default_rng(0)
    row = np.float32([[mean, rho]])
    played = np.clip(distribution.sample(np.tile(row, (1_000_000, 1)), random), -1, 1)
    assert distribution.mode(row)[0, 0] == pytest.approx(played.mean(dtype=np.float64), abs=5e-3)
    np.testing.assert_allclose(distribution.mode_tensor(row), distribution.mode(row), atol=1e-6)


@pytest.mark.parametrize("scale", [-80, -5, 0, 5, 80])
def test_gaussians_stay_finite_and_trainable_at_extremes(scale):
    distribution = Gaussian(2)
    logits = tf.constant([[3e4, -3e4, scale, scale]], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        entropy = distribution.entropy(logits)
    assert np.isfinite(entropy).all()
    assert np.isfinite(tape.gradient(entropy, logits)).all()
    assert np.isfinite(distribution.sample(logits.numpy(), np.random.default_rng(0))).all()
    assert np.exp(entropy[0] / 2) > 4 * MIN_DEVIATION  # e^(entropy / 2) is 4.13 deviations


def test_nan_logits_give_finite_actions_and_nan_log_probs():
    actions, log_probs = explore(Gaussian(1), np.float32([[np.nan, 0]]), np.zeros(1), np.random.default_rng(0))
    assert np.isfinite(actions).all()
    assert np.isnan(log_probs).all()


def masked_logits():
    """Returns logits of a choice of four and a choice of two, of which the game allows three and one."""
    logits = np.random.default_rng(1).normal(size=(1, 6)).astype(np.float32)
    logits[0, [1, 5]] = MASKED
    return logits


MASKED_CHOICES = Joint((Categorical(4, masked=True), Categorical(2, masked=True)))


@pytest.mark.parametrize("draw", ["sample", "sample_uniform"])
def test_forbidden_choices_are_never_drawn(draw):
    rows = np.repeat(masked_logits(), 250_000, axis=0)
    actions = np.concatenate([getattr(MASKED_CHOICES, draw)(rows, np.random.default_rng(i)) for i in range(4)])
    counts = [np.bincount(column, minlength=size) for column, size in zip(actions.T, (4, 2), strict=True)]
    assert (counts[0][1], counts[1][1]) == (0, 0)
    assert (counts[0][[0, 2, 3]] > 1000).all()
    assert counts[1][0] == 1_000_000


def test_entropy_and_kl_cover_only_the_allowed_choices():
    logits = masked_logits()
    probabilities = np.exp(np.float64(logits[0, [0, 2, 3]]))
    probabilities /= probabilities.sum()
    assert float(MASKED_CHOICES.entropy(logits)[0]) == pytest.approx(
        -(probabilities * np.log(probabilities)).sum(), rel=1e-5
    )
    divergence = -np.log(3 * probabilities).mean()
    assert float(MASKED_CHOICES.kl_from_uniform(logits)[0]) == pytest.approx(divergence, rel=1e-5)
    np.testing.assert_allclose(MASKED_CHOICES.uniform_log_prob(logits, np.array([[0, 0]])), -np.log(3), rtol=1e-6)


def test_no_gradient_reaches_a_forbidden_choice():
    inputs = Inputs(None, 3, mask=6)
    network = ACNetwork(Network(hidden=(), core="none"), inputs, MASKED_CHOICES, 0, "network")
    mask = np.uint8([[[1, 0, 1, 1, 1, 0]]])
    observations = {"variables": np.ones((1, 1, 3), np.float32), "mask": mask}
    with tf.GradientTape() as tape:
        output, _ = network.unroll(observations, tf.ones((1, 1)), ())
        loss = MASKED_CHOICES.entropy(output.logits) + MASKED_CHOICES.kl_from_uniform(output.logits)
        loss += MASKED_CHOICES.log_prob(output.logits, tf.constant([[2, 0]]))
    gradient = tape.gradient(loss, network.parameters[0]).numpy()
    assert (gradient[:, [1, 5]] == 0).all()
    assert (gradient[:, [0, 2, 3]] != 0).all()
    assert (output.logits.numpy()[0, [1, 5]] == np.float32(MASKED)).all()


@pytest.mark.parametrize("size", [1.0, 1e15])
def test_huge_observations_never_unmask_a_forbidden_choice(size):
    inputs = Inputs(None, 1, mask=6)
    network = ACNetwork(Network(hidden=(), core="none"), inputs, MASKED_CHOICES, 0, "network")
    network.parameters[0].assign([[-3.0, 3.0, -4.0, -5.0, -3.0, 3.0]])
    observations = {
        "variables": np.full((100, 1), size, np.float32),
        "mask": np.tile(np.uint8([1, 0, 1, 1, 1, 0]), (100, 1)),
    }
    logits = network.step(observations, tf.ones(100), ())[0].logits
    random = np.random.default_rng(0)
    drawn = [MASKED_CHOICES.sample(logits.numpy(), random), MASKED_CHOICES.sample_uniform(logits.numpy(), random)]
    for actions in (*drawn, MASKED_CHOICES.mode(logits.numpy())):
        assert not (actions == 1).any(axis=1).any()
    for number in (MASKED_CHOICES.entropy(logits), MASKED_CHOICES.kl_from_uniform(logits)):
        assert np.isfinite(number).all()


@pytest.mark.parametrize("task", TASKS)
def test_a_later_update_has_ppos_clipped_gradient(task):
    """Schulman et al. 2017 (arXiv:1707.06347), equation 7, on a policy far from the one that played."""
    costs = {"entropy_cost": 0.0, "value_cost": 0.0, "max_grad_norm": 1e6, "normalize_advantages": False}
    _, network, actor, learner = agent(task, games=5, epochs=2, clip_range=0.2, **costs)
    rollout = actor.play_rollout().rollout
    actor.close()
    head = next(p for p in network.parameters if variable_name(p) == "policy/kernel")
    head.assign(50 * head)
    gradients = learner.compute_gradients([learner.prepare(rollout)], 0)
    paths = rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values
    advantages = np.ravel(generalized_advantages(*paths, 1.0, 0.99).advantages)
    actions = tf.constant(rollout.actions.reshape(20, -1))
    with tf.GradientTape() as tape:
        output, _ = network.unroll(rollout.observations, tf.constant(rollout.resets), ())
        ratios = tf.exp(network.distribution.log_prob(output.logits[:20], actions) - rollout.log_probs.ravel())
        clipped = tf.clip_by_value(ratios, 0.8, 1.2)
        loss = -tf.reduce_mean(tf.minimum(ratios * advantages, clipped * advantages))
    assert_close(gradients.gradients[0], tape.gradient(loss, network.parameters[0]), 1e-5)
    outside = np.abs(ratios.numpy() - 1) > 0.2
    assert 0 < outside.mean() < 1
    assert gradients.change.clip_fraction == pytest.approx(outside.mean())
    assert gradients.change.kl == pytest.approx(np.mean(ratios - 1 - np.log(ratios)), rel=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_the_first_update_finds_a_ratio_of_one(task):
    _, _, actor, learner = agent(task, games=5, epochs=2)
    gradients = learner.compute_gradients([learner.prepare(actor.play_rollout().rollout)], 0)
    actor.close()
    assert gradients.change.kl == pytest.approx(0, abs=1e-6)
    assert gradients.change.clip_fraction == 0
