"""Recurrences over a rollout: outputs and hand-written gradients against the equations and the tape's gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.algorithm.gru import gru
from doom_a3c.algorithm.lstm import lstm
from doom_a3c.algorithm.scan import scan

T, B, S = 6, 4, 5


def plain_lstm(gates_in, resets, kernel, cell, hidden):
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


def plain_gru(gates_in, resets, kernel, hidden):
    """The equations alone."""
    hiddens = []
    for t in range(T):
        hidden = hidden * (1.0 - resets[t, :, None])
        update_in, reset_in, candidate_in = tf.split(gates_in[t], 3, axis=1)
        for_update, for_reset, for_candidate = tf.split(kernel, 3, axis=1)
        update, reset = tf.sigmoid(update_in + hidden @ for_update), tf.sigmoid(reset_in + hidden @ for_reset)
        candidate = tf.tanh(candidate_in + reset * (hidden @ for_candidate))
        hidden = update * hidden + (1.0 - update) * candidate
        hiddens.append(hidden)
    return tf.concat(hiddens, axis=0), hidden


KINDS = {"lstm": (lstm, plain_lstm, 4, 2), "gru": (gru, plain_gru, 3, 1)}  # ..., number of gates, number of states


def arguments(resets, gates, states):
    random = np.random.default_rng(0)
    shapes = ((T, B, gates * S), (S, gates * S), *[(B, S)] * states)
    gates_in, kernel, *start = (tf.constant(random.normal(size=shape), tf.float32) for shape in shapes)
    return gates_in, tf.constant(resets, tf.float32), kernel, *start


def no_resets():
    return np.zeros((T, B))


def resets_inside():
    resets = no_resets()
    resets[0, 0] = resets[2, 1] = resets[3, 1] = resets[T - 1, 2] = 1
    return resets


@pytest.mark.parametrize("make_resets", [no_resets, resets_inside])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_match_the_equations(kind, make_resets):
    ours, plain, gates, states = KINDS[kind]
    values = arguments(make_resets(), gates, states)
    random = np.random.default_rng(1)
    weights = [tf.constant(random.normal(size=shape), tf.float32) for shape in ((T * B, S), *[(B, S)] * states)]
    found = []
    for function in (ours, plain):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs = function(*values)
            total = tf.add_n([tf.reduce_sum(output * weight) for output, weight in zip(outputs, weights, strict=True)])
        differentiated = [value for index, value in enumerate(values) if index != 1]  # resets are given, not learned
        found.append((*outputs, *tape.gradient(total, differentiated)))
    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
        assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_non_finite_state_ends_with_its_episode(kind):
    function, _, gates, states = KINDS[kind]
    gates_in, resets, kernel, *_ = arguments(resets_inside(), gates, states)
    spoiled = tf.fill((B, S), np.float32(np.nan))
    hiddens, *_ = function(gates_in, resets, kernel, *[spoiled] * states)
    finite = np.isfinite(hiddens.numpy().reshape(T, B, S)).all(axis=2)
    assert finite[:, 0].all()
    assert finite[:, 1].tolist() == [False, False, True, True, True, True]


def test_the_gru_and_its_gradients_match_keras():
    inputs = 3
    random = np.random.default_rng(2)
    features = tf.constant(random.normal(size=(B, T, inputs)), tf.float32)
    start = tf.constant(random.normal(size=(B, S)), tf.float32)
    layer = keras.layers.GRU(S, return_sequences=True, return_state=True, unroll=True)
    layer.build((B, T, inputs))
    layer.set_weights([random.normal(size=weight.shape) for weight in layer.get_weights()])
    kernel, recurrent_kernel, (bias, recurrent_bias) = (tf.constant(weight) for weight in layer.get_weights())
    layer.set_weights([kernel, recurrent_kernel, np.stack([bias, 0 * recurrent_bias])])  # we have one bias, not two

    def run_gru(features, start):
        gates_in = tf.transpose(features, (1, 0, 2)) @ kernel + bias
        hiddens, hidden = gru(gates_in, tf.zeros((T, B)), recurrent_kernel, start)
        return tf.transpose(tf.reshape(hiddens, (T, B, S)), (1, 0, 2)), hidden

    found = []
    for function in (run_gru, lambda features, start: layer(features, initial_state=start)):
        with tf.GradientTape() as tape:
            tape.watch([features, start])
            hiddens, last = function(features, start)
            total = tf.reduce_sum(hiddens**2) + tf.reduce_sum(last)
        found.append((hiddens, last, *tape.gradient(total, [features, start])))
    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def linear_arguments(length, resets=()):
    random = np.random.default_rng(length)
    decays = random.uniform(size=(length, B, S))
    for time, game in resets:
        decays[time, game] = 0
    shapes = (length, B, S), (B, S)
    return tuple(
        tf.constant(array, tf.float32) for array in (decays, *(random.uniform(-1, 1, size=shape) for shape in shapes))
    )


def step_by_step(decays, inputs, state):
    """Returns the states of a linear recurrence, computed one after the other."""
    states = []
    for decay, added in zip(tf.unstack(decays), tf.unstack(inputs), strict=True):
        state = decay * state + added
        states.append(state)
    return tf.stack(states)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 33, 128])
def test_the_scan_and_its_gradients_match_a_loop(length):
    values = linear_arguments(length, [(0, 0), (length // 2, 1), (length - 1, 2)])
    weights = tf.constant(np.random.default_rng(1).normal(size=(length, B, S)), tf.float32)
    found = []
    for function in (scan, step_by_step):
        with tf.GradientTape() as tape:
            tape.watch(values)
            states = function(*values)
            total = tf.reduce_sum(states * weights)
        found.append((states, *tape.gradient(total, values)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=0, atol=1e-6)
    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
        assert np.abs(expected).max() > 0.1


def test_doubling_the_steps_adds_one_round_to_the_scan():
    counts = []
    for length in (8, 16, 32, 64):
        specs = [tf.TensorSpec((*shape, B, S)) for shape in ((length,), (length,), ())]
        graph = tf.function(scan, input_signature=specs, autograph=False).get_concrete_function().graph
        counts.append(sum(operation.type == "MulNoNan" for operation in graph.get_operations()))
    assert len(set(np.diff(counts))) == 1
    assert counts[-1] < 16


def test_a_zero_decay_forgets_non_finite_values():
    decays, inputs, start = linear_arguments(9, [(0, 0), (4, 1)])
    spoiled = tf.tensor_scatter_nd_update(inputs, [[2, 1]], [[np.nan] * S])
    states = scan(decays, spoiled, tf.fill(start.shape, np.float32(np.inf)))
    finite = np.isfinite(states).all(axis=2)
    assert finite[:, 0].all()
    assert finite[:, 1].tolist() == [False] * 4 + [True] * 5
    np.testing.assert_allclose(states[4:, 1], scan(decays, inputs, start)[4:, 1], rtol=1e-6)
