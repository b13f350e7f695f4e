"""Optimizers against their formulas in float64."""

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.algorithm.optimizers import Adam, RMSProp

OPTIMIZERS = {"adam": Adam, "rmsprop": RMSProp}

SHAPES = [(3, 2), (4,), ()]


def variables(value=None):
    random = np.random.default_rng(0)
    return [
        tf.Variable(np.float32(random.normal(size=shape) if value is None else np.full(shape, value)), name=f"w{i}")
        for i, shape in enumerate(SHAPES)
    ]


def gradients(seed):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for shape in SHAPES]


def apply(optimizer, arrays, learning_rate):
    optimizer.apply([tf.constant(array) for array in arrays], tf.constant(learning_rate, tf.float32))


def assert_close(actual, expected):
    for variable, array in zip(actual, expected, strict=True):
        np.testing.assert_allclose(variable, array, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("updates", [1, 3])
def test_adam_follows_its_formula(updates):
    shared = variables()
    optimizer = Adam(shared)
    weights = [variable.numpy().astype(np.float64) for variable in shared]
    m, v = [0.0] * len(SHAPES), [0.0] * len(SHAPES)
    for t in range(1, updates + 1):
        rate = 0.1 / t  # a different step size at every call, as with annealing
        apply(optimizer, gradients(t), rate)
        step = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        for i, gradient in enumerate(gradients(t)):
            m[i] = 0.9 * m[i] + 0.1 * gradient
            v[i] = 0.999 * v[i] + 0.001 * gradient.astype(np.float64) ** 2
            weights[i] = weights[i] - step * m[i] / (np.sqrt(v[i]) + 1e-8)
    assert_close(shared, weights)


def test_adams_epsilon_is_epsilon_hat():
    # A gradient about as small as epsilon distinguishes epsilon-hat from an epsilon added after bias correction.
    shared = [tf.Variable(0.0)]
    apply(Adam(shared), [np.float32(1e-7)], 1.0)
    root = np.sqrt(0.001) * 1e-7
    np.testing.assert_allclose(shared[0], -np.sqrt(0.001) / 0.1 * 0.1e-7 / (root + 1e-8), rtol=1e-4)


def test_adams_first_step_is_the_learning_rate():
    shared = variables(0.0)
    apply(Adam(shared), gradients(1), 0.01)
    assert_close(shared, [-0.01 * np.sign(gradient) for gradient in gradients(1)])


@pytest.mark.parametrize("updates", [1, 3])
def test_rmsprop_follows_its_formula(updates):
    shared = variables()
    optimizer = RMSProp(shared)
    weights = [variable.numpy().astype(np.float64) for variable in shared]
    g = [1.0] * len(SHAPES)
    for t in range(1, updates + 1):
        rate = 0.1 / t
        apply(optimizer, gradients(t), rate)
        for i, gradient in enumerate(gradients(t)):
            g[i] = 0.99 * g[i] + 0.01 * gradient.astype(np.float64) ** 2
            weights[i] = weights[i] - rate * gradient / np.sqrt(g[i] + 0.1)
    assert_close(shared, weights)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0])
def test_rmsprops_epsilon_is_under_the_root(epsilon):
    shared = [tf.Variable(5.0), tf.Variable(5.0)]
    optimizer = RMSProp(shared, epsilon)
    steps = 400  # after which the mean square of a gradient of 0 is 0.99^400, about 0.02, no longer 1
    for _ in range(steps):
        apply(optimizer, np.float32([0, 0]), 0.1)
    apply(optimizer, np.float32([0.1, -2]), 0.1)
    mean_squares = 0.99 ** (steps + 1) + 0.01 * np.square([0.1, -2])
    expected = 5 - 0.1 * np.array([0.1, -2]) / np.sqrt(mean_squares + epsilon)
    np.testing.assert_allclose([variable.numpy() for variable in shared], expected, rtol=1e-5)


@pytest.mark.parametrize(("kind", "starts"), [("adam", [0, 0]), ("rmsprop", [1, 0])])
def test_slots_exist_before_the_first_apply(kind, starts):
    shared = variables()
    slots = OPTIMIZERS[kind](shared).slots
    for i, start in enumerate(starts):
        for slot, variable in zip(slots[i * len(shared) :], shared, strict=False):
            np.testing.assert_array_equal(slot, np.full(variable.shape, start))
    assert len({slot.name for slot in slots}) == len(slots)  # checkpoints identify them by name


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_slots_hold_the_whole_optimizer_state(kind):
    first, second = variables(), variables()
    one, other = OPTIMIZERS[kind](first), OPTIMIZERS[kind](second)
    for seed in (1, 2):
        apply(one, gradients(seed), 0.1)
    for source, target in zip([*first, *one.slots], [*second, *other.slots], strict=True):
        target.assign(source)
    for optimizer in (one, other):
        apply(optimizer, gradients(3), 0.1)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_missing_gradient_raises(kind):
    optimizer = OPTIMIZERS[kind](variables())
    with pytest.raises(ValueError, match="zip"):
        apply(optimizer, gradients(1)[:-1], 0.1)
