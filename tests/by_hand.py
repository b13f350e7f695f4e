"""Random rollouts and the gradients that a learner should compute from them, written out by hand."""

import numpy as np
import tensorflow as tf
from fakes import changed

from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.rollouts import Rollout
from doom_a3c.settings.config import Config

T, B, A = 6, 3, 3
SETTINGS = changed(
    Config(),
    discount=0.95,
    gae_lambda=0.9,
    entropy_cost=0.02,
    uniform_cost=0.03,
    value_cost=0.4,
    max_grad_norm=1e6,
    normalize_advantages=False,
)


def random_rollout(network, seed=0):
    """Returns a rollout of noise with a termination and a truncation inside, from a non-zero core state."""
    random = np.random.default_rng(seed)
    terminated, truncated = np.zeros((2, T, B), np.bool_)
    terminated[2, 0] = truncated[3, 1] = True
    ends = terminated | truncated
    resets = np.zeros((T + 1, B), np.float32)
    resets[1:] = ends
    values = random.normal(size=(T, B)).astype(np.float32)
    return Rollout(
        observations=random.integers(256, size=(T + 1, B, 8, 8, 1), dtype=np.uint8),
        resets=resets,
        core_state=tuple(tf.constant(random.normal(size=part.shape), tf.float32) for part in network.initial_state(B)),
        actions=random.integers(A, size=(T, B)).astype(np.int32),
        rewards=random.normal(size=(T, B)).astype(np.float32),
        discounts=np.where(terminated, 0, SETTINGS.discount).astype(np.float32),
        ends=ends,
        values=values,
        next_values=random.normal(size=(T, B)).astype(np.float32),
        log_probs=-2 * random.random(size=(T, B)).astype(np.float32),
    )


def own_rollout(network):
    """Returns the rollout as if the network itself had played it."""
    rollout = random_rollout(network)
    log_probs, values = played_by(network, rollout)
    next_values = np.where(rollout.ends, rollout.next_values, values[1:])
    return rollout._replace(log_probs=log_probs, values=values[:T], next_values=next_values)


def gae_by_hand(network, rollout, normalize=False):
    """Returns the loss terms and the gradients of the loss from the formulas, one step at a time."""
    return loss_by_hand(network, rollout, *advantages_by_hand(rollout, normalize))


def advantages_by_hand(rollout, normalize=False):
    """Returns advantages and returns, one step at a time."""
    deltas = rollout.rewards + rollout.discounts * rollout.next_values - rollout.values
    advantages = np.zeros((T, B))
    following = np.zeros(B)
    for t in reversed(range(T)):
        following = deltas[t] + SETTINGS.discount * SETTINGS.gae_lambda * following * ~rollout.ends[t]
        advantages[t] = following
    returns = advantages + rollout.values
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
    return advantages, returns


def ppo_by_hand(network, rollout, clip, targets=None):
    """Returns the gradients of PPO's clipped objective and the number of clipped steps.

    `targets` are advantages and returns; those of GAE by default.
    """
    advantages, returns = targets or advantages_by_hand(rollout)
    clipped = 0

    def objective(t, b, probability):
        nonlocal clipped
        ratio = probability / np.exp(rollout.log_probs[t, b])
        free, kept = ratio * advantages[t, b], tf.clip_by_value(ratio, 1 - clip, 1 + clip) * advantages[t, b]
        clipped += int(kept < free)
        return tf.minimum(free, kept)

    _, gradients = loss_by_hand(network, rollout, advantages, returns, objective=objective)
    return gradients, clipped


def loss_by_hand(network, rollout, advantages, returns, entropy_cost=SETTINGS.entropy_cost.start, objective=None):
    """Returns the loss terms with these targets and the gradients of the loss, one step at a time.

    `objective` maps a step, a game and the action's probability to the policy objective; A log pi by default.
    """
    policy = value = nats = uniform_kl = 0.0
    with tf.GradientTape() as tape:
        core_state = rollout.core_state
        for t in range(T):
            output, core_state = network.step(rollout.observations[t], tf.constant(rollout.resets[t]), core_state)
            policies, values = tf.unstack(tf.nn.softmax(output.logits)), tf.unstack(output.values)
            for b, probabilities in enumerate(policies):
                probability = probabilities[rollout.actions[t, b]]
                gain = objective(t, b, probability) if objective else advantages[t, b] * tf.math.log(probability)
                policy -= gain / (T * B)
                value += 0.5 * (returns[t, b] - values[b]) ** 2 / (T * B)
                nats -= tf.reduce_sum(probabilities * tf.math.log(probabilities)) / (T * B)
                uniform_kl += tf.reduce_mean(tf.math.log(1 / A / probabilities)) / (T * B)
        total = policy + SETTINGS.value_cost * value - entropy_cost * nats + SETTINGS.uniform_cost * uniform_kl
    return (policy, value, nats), tape.gradient(total, network.parameters)


def played_by(network, rollout):
    """Returns log-probabilities [T, B] of the rollout's actions and values [T+1, B], computed one step at a time."""
    log_probs, values, core_state = [], [], rollout.core_state
    for t in range(T + 1):
        output, core_state = network.step(rollout.observations[t], tf.constant(rollout.resets[t]), core_state)
        values.append(output.values.numpy())
        if t < T:
            log_probs.append(np.log(tf.nn.softmax(output.logits).numpy()[np.arange(B), rollout.actions[t]]))
    return np.stack(log_probs), np.stack(values)


def vtrace_by_hand(network, rollout, rho_clip, c_clip, normalize=False):
    """Returns the loss terms and the gradients of the loss with V-trace targets."""
    return loss_by_hand(network, rollout, *corrected_by_hand(network, rollout, rho_clip, c_clip, normalize))


def corrected_by_hand(network, rollout, rho_clip, c_clip, normalize=False):
    """Returns rho times the V-trace advantages (normalized first if `normalize`), and the V-trace returns."""
    log_probs, values = played_by(network, rollout)
    ratios = np.exp(log_probs - rollout.log_probs)
    next_values = np.where(rollout.ends, rollout.next_values, values[1:])
    deltas = np.minimum(rho_clip, ratios) * (rollout.rewards + rollout.discounts * next_values - values[:T])
    traces = SETTINGS.gae_lambda * np.minimum(c_clip, ratios)
    corrections = np.zeros((T + 1, B))
    for b in range(B):
        for s in range(T):
            weight = 1.0
            for t in range(s, T):
                corrections[s, b] += weight * deltas[t, b]
                if rollout.ends[t, b]:
                    break
                weight *= rollout.discounts[t, b] * traces[t, b]
    later = SETTINGS.gae_lambda * np.where(rollout.ends, 0, corrections[1:])
    targets = rollout.rewards + rollout.discounts * (next_values + later)
    advantages = targets - values[:T]
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
    return np.minimum(rho_clip, ratios) * advantages, values[:T] + corrections[:T]


def decided(network, size=100):
    """Returns the network with a policy far from uniform, so that ratios and entropy gradients are not trivial."""
    policy = next(p for p in network.parameters if variable_name(p) == "policy/kernel")
    policy.assign(size * policy)
    return network


def some_games(rollout, games):
    """Returns the part of a rollout that belongs to some of its games."""
    columns = tf.nest.map_structure(lambda array: array[:, games], rollout._replace(core_state=()))
    return columns._replace(core_state=tuple(part[games] for part in rollout.core_state))


def assert_close(gradients, expected, rtol=1e-3):
    """Compares gradients with a tolerance relative to the size of each."""
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=rtol, atol=rtol * np.abs(other).max())


def differ(gradients, others):
    """Returns whether gradients differ by more than rounding explains."""
    return norm([a - b for a, b in zip(gradients, others, strict=True)]) > 0.01 * norm(others)


def norm(arrays):
    return float(np.sqrt(sum(np.sum(np.square(array, dtype=np.float64)) for array in map(np.asarray, arrays))))
