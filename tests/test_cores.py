"""Recurrent cores other than the LSTM, and a custom one: a class and its registration are all it takes."""

import numpy as np
import pytest
import tensorflow as tf
from by_hand import SETTINGS, assert_close, decided, gae_by_hand, random_rollout, vtrace_by_hand
from counting import CountingEnv, session
from counting import unroll as unroll_rollout
from fakes import changed
from unrolled import B, T, observe, state, unroll

from doom_a3c.agent.cores import CORES
from doom_a3c.agent.learner import Learner
from doom_a3c.algorithm.lstm import multiply
from doom_a3c.settings.errors import UserError


class OtherGRU:
    """A gated recurrent unit as in arXiv:1406.1078v3, of `size` cells. Its state is [B, size]."""

    def __init__(self, inputs, size, make, prefix):
        self.size = size
        self._input = make.matrix(f"{prefix}other/input_kernel", (inputs, 3 * size), inputs + 4 * size)
        self._gates = make.matrix(f"{prefix}other/gate_kernel", (size, 2 * size), inputs + 4 * size)
        self._candidate = make.matrix(f"{prefix}other/candidate_kernel", (size, size), inputs + 4 * size)

    def initial_state(self, batch_size):
        return (tf.zeros((batch_size, self.size)),)

    def run(self, features, resets, state):
        (hidden,), hiddens = state, []
        inputs = tf.cast(multiply(features, self._input.read()), tf.float32)
        inputs = tf.reshape(inputs, (resets.shape[0], -1, 3 * self.size))
        for row, reset in zip(tf.unstack(inputs), tf.unstack(resets), strict=True):
            hidden = hidden * (1.0 - reset[:, None])
            gates = tf.sigmoid(row[:, : 2 * self.size] + multiply(hidden, self._gates.read()))
            keep, use = tf.split(gates, 2, axis=1)
            candidate = tf.tanh(row[:, 2 * self.size :] + multiply(use * hidden, self._candidate.read()))
            hidden = keep * hidden + (1.0 - keep) * candidate
            hiddens.append(hidden)
        return tf.concat(hiddens, axis=0), (hidden,)


@pytest.fixture(params=["gru", "min_gru", "other"])
def make_recurrent(request, monkeypatch, make_network):
    """Makes small networks with a core other than the LSTM."""
    monkeypatch.setitem(CORES, "other", OtherGRU)
    return lambda **kind: make_network(core=request.param, **kind)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("shared", [True, False])
def test_single_steps_of_each_core_equal_its_unroll(make_recurrent, shared, precision):
    network, observations = make_recurrent(shared=shared, precision=precision), observe()
    tolerance = {"float32": 1e-5, "bfloat16": 0.02}[precision]
    resets = np.zeros((T, B), np.float32)
    resets[0, 0] = resets[2, 1] = 1
    logits, values, last = unroll(network, observations, resets, state(network))
    assert len(last) == len(network.initial_state(B)) == (1 if shared else 2)
    core_state = state(network)
    for t in range(T):
        output, core_state = network.step(observations[t], tf.constant(resets[t]), core_state)
        np.testing.assert_allclose(output.logits, logits[t], atol=tolerance)
        np.testing.assert_allclose(output.values, values[t], atol=tolerance)
    for part, expected in zip(core_state, last, strict=True):
        np.testing.assert_allclose(part, expected, atol=tolerance)


def test_a_reset_clears_the_core_state(make_recurrent):
    network, observations = make_recurrent(), observe()
    resets = np.zeros((T, B), np.float32)
    resets[2] = 1
    values, fresh = unroll(network, observations, resets, state(network))[1], unroll(network, observations[2:])[1]
    np.testing.assert_allclose(values[2:], fresh, rtol=1e-4, atol=1e-6)
    assert (np.abs(values[2:] - unroll(network, observations, None, state(network))[1][2:]) > 1e-5).all()


def test_an_actor_plays_with_each_core(make_recurrent):
    network = make_recurrent()
    played = session(network, [CountingEnv(i, length) for i, length in enumerate((3, 4, 20))], rollouts=2)
    played.actor.close()
    for rollout in played.rollouts:
        np.testing.assert_allclose(rollout.values, unroll_rollout(network, rollout, 7)[1], rtol=1e-4, atol=1e-6)
    assert np.abs(played.rollouts[1].core_state[0]).max() > 1e-3


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_gradients_through_each_core_match_the_loss_by_hand(make_recurrent, engine):
    network = decided(make_recurrent())
    rollout, learner = random_rollout(network), Learner(network, changed(SETTINGS, engine=engine), 0)
    by_hand = gae_by_hand(network, rollout) if engine == "threads" else vtrace_by_hand(network, rollout, 1.0, 1.0)
    assert_close(learner.compute_gradients([learner.prepare(rollout)], 0).gradients, by_hand[1])


def test_an_unknown_core_gives_a_one_line_error(make_network):
    known = r"'lstm' or 'none' or 'skip_lstm' or 'gru' or 'min_gru'.*not 'gru1'"
    with pytest.raises(UserError, match=known) as caught:
        make_network(core="gru1")
    assert "\n" not in str(caught.value)
