"""The LSTM: its gradient by hand against the tape's."""

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.algorithm.lstm import lstm

T, B, S = 6, 4, 5


def arguments(resets):
    random = np.random.default_rng(0)
    shapes = ((T, B, 4 * S), (S, 4 * S), (B, S), (B, S))
    gates_in, kernel, cell, hidden = (tf.constant(random.normal(size=shape), tf.float32) for shape in shapes)
    return gates_in, tf.constant(resets, tf.float32), kernel, cell, hidden


def plain(gates_in, resets, kernel, cell, hidden):
    """The equations alone."""
    hiddens = []
    for t in range(T):
        keep = 1.0 - resets[t, :, None]
        gates = gates_in[t] + (hidden * keep) @ kernel
        in_gate, candidate, forget_gate, out_gate = tf.split(gates, 4, axis=1)
        cell = cell * keep * tf.sigmoid(forget_gate + 1.0) + tf.sigmoid(in_gate) * tf.tanh(candidate)
        hidden = tf.tanh(cell) * tf.sigmoid(out_gate)
        hiddens.append(hidden)
    return tf.concat(hiddens, axis=0), cell, hidden


def no_resets():
    return np.zeros((T, B))


def resets_inside():
    resets = no_resets()
    resets[0, 0] = resets[2, 1] = resets[3, 1] = resets[T - 1, 2] = 1
    return resets


@pytest.mark.parametrize("make_resets", [no_resets, resets_inside])
def test_the_outputs_and_gradients_are_those_of_the_equations(make_resets):
    values = arguments(make_resets())
    random = np.random.default_rng(1)
    weights = [tf.constant(random.normal(size=shape), tf.float32) for shape in ((T * B, S), (B, S), (B, S))]
    found = []
    for function in (lstm, plain):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs = function(*values)
            total = tf.add_n([tf.reduce_sum(output * weight) for output, weight in zip(outputs, weights, strict=True)])
        differentiated = [values[index] for index in (0, 2, 3, 4)]  # resets are given, not learned
        found.append((*outputs, *tape.gradient(total, differentiated)))
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
        assert np.abs(expected).max() > 0.1


def test_a_state_that_is_not_finite_does_not_outlive_its_episode():
    gates_in, resets, kernel, *_ = arguments(resets_inside())
    spoiled = tf.fill((B, S), np.float32(np.nan))
    hiddens, *_ = lstm(gates_in, resets, kernel, spoiled, spoiled)
    finite = np.isfinite(hiddens.numpy().reshape(T, B, S)).all(axis=2)
    assert finite[:, 0].all()
    assert finite[:, 1].tolist() == [False, False, True, True, True, True]
