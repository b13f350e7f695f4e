"""Networks with vector observations, and networks with a separate actor and critic."""

import numpy as np
import pytest
import tensorflow as tf
from unrolled import ACTIVATIONS, B, T, observe, state, unroll

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.inputs import Inputs
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.settings.network import Network

# Vector observations


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5, 7)])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_a_vector_network_follows_its_equations(activation, hidden):
    network = ACNetwork(
        Network(hidden=hidden, activation=activation, core="none"), Inputs(None, 4), Categorical(3), 0, "network"
    )
    random = np.random.default_rng(1)
    for parameter in network.parameters:
        parameter.assign(2 * random.normal(size=parameter.shape))  # biases too
    weights = {variable_name(p): p.numpy().astype(np.float64) for p in network.parameters}
    assert len(weights) == 2 * len(hidden) + 2
    observations = (3 * random.normal(size=(T, B, 4))).astype(np.float32)
    features, seen = observations.astype(np.float64), []
    for index in range(len(hidden)):
        seen.append(features @ weights[f"hidden{index}/kernel"] + weights[f"hidden{index}/bias"])
        features = ACTIVATIONS[activation](seen[-1])
    logits, values, _ = unroll(network, observations)
    np.testing.assert_allclose(logits, features @ weights["policy/kernel"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(values, features @ weights["value/kernel"][:, 0], rtol=1e-3, atol=1e-4)
    output, _ = network.step(observations[1], tf.zeros(B), ())
    np.testing.assert_allclose(output.logits, logits[1], rtol=1e-4, atol=1e-5)
    assert all(layer.min() < -1 and layer.max() > 6 for layer in seen)  # every branch of every activation was exercised


def test_a_vector_network_keeps_its_core_state():
    network = ACNetwork(Network(hidden=(6,), core_size=5), Inputs(None, 4), Categorical(3), 0, "network")
    observations = np.random.default_rng(0).normal(size=(T, B, 4)).astype(np.float32)
    resets = np.zeros((T, B), np.float32)
    resets[2, 1] = 1
    logits, values, last = unroll(network, observations, resets, state(network))
    core_state = state(network)
    for t in range(T):
        output, core_state = network.step(observations[t], tf.constant(resets[t]), core_state)
        np.testing.assert_allclose(output.logits, logits[t], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(output.values, values[t], rtol=1e-4, atol=1e-6)
    for part, expected in zip(core_state, last, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(unroll(network, observations)[1] - values).min() > 1e-6  # the initial state matters


# Separate actor and critic

HEADS = {"policy/kernel": "actor/", "value/kernel": "critic/"}


@pytest.mark.parametrize("variables", [0, 2])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_separate_networks_have_a_torso_each(make_network, core, variables):
    shared = {variable_name(p): p.shape for p in make_network(core=core, variables=variables).parameters}
    network = make_network(core=core, variables=variables, shared=False)
    separate = {variable_name(p): p for p in network.parameters}
    torso = shared.keys() - HEADS.keys()
    assert separate.keys() == {prefix + name for prefix in ("actor/", "critic/") for name in torso} | HEADS.keys()
    for name, shape in shared.items():
        for prefix in [""] if name in HEADS else ["actor/", "critic/"]:
            assert separate[prefix + name].shape == shape
    for name in torso:  # they start with different weights
        assert (separate[f"actor/{name}"].numpy() != separate[f"critic/{name}"].numpy()).any() or "bias" in name


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_separate_networks_compute_the_same_as_their_parts(make_network, core):
    actor, critic = make_network(core=core, seed=1), make_network(core=core, seed=2)
    network = make_network(core=core, shared=False)
    parts = {"actor/": actor, "critic/": critic}
    weights = {prefix + variable_name(p): p.numpy() for prefix, part in parts.items() for p in part.parameters}
    network.load(weights | {head: weights[prefix + head] for head, prefix in HEADS.items()})
    resets = np.zeros((T, B), np.float32)
    resets[2, 1] = 1
    states = state(actor, seed=3), state(critic, seed=4)
    logits, values, last = unroll(network, observe(), resets, (*states[0], *states[1]))
    of_actor, of_critic = (
        unroll(part, observe(), resets, start) for part, start in zip((actor, critic), states, strict=True)
    )
    np.testing.assert_allclose(logits, of_actor[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(values, of_critic[1], rtol=1e-5, atol=1e-6)
    assert len(last) == len(network.initial_state(B)) == (4 if core == "lstm" else 0)
    for part, expected in zip(last, (*of_actor[2], *of_critic[2]), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-6)


def test_the_initial_state_of_separate_networks_is_zero(make_network):
    for part in make_network(shared=False).initial_state(4):
        np.testing.assert_array_equal(part, np.zeros((4, 5)))


@pytest.mark.parametrize("core", list_cores())
def test_actor_and_critic_gradients_stay_separate(make_network, core):
    network = make_network(core=core, shared=False)
    resets, start = tf.zeros((T, B)), state(network)
    with tf.GradientTape(persistent=True) as tape:
        output, _ = network.unroll(observe(), resets, start)
        objectives = {"actor/": tf.reduce_sum(output.logits**2), "critic/": tf.reduce_sum(output.values)}
    for prefix, objective in objectives.items():
        for parameter, gradient in zip(network.parameters, tape.gradient(objective, network.parameters), strict=True):
            name = variable_name(parameter)
            if HEADS.get(name, name).startswith(prefix):
                assert np.abs(gradient).max() > 0, name
            else:
                assert gradient is None, name
