"""Compiled graphs: one compiled for a network serves its twins, each with its own weights."""

import dataclasses
import threading
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.graphs import Graph, Graphs
from doom_a3c.agent.inputs import Inputs
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import make_blank_rollout
from doom_a3c.algorithm.optimizers import Adam, RMSProp
from doom_a3c.settings.config import Config
from doom_a3c.settings.network import Network

SPEC, INPUTS, ACTIONS = Network(hidden=(8,), core_size=4), Inputs(None, 3), Categorical(2)


def network(seed, graphs=None, precision="float32"):
    return ACNetwork(SPEC, INPUTS, ACTIONS, seed, f"seed_{seed}", precision, graphs)


def decide(policy, network, observations):
    batch = len(observations)
    return policy(observations, np.zeros(batch, np.float32), network.initial_state(batch))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_networks_sharing_graphs_use_their_own_weights(precision):
    graphs = Graphs()
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for seed in (1, 2, 1):
        alone, sharing = network(seed, None, precision), network(seed, graphs, precision)
        outputs = [decide(Policy(one), one, observations) for one in (alone, sharing)]
        tf.nest.map_structure(np.testing.assert_array_equal, *outputs)
        rollouts = [make_blank_rollout(observations, 4, one.initial_state(5), ACTIONS) for one in (alone, sharing)]
        rollouts = [rollout._replace(rewards=rollout.rewards + 1) for rollout in rollouts]
        learners = Learner(alone, Config(), 0), Learner(sharing, Config(), 0)
        gradients = [
            learner.compute_gradients([learner.prepare(rollout)], 0)
            for learner, rollout in zip(learners, rollouts, strict=True)
        ]
        tf.nest.map_structure(np.testing.assert_array_equal, *(g.gradients for g in gradients))
        assert gradients[0].metrics == gradients[1].metrics


def test_models_sharing_graphs_use_their_own_optimizers():
    graphs, kinds = Graphs(), (Adam, partial(Adam, epsilon=1.0), RMSProp, partial(RMSProp, epsilon=1.0), Adam)
    for seed, optimizer in enumerate(kinds):
        networks = network(seed), network(seed, graphs)
        alone, sharing = (GlobalModel(one, optimizer(one.parameters)) for one in networks)
        for model in (alone, sharing):
            model.apply([tf.ones_like(parameter) for parameter in model.network.parameters], 0.1)
        assert sharing.snapshot().keys() == alone.snapshot().keys()
        for name, expected in alone.snapshot().items():
            np.testing.assert_array_equal(sharing.snapshot()[name], expected)
        np.testing.assert_array_equal(sharing.read_weights()[0], alone.read_weights()[0])
        sharing.replace(0 * alone.read_weights()[0], 7)
        assert not sharing.read_weights()[0].any()
        assert alone.read_weights()[0].any()


def test_changed_weights_take_effect_at_the_next_call():
    one, other = network(1), network(2)
    policy, observations = Policy(one), np.ones((2, 3), np.float32)
    decide(policy, one, observations)
    for parameter, value in zip(one.parameters, other.parameters, strict=True):
        parameter.assign(value)
    np.testing.assert_array_equal(decide(policy, one, observations)[0], decide(Policy(other), other, observations)[0])


def test_concurrent_callers_compile_a_function_once():
    traced, results = [], {}

    def double(value):
        traced.append(value.shape)
        return {"twice": value * weight}

    weight = tf.Variable(2.0)
    graph, together = Graph(double, [weight]), threading.Barrier(8)

    def call(index):
        together.wait()
        other = tf.Variable(float(index))
        results[index] = graph.bind([other])(np.full(3, 10.0, np.float32))["twice"].numpy().tolist()

    threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {index: [10.0 * index] * 3 for index in range(8)}
    assert traced == [(3,)]
    assert graph(np.ones(5, np.float32))["twice"].numpy().tolist() == [2.0] * 5  # another shape


def test_differently_built_networks_do_not_share_graphs():
    graphs, observations = Graphs(), np.ones((2, 3), np.float32)
    kinds = [{}, {"activation": "tanh"}, {"shared": False}, {"core": "none"}, {"core_size": 6}, {"hidden": (8, 8)}]
    for kind in kinds:
        spec = dataclasses.replace(SPEC, **kind)
        one, sharing = (ACNetwork(spec, INPUTS, ACTIONS, 1, "one", graphs=shared) for shared in (None, graphs))
        outputs = [decide(Policy(network), network, observations) for network in (one, sharing)]
        tf.nest.map_structure(np.testing.assert_array_equal, *outputs)


def test_variables_bound_by_partial_are_not_inputs():
    variable = tf.Variable([1.0, 2.0])
    graph = Graph(partial(lambda array, weights: array * weights, weights=variable), [variable])
    np.testing.assert_array_equal(graph(np.float32([3, 3])), [3, 6])
    variable.assign([2.0, 2.0])
    np.testing.assert_array_equal(graph(np.float32([3, 3])), [6, 6])


def test_mismatched_shapes_and_unknown_variables_raise():
    with pytest.raises(ValueError, match="shape"):
        Graph(lambda x: x, [tf.Variable(1.0)]).bind([tf.Variable([1.0])])
    outside = tf.Variable(1.0)
    with pytest.raises(ValueError, match="neither an input nor"):
        Graph(lambda x: x * outside, [])(np.ones(2, np.float32))
