"""The loss and its gradients against their formulas in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.agent.distributions import Categorical
from doom_a3c.algorithm.losses import actor_critic_loss, clip_weights, importance_ratios, normalize

COSTS = {"entropy_cost": 0.03, "uniform_cost": 0.07, "value_cost": 0.4}
N, A = 6, 4
POLICY = Categorical(A)


@pytest.fixture
def batch():
    random = np.random.default_rng(0)
    return {
        "logits": random.normal(size=(N, A)).astype(np.float32),
        "values": random.normal(size=N).astype(np.float32),
        "actions": random.integers(A, size=N).astype(np.int32),
        "weights": random.normal(size=N).astype(np.float32),
        "returns": random.normal(size=N).astype(np.float32),
    }


def softmax(logits):
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


def loss_of(logits, values, actions, weights, returns, **costs):
    """Returns the loss of a softmax policy."""
    policy = POLICY.log_prob(logits, actions), POLICY.entropy(logits), Categorical(logits.shape[1]).kl_from_uniform(logits)
    return actor_critic_loss(*policy, values, weights, returns, **{**COSTS, **costs})


def loss_and_gradients(batch, **costs):
    tensors = {name: tf.convert_to_tensor(array) for name, array in batch.items()}
    sources = [tensors[name] for name in ("logits", "values", "weights", "returns")]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        loss = loss_of(**tensors, **costs)
    return loss, tape.gradient(loss.total, sources)


def test_loss_terms_match_a_hand_computation():
    loss = loss_of(
        logits=tf.math.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]),
        values=tf.constant([1.0, 2.0]),
        actions=tf.constant([1, 2]),
        weights=tf.constant([2.0, -1.0]),
        returns=tf.constant([3.0, 1.0]),
        entropy_cost=0.1,
        uniform_cost=0.2,
        value_cost=0.5,
    )
    policy = (-2 * np.log(0.25) + 1 * np.log(0.8)) / 2
    value = 0.5 * (2**2 + 1**2) / 2
    nats = (-0.5 * np.log(0.5) - 0.5 * np.log(0.25) - 0.2 * np.log(0.1) - 0.8 * np.log(0.8)) / 2
    uniform_kl = -np.log([0.5, 0.25, 0.25, 0.1, 0.1, 0.8]).mean() - np.log(3)
    total = policy + 0.5 * value - 0.1 * nats + 0.2 * uniform_kl
    np.testing.assert_allclose(loss, [total, policy, value, nats, uniform_kl], rtol=1e-5)


def test_log_prob_and_entropy_of_random_logits(batch):
    probabilities = softmax(batch["logits"])
    chosen = np.log(probabilities[np.arange(N), batch["actions"]])
    np.testing.assert_allclose(POLICY.log_prob(batch["logits"], batch["actions"]), chosen, rtol=1e-5)
    np.testing.assert_allclose(
        POLICY.entropy(batch["logits"]), -np.sum(probabilities * np.log(probabilities), axis=1), rtol=1e-5
    )


def test_uniform_entropy_is_the_log_of_the_action_count():
    np.testing.assert_allclose(POLICY.entropy(tf.fill((2, A), 3.7)), np.log(A), rtol=1e-6)


def test_policy_gradient_is_advantage_times_p_minus_one_hot(batch):
    _, (logits, _, _, _) = loss_and_gradients(batch, entropy_cost=0.0, uniform_cost=0.0)
    choice = np.eye(A)[batch["actions"]]
    expected = batch["weights"][:, None] * (softmax(batch["logits"]) - choice) / N
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-6)


def test_entropy_gradient_has_its_closed_form(batch):
    batch["weights"][:] = 0
    _, (logits, _, _, _) = loss_and_gradients(batch, entropy_cost=0.7, uniform_cost=0.0)
    probabilities = softmax(batch["logits"])
    log_probabilities = np.log(probabilities)
    nats = -np.sum(probabilities * log_probabilities, axis=1, keepdims=True)
    # dH/dz = -p (log p + H); a bonus enters the loss with a minus
    np.testing.assert_allclose(logits, 0.7 * probabilities * (log_probabilities + nats) / N, rtol=1e-4, atol=1e-6)


def test_uniform_kl_but_not_entropy_revives_a_vanished_action(batch):
    batch["weights"][:] = 0
    batch["logits"][:, 0] = -200.0  # a probability of 0 in float32
    for costs, expected in (({"uniform_cost": 0.0}, 0.0), ({"entropy_cost": 0.0}, -0.07 / A / N)):
        _, (logits, _, _, _) = loss_and_gradients(batch, **costs)
        np.testing.assert_allclose(logits[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(logits, 0.07 * (softmax(batch["logits"]) - 1 / A) / N, rtol=1e-4, atol=1e-7)


def test_value_gradient_is_the_scaled_error(batch):
    _, (_, values, _, _) = loss_and_gradients(batch)
    np.testing.assert_allclose(values, 0.4 * (batch["values"] - batch["returns"]) / N, rtol=1e-5)


def test_no_gradient_flows_into_targets(batch):
    _, (_, _, advantages, returns) = loss_and_gradients(batch)
    assert advantages is None
    assert returns is None


def test_targets_derived_from_values_are_constants(batch):
    values = tf.convert_to_tensor(batch["values"])
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = loss_of(batch["logits"], values, batch["actions"], batch["returns"] - values, 2 * values)
    # (R - V) with R = 2 V held fixed
    np.testing.assert_allclose(tape.gradient(loss.total, values), -0.4 * batch["values"] / N, rtol=1e-5)


def test_a_better_action_becomes_likelier(batch):
    batch["weights"][:] = 1
    _, (logits, _, _, _) = loss_and_gradients(batch, entropy_cost=0.0, uniform_cost=0.0)
    before = POLICY.log_prob(batch["logits"], batch["actions"])
    after = POLICY.log_prob(batch["logits"] - 0.1 * logits, batch["actions"])
    assert (after.numpy() > before.numpy()).all()


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_extreme_logits_stay_finite(batch, size):
    batch["logits"] = np.float32([[size, -size, 0, 0], [-size] * 4, [0, 0, 0, -size]] * 2)
    batch["actions"] = np.int32([1, 0, 3, 0, 1, 0])  # among them actions whose probability underflows to 0
    loss, (logits, values, _, _) = loss_and_gradients(batch)
    assert np.isfinite(loss).all()
    assert np.isfinite(logits).all()
    assert np.isfinite(values).all()
    np.testing.assert_allclose(POLICY.entropy(batch["logits"])[:3], [0, np.log(4), np.log(3)], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(POLICY.log_prob(batch["logits"], batch["actions"])[0], -2 * size, rtol=1e-5)


@pytest.mark.parametrize("copies", [2, 7])
def test_repeating_a_batch_leaves_the_loss_unchanged(batch, copies):
    repeated = {name: np.concatenate([array] * copies) for name, array in batch.items()}
    np.testing.assert_allclose(loss_and_gradients(batch)[0], loss_and_gradients(repeated)[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["log_probs", "entropies", "uniform_kls", "values", "weights", "returns"])
def test_a_wrong_rank_raises(name):
    # [N, 1] against [N] would broadcast to [N, N] and train on nonsense.
    names = ("log_probs", "entropies", "uniform_kls", "values", "weights", "returns")
    arguments = dict.fromkeys(names, tf.zeros(N))
    actor_critic_loss(**arguments, **COSTS)
    with pytest.raises(ValueError, match=name):
        actor_critic_loss(**{**arguments, name: tf.zeros((N, 1))}, **COSTS)


def test_actions_of_a_wrong_rank_raise(batch):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="ank"):
        POLICY.log_prob(batch["logits"], batch["actions"][:, None])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="ank"):
        POLICY.log_prob(batch["logits"][:, None], batch["actions"])


def test_normalize_gives_zero_mean_and_unit_deviation():
    advantages = np.random.default_rng(0).normal(7, 30, (20, 8)).astype(np.float32)
    result = normalize(tf.constant(advantages)).numpy()
    assert result.dtype == np.float32
    assert result.mean() == pytest.approx(0, abs=1e-5)
    assert result.std() == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(result, (advantages - advantages.mean()) / advantages.std(), rtol=1e-4, atol=1e-5)


def test_normalize_does_not_blow_up_noise():
    advantages = np.float32([[3.001, 2.999], [3.001, 2.999]])
    np.testing.assert_allclose(normalize(tf.constant(advantages)), (advantages - 3) / 0.1, atol=1e-5)
    np.testing.assert_allclose(normalize(tf.constant(advantages), floor=0.5), (advantages - 3) / 0.5, atol=1e-5)
    np.testing.assert_array_equal(normalize(tf.fill((4, 2), 5.0)), 0)


def test_clip_weights_give_the_clipped_objectives_gradient():
    random = np.random.default_rng(0)
    played, advantages = tf.constant(random.normal(size=100)), tf.constant(random.normal(size=100))
    log_probs = tf.Variable(played + 0.3 * random.normal(size=100))
    with tf.GradientTape(persistent=True) as tape:
        ratios = tf.exp(log_probs - played)
        expected = tf.minimum(ratios * advantages, tf.clip_by_value(ratios, 0.8, 1.2) * advantages)
        weights = clip_weights(ratios * advantages, advantages, log_probs - played, 0.2)
        objective = tf.stop_gradient(weights) * log_probs
    gradients = [tape.gradient(one, log_probs) for one in (objective, expected)]
    np.testing.assert_allclose(*gradients, rtol=1e-6)
    assert 10 < np.count_nonzero(gradients[0] == 0) < 90
    np.testing.assert_array_equal(clip_weights(advantages, advantages, tf.zeros_like(advantages), 0.2), advantages)
    one, huge = tf.constant([1.0]), tf.constant([100.0])  # whose exponential overflows
    assert clip_weights(importance_ratios(huge), one, huge, 0.2) == 0
    assert np.isfinite(clip_weights(-importance_ratios(huge), -one, huge, 0.2))
